"""The audit with vLLM: a child of the target interpreter says which tensors vLLM's own model takes, and what stays empty.

Only that child imports vLLM. It gets a folder with config.json and a list of names, dtypes and shapes; no weight file.
"""

from __future__ import annotations

import json
import os
import re
import tempfile
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from math import prod
from pathlib import Path
from typing import Any

from hybridctl.doctor.facts.child import Child, ChildError
from hybridctl.errors import HybridctlError
from hybridctl.model.headers import Tensor
from hybridctl.model.inventory import part_of
from hybridctl.model.name_patterns import by_pattern
from hybridctl.patchers.audit_fault import Fault
from hybridctl.patchers.audit_quant import FUSED

PROGRAM = Path(__file__).parent.parent / "runtime/vllm_plugin/audit_child.py"
SECONDS = 300.0
_SMALL = {".json", ".txt", ".jinja", ".model"}
_MAX_SMALL = 32 * 1024 * 1024
_NUMBERS = re.compile(r"(?<=\.)\d+(?=\.)")
_TAIL = re.compile(r"(?:^|\.)((?:layers|blocks|h)\.\d+\..+)")
# Scales that vLLM makes with a value of their own where the checkpoint has none, and buffers that it computes itself.
_OPTIONAL = re.compile(r"(?:^|\.)(?:[kqv]_scale|[kqv]_zero_point|prob_scale|input_scale|_[kqv]_scale)$")
# The order of the inputs in GPTQ checkpoints, which vLLM's loader drops (QuantizationConfig.get_checkpoint_weight_mapper), and
# biases of experts, which its GPTQ layers make with zeros for the checkpoints that have some (auto_gptq.py).
_ORDER = ".g_idx"
_EXPERT_BIAS = re.compile(r"\.experts\..*w(?:13|2)_bias$")
_COMPUTED = re.compile(r"(?:rotary_emb\.inv_freq|masked_bias|\.attn\.bias|_extra_state)$")
_AGAIN = "take another export, or the publisher's own"


@dataclass(frozen=True, slots=True)
class Asked:
    """What vLLM's model says of a checkpoint. ``unknown``: why it was not, or not fully, asked; empty when it was."""

    faults: tuple[Fault, ...] = ()
    unknown: str = ""
    model_class: str = ""


def audit_model(
    config: str,
    tensors: Iterable[Tensor],
    python: str,
    *,
    folder: Path | None = None,
    known: Sequence[Fault] = (),
    environ: Mapping[str, str] | None = None,
    seconds: float = SECONDS,
) -> Asked:
    """Ask the vLLM of an interpreter.

    Args:
        config: the text of config.json as vLLM will read it.
        python: the target interpreter.
        folder: where the checkpoint's small files lie (processor, tokenizer), if they are here.
        known: faults that the files have shown; what follows from them is not told again.
        environ: what the child's environment has besides ours: the switch of the plugin for a routed model.
    """
    rows = list(tensors)
    return audit_models(config, [rows], python, folder=folder, known=[known], environ=environ, seconds=seconds)[0]


def audit_models(
    config: str,
    lists: Sequence[Sequence[Tensor]],
    python: str,
    *,
    folder: Path | None = None,
    known: Sequence[Sequence[Fault]] = (),
    environ: Mapping[str, str] | None = None,
    seconds: float = SECONDS,
) -> list[Asked]:
    """As :func:`audit_model`, for several lists under one configuration: vLLM starts once. ``known``: faults for each list."""
    with tempfile.TemporaryDirectory(prefix="hybridctl-audit-") as made:
        place = Path(made)
        _small_files(folder, place)
        (place / "config.json").write_text(config, encoding="utf-8")
        argv = [python, str(PROGRAM), made]
        for i, tensors in enumerate(lists):
            path = place / f"tensors-{i}.list"
            path.write_text(json.dumps([[t.name, t.dtype, t.shape] for t in tensors]), encoding="utf-8")
            argv.append(str(path))
        own = {
            name: value for name, value in os.environ.items() if name not in ("HYBRIDCTL_PLUGIN", "HYBRIDCTL_RUN_DIR")
        }
        own |= {"PYTHONDONTWRITEBYTECODE": "1", **(environ or {})}
        try:
            said, problem = Child(argv, made, own).documents(seconds)
        except ChildError as error:
            return [Asked(unknown=str(error)) for _ in lists]
    told = known or [()] * len(lists)
    rows = zip(said, lists, told, strict=False)
    answers = [_asked(answer, tensors, json.loads(config), faults) for answer, tensors, faults in rows]
    why = next((a.unknown for a in answers if a.unknown), "") or problem or "no answer"
    return answers + [Asked(unknown=why) for _ in range(len(lists) - len(answers))]


