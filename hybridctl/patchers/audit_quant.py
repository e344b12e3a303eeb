"""Faults of quantised checkpoints: weights without scales, parts of one fused layer stored differently, ignore lists that miss."""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Iterable

from hybridctl.model.config import ModelConfig
from hybridctl.model.headers import Tensor
from hybridctl.model.inventory import is_scale
from hybridctl.model.name_patterns import by_pattern, pattern_of
from hybridctl.patchers.audit_fault import Fault

# What vLLM makes one layer of; the parts must be stored one way. Source: packed_modules_mapping of its model classes, e.g.
# https://github.com/vllm-project/vllm/blob/v0.32.0/vllm/model_executor/models/qwen3_5.py
FUSED = {
    "qkv_proj": ("q_proj", "k_proj", "v_proj"), "gate_up_proj": ("gate_proj", "up_proj"),
    "in_proj_qkvz": ("in_proj_qkv", "in_proj_z"), "in_proj_ba": ("in_proj_b", "in_proj_a"),
}  # fmt: skip
_GROUP_OF = {part: whole for whole, parts in FUSED.items() for part in parts}
_HOW = {"F8_E4M3": "fp8", "F8_E5M2": "fp8", "I8": "int8", "U8": "4 bits", "I32": "packed", "F4": "4 bits"}
_STORED = (".weight", ".qweight", ".weight_packed")
_TAIL = re.compile(r"(?:^|\.)(layers\.\d+\..+)")
_AGAIN = "take another export, or the publisher's own"


def audit_quant(config: ModelConfig, tensors: Iterable[Tensor]) -> list[Fault]:
    """The faults of a checkpoint whose files say that it is quantised."""
    rows = list(tensors)
    modules = {
        t.name[: -len(end)]: _HOW.get(t.dtype, "none" if end == ".weight" else "packed")
        for t in rows
        for end in _STORED
        if t.name.endswith(end) and not is_scale(t.name)
    }
    return _scales(rows) + _parts(modules) + _ignored(config, modules)


def _scales(rows: list[Tensor]) -> list[Fault]:
    """8-bit floats and packed weights, where others of the same name have a scale and these have none."""
    owners = {t.name.rpartition(".")[0] for t in rows if is_scale(t.name)}
    owners |= {_bare(t.name) for t in rows if is_scale(t.name)}
    low = [t for t in rows if not is_scale(t.name) and t.dtype.startswith(("F8_", "F4")) and "scale" not in t.name]
    low += [t for t in rows if t.name.endswith((".qweight", ".weight_packed"))]
    without: list[Tensor] = []
    for group in _grouped(low).values():
        bare = [t for t in group if t.name not in owners and t.name.rpartition(".")[0] not in owners]
        if len(bare) < len(group) or not owners:
            without += bare
    return [
        Fault(
            "scale-missing", f"{pattern} ({len(names)}): no scale stands beside it", tuple(names), "",
            "vLLM multiplies by what its memory held, or stops after all files were read", _AGAIN,
        )
        for pattern, names in by_pattern(t.name for t in without).items()
    ]  # fmt: skip


def _bare(name: str) -> str:
    return re.sub(r"_scale(?:_inv|_2)?$", "", name)


def _grouped(rows: list[Tensor]) -> dict[str, list[Tensor]]:
    found: dict[str, list[Tensor]] = defaultdict(list)
    for tensor in rows:
        found[pattern_of(tensor.name)].append(tensor)
    return found


def _parts(modules: dict[str, str]) -> list[Fault]:
    groups: dict[str, dict[str, str]] = defaultdict(dict)
    for module, how in modules.items():
        owner, _, leaf = module.rpartition(".")
        if leaf in _GROUP_OF:
            groups[f"{owner}.{_GROUP_OF[leaf]}"][module] = how
    odd = {whole: parts for whole, parts in groups.items() if len(set(parts.values())) > 1}
    faults = []
    for pattern, wholes in by_pattern(odd).items():
        told = ", ".join(f"{name.rpartition('.')[2]} {how}" for name, how in odd[wholes[0]].items())
        faults.append(
            Fault(
                "fused-parts-differ", f"{pattern} ({len(wholes)}): its parts are stored differently: {told}",
                tuple(name for whole in wholes for name in odd[whole]), "",
                "vLLM makes one layer of them, which has one precision; it stops", _AGAIN,
            )
        )  # fmt: skip
    return faults


def _ignored(config: ModelConfig, modules: dict[str, str]) -> list[Fault]:
    """Names of an ignore list, read literally: patterns (``re:``, ``*``) are vLLM's to match."""
    there = {_tail(module): module for module in modules}
    listed = [name for name in config.ignored_modules if not name.startswith("re:") and "*" not in name]
    split, kept = [], []
    for name in listed:
        tail = _tail(name)
        owner, _, leaf = tail.rpartition(".")
        if tail not in there and f"{owner}.{_GROUP_OF.get(leaf, '')}" in there:
            split.append(name)
        elif modules.get(there.get(tail, ""), "none") != "none":
            kept.append(name)
    faults = []
    for pattern, names in by_pattern(split).items():
        whole = _GROUP_OF[pattern.rpartition(".")[2]]
        faults.append(
            _list_fault(
                "ignore-list-split-names", f"{pattern} ({len(names)}): the checkpoint has {whole} instead", names
            )
        )
    for pattern, names in by_pattern(kept).items():
        what = f"{pattern} ({len(names)}) is listed as not quantised, and its weight is"
        faults.append(_list_fault("ignore-list-wrong", what, names))
    return faults


def _tail(name: str) -> str:
    match = _TAIL.search(name)
    return match[1] if match else name


def _list_fault(kind: str, what: str, names: list[str]) -> Fault:
    return Fault(
        kind, what, tuple(names), "config.json",
        "vLLM builds the layer with the other precision and can't load its weights",
        "correct the ignore list in quantization_config of config.json",
    )  # fmt: skip
