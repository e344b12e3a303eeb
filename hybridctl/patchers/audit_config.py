"""Faults that a config.json shows for the releases that will read it, and tensor-parallel sizes that do not divide."""

from __future__ import annotations

from hybridctl.architectures import backend_takes, registered, stands_in
from hybridctl.fit.parallel import problems, sizes_that_divide
from hybridctl.fit.weights import Ranks
from hybridctl.model.config import ModelConfig
from hybridctl.model.plan import plan_layers
from hybridctl.patchers.audit_fault import Fault
from hybridctl.patchers.config import Versions, patch
from hybridctl.runtime.overlay_min import plain_architecture
from hybridctl.versions import parse_version

_IDS = {"architectures": "legacy-class", "model_type": "legacy-class", "layer_types": "layer-types-spelling"}
_FILE = "config.json"


def audit_config(text: str, config: ModelConfig, versions: Versions, model: str) -> list[Fault]:
    """What :func:`hybridctl.patchers.config.patch` would write differently, and classes that the release has not."""
    made = patch(text, versions)
    faults = [
        Fault(
            _IDS.get(change.field, "missing-field"), f"{change.path}: {change.reason}", (change.path,), _FILE,
            f"vLLM {versions.vllm} does not read this file as it is", f"hybridctl prepare {model}",
        )
        for change in made.changes
    ]  # fmt: skip
    faults += [
        Fault("missing-field", line, (), _FILE, "vLLM stops, or guesses", f"write it into {_FILE}, as the publisher means it")
        for line in made.warnings
    ]  # fmt: skip
    legacy = any(change.field == "architectures" for change in made.changes)
    return faults if legacy else faults + _unknown_class(config, versions, model)


def _unknown_class(config: ModelConfig, versions: Versions, model: str) -> list[Fault]:
    vllm = parse_version(versions.vllm)
    if vllm is None or not config.architectures or config.auto_map:
        return []
    name = plain_architecture(config.document)  # the name that prepare gives a routed or renamed model is ours
    row, newer = registered(name), parse_version(versions.transformers)
    known = row.holds(vllm) if row else False
    if known is not False or stands_in(name, vllm) is not False or backend_takes(name, vllm, newer) is not False:
        return []
    before, after = row.releases_around(vllm) if row else (None, None)
    has = [f"{v} has it" for v in (before, after) if v]
    return [
        Fault(
            "class-unknown", f"vLLM {versions.vllm} has no class {name}", (name,), _FILE,
            "vLLM stops before it reads a weight" + (f"; vLLM {' and '.join(has)}" if has else ""),
            f"pip install 'vllm=={after or before}'" if has else f"hybridctl doctor --model {model}",
        )
    ]  # fmt: skip


def audit_parallel(config: ModelConfig, tensor_parallel: int, model: str) -> list[Fault]:
    """What does not divide by the ranks."""
    plan = plan_layers(config)
    found = problems(config, plan, Ranks(tensor_parallel, 1, False), config.quant)
    if not found:
        return []
    sizes = [str(n) for n in sizes_that_divide(config, plan, config.quant)]
    return [
        Fault(
            "tp-does-not-divide", f"--tensor-parallel-size {tensor_parallel}: {line}", (line,), _FILE,
            f"vLLM stops while it builds the model; sizes that divide: {', '.join(sizes) or 'none of the usual ones'}",
            f"hybridctl prepare {model} --tensor-parallel-size {sizes[-1] if sizes else 1}",
        )
        for line in found
    ]  # fmt: skip