def _small_files(folder: Path | None, place: Path) -> None:
    for path in sorted(folder.iterdir()) if folder else ():
        fine = path.suffix in _SMALL and not path.name.endswith(".index.json") and path.name != "config.json"
        if fine and path.is_file() and path.stat().st_size < _MAX_SMALL:
            (place / path.name).symlink_to(path.resolve())


def _asked(answer: object, tensors: Sequence[Tensor], config: Mapping[str, Any], known: Sequence[Fault]) -> Asked:
    """Faults of an answer.

    Raises:
        HybridctlError: the answer is not one of our program.
    """
    if not isinstance(answer, dict) or not isinstance(answer.get("stage"), str):
        raise HybridctlError("the audit's child gave an answer of another form")
    release, built = f"vLLM {answer.get('vllm', '')}".strip(), str(answer.get("model_class", ""))
    if answer["stage"] != "done":
        doing = {"import": "be imported", "config": "read the configuration", "build": "build the model"}
        what = doing.get(answer["stage"], "load all tensors")
        return Asked(unknown=f"{release} could not {what}: {answer.get('error', '')}", model_class=built)
    told = {name for fault in known for name in fault.evidence}
    faults: list[Fault] = []
    explained = set(told)
    odd = by_pattern(_of_no_use([n for n in answer["unused"] if n not in told], config))
    for refusal in answer["refused"]:
        names = [n for n in refusal["names"] if n not in told]
        kind = _kind(refusal["error"])
        if kind == "wrong-shape":
            explained.update(names)
        if names and kind == "tensor-unexpected":
            odd.update(by_pattern(names))
        elif names:
            faults.append(_refused(kind, names, refusal, release, built, tensors))
    faults += _cut(answer.get("cut", {}), explained, release, built)
    renamed = _renamed(odd, answer["short"], {t.name: prod(t.shape) for t in tensors})
    for pattern, parameters in renamed.items():
        faults.append(_rename(odd.pop(pattern), parameters, built))
    paired = {name for parameters in renamed.values() for name in parameters}
    spare = _spare(config, tensors)
    short = {
        name: got
        for name, got in answer["short"].items()
        if name not in paired and not (spare and _EXPERT_BIAS.search(name))
    }
    faults += _unexpected(odd, release, built)
    faults += _short(short, explained, release, built)
    return Asked(tuple(faults), model_class=built)


def _kind(error: str) -> str:
    name, _, text = error.partition(":")
    if name == "KeyError" or "no module or parameter named" in text:
        return "tensor-unexpected"
    if name == "AssertionError" or "shape" in text.lower() or "size" in text.lower():
        return "wrong-shape"
    return "tensor-refused"


def _refused(
    kind: str, names: list[str], refusal: Mapping[str, Any], release: str, built: str, tensors: Sequence[Tensor]
) -> Fault:
    pattern = next(iter(by_pattern(names)))
    what = f"its shape {refusal['shape']} does not fit {built}" if kind == "wrong-shape" else f"{built} refuses it"
    files = {t.name: t.file for t in tensors}
    return Fault(
        kind, f"{pattern} ({len(names)}): {what}", tuple(names), files.get(names[0], ""),
        f"{release} stops when it comes to this tensor: {refusal['error'][:200]}", _AGAIN,
    )  # fmt: skip


def _cut(cut: Mapping[str, list[int]], explained: set[str], release: str, built: str) -> list[Fault]:
    """Tensors of which vLLM takes a part: larger than their parameter, where its loader cuts out what it needs."""
    return [
        Fault(
            "wrong-shape", f"{pattern} ({len(names)}): {built} takes {cut[names[0]][0]} of its {cut[names[0]][1]} numbers",
            tuple(names), "", f"{release} takes as much of it as fits, without a word", _AGAIN,
        )
        for pattern, names in by_pattern(n for n in cut if n not in explained).items()
    ]  # fmt: skip


def _of_no_use(names: list[str], config: Mapping[str, Any]) -> list[str]:
    """Tensors that vLLM passes over, but for those that it has no use for by design."""
    tied = _stated(config, "tie_word_embeddings")
    return [
        n
        for n in names
        if part_of(n) != "draft"
        and not _COMPUTED.search(n)
        and not n.endswith(_ORDER)
        and not (tied and "lm_head" in n)
        and not _OPTIONAL.search(n)
    ]


def _stated(config: Mapping[str, Any], key: str) -> Any:
    """A field of config.json, or of the text model's part of it."""
    return config.get(key) or (config.get("text_config") or {}).get(key)


def _spare(config: Mapping[str, Any], tensors: Sequence[Tensor]) -> bool:
    """Whether experts' biases are vLLM's own: a GPTQ checkpoint that has none."""
    quant = _stated(config, "quantization_config")
    method = quant.get("quant_method") if isinstance(quant, dict) else ""
    return method in ("gptq", "auto-round") and not any(
        ".experts." in t.name and t.name.endswith("bias") for t in tensors
    )


def _unexpected(odd: Mapping[str, list[str]], release: str, built: str) -> list[Fault]:
    return [
        Fault(
            "tensor-unexpected", f"{pattern} ({len(found)}): {built} has no parameter for it", tuple(found), "",
            f"{release} passes over it without a word, or stops when it comes to it", _AGAIN,
        )
        for pattern, found in odd.items()
    ]  # fmt: skip


def _renamed(
    odd: Mapping[str, list[str]], short: Mapping[str, list[int]], sizes: Mapping[str, int]
) -> dict[str, list[str]]:
    """Patterns of tensors without a use, each with the only parameters that lack as many numbers in the same layers."""
    lacking = by_pattern(short)
    found: dict[str, list[str]] = {}
    for pattern, names in odd.items():
        wanted = [(_NUMBERS.findall(n), sizes[n]) for n in names]
        fits = [
            ps for ps in lacking.values() if [(_NUMBERS.findall(p), short[p][1] - short[p][0]) for p in ps] == wanted
        ]
        if len(fits) == 1 and fits[0] not in found.values():
            found[pattern] = fits[0]
    return found


def _rename(names: list[str], parameters: list[str], built: str) -> Fault:
    old, new = next(iter(by_pattern(names))), next(iter(by_pattern(parameters)))
    return Fault(
        "tensor-renamed",
        f"{old} ({len(names)}): {built} has no parameter for it, and {new} lacks as many numbers in the same layers",
        (*names, *parameters), "", "an export under another model's names: the parameter would stay empty", _AGAIN,
    )  # fmt: skip


def _short(short: Mapping[str, list[int]], explained: set[str], release: str, built: str) -> list[Fault]:
    tails = {_tail(name) for name in explained}
    open_ = {n: got for n, got in short.items() if not _OPTIONAL.search(n) and not _follows(n, tails)}
    faults = []
    for empty in (True, False):
        names = [n for n, (got, _) in open_.items() if (got == 0) is empty]
        for pattern, found in by_pattern(names).items():
            got, size = open_[found[0]]
            part = "nothing" if empty else f"{got} of {size} numbers"
            faults.append(
                Fault(
                    "tensor-missing" if empty else "tensor-incomplete",
                    f"{pattern} ({len(found)}): this parameter of {built} would get {part}", tuple(found), "",
                    f"{release} serves it with what its memory held, or stops after all files were read", _AGAIN,
                )
            )  # fmt: skip
    return faults


def _tail(name: str) -> str:
    match = _TAIL.search(name)
    return match[1] if match else name


def _follows(parameter: str, tails: set[str]) -> bool:
    """Whether a parameter is short because of a tensor that was told of already: itself, or a part of it."""
    tail = _tail(parameter)
    owner, _, ending = tail.rpartition(".")
    outer, _, leaf = owner.rpartition(".")
    return tail in tails or any(f"{outer}.{part}.{ending}" in tails for part in FUSED.get(leaf, ()))
