"""Faults that names, shapes and dtypes of tensors show by themselves, held against config.json and against the other layers.

Layers of one kind are alike: what most of them have and one lacks is missing there. Where layers may differ by design (experts in
some only, quantised in some only) nothing is said here; what vLLM's own model takes is asked in :mod:`.audit_model`.
"""

from __future__ import annotations

import re
from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace

from hybridctl.model.config import ModelConfig
from hybridctl.model.headers import Tensor
from hybridctl.model.inventory import is_scale, part_of
from hybridctl.model.name_patterns import by_pattern, pattern_of
from hybridctl.model.plan import plan_layers
from hybridctl.model.renaming import ARTICLE, candidates, rename_all
from hybridctl.patchers.audit_fault import Fault

_LAYER = re.compile(r"((?:\w+\.)*(?:layers|blocks|h))\.(\d+)\.(.+)")
_EXPERT = re.compile(r"(.+\.experts)\.(\d+)\.(.+)")
_ALIKE = {"attention", "state", "other"}
"""Parts of a layer that all layers of its kind have."""
_FLOATS = {"F64", "F32", "F16", "BF16"}
_AGAIN = "hf download OWNER/NAME"
_MAX_LAYERS = 10_000
# Qwen3-Next's projections of a Gated DeltaNet layer are stored fused, those of Qwen3.5 apart; vLLM reads each its own way. Source:
# https://github.com/vllm-project/vllm/blob/v0.32.0/vllm/model_executor/models/qwen3_5.py (hf_to_vllm_mapper).
_FUSED, _SPLIT = ("in_proj_qkvz", "in_proj_ba"), ("in_proj_qkv", "in_proj_z", "in_proj_b", "in_proj_a")
_STORED = {
    "qwen3_next": (_FUSED, _SPLIT), "qwen3_5": (_SPLIT, _FUSED), "qwen3_5_text": (_SPLIT, _FUSED),
    "qwen3_5_moe": (_SPLIT, _FUSED), "qwen3_5_moe_text": (_SPLIT, _FUSED),
}  # fmt: skip


@dataclass(frozen=True, slots=True)
class _Row:
    tensor: Tensor
    layer: int
    rest: str
    """The name within its layer."""


def audit_names(
    config: ModelConfig, tensors: Iterable[Tensor], model: str, *, quantised: bool, whole: bool = True
) -> list[Fault]:
    """The faults of a checkpoint's tensors.

    Args:
        quantised: whether some file says that weights are quantised; then layers may differ.
        whole: whether every shard was there; else nothing is said of what is missing.
    """
    rows = list(tensors)
    named, plain = _prefixed(rows)
    faults = _article(named, model) + _layout(config, rows)
    stack, layers = _stack(plain)
    if layers and config.num_hidden_layers:
        faults += _depth(config, layers, stack, whole)
    odd = any(fault.id in ("split-instead-of-fused", "fused-instead-of-split") for fault in faults)
    if whole and not quantised and not odd:
        faults += _lacking(config, layers, stack)
    if whole:
        faults += _experts(plain)
    faults += _embedding(config, plain)
    if not quantised:
        faults += _shapes(config, layers) + _dtypes(plain)
    return faults


def _prefixed(rows: list[Tensor]) -> tuple[dict[str, str], list[Tensor]]:
    """Names with the article's prefix and what they are without it; all tensors under plain names.

    Per component, and only where what is left is a name of its own and the checkpoint has no such tensor: ``linear_attn`` stays.
    """
    found = candidates((t.name for t in rows), "")
    rules = [rule for candidate in found if candidate.id == ARTICLE for rule in candidate.rules]
    named = rename_all((t.name for t in rows), rules)
    return named, [replace(t, name=named.get(t.name, t.name)) for t in rows]


def _article(named: Mapping[str, str], model: str) -> list[Fault]:
    return [
        Fault(
            "linear-prefix", f"{pattern} ({len(names)}): the model's own name is {pattern_of(named[names[0]])}", tuple(names), "",
            "no release of vLLM knows tensors with linear_ before a component's name", f"hybridctl prepare {model}",
        )
        for pattern, names in by_pattern(named).items()
    ]  # fmt: skip


def _layout(config: ModelConfig, rows: list[Tensor]) -> list[Fault]:
    """Projections of Gated DeltaNet layers that are stored as another family stores them."""
    stored = next((_STORED[t] for t in config.model_types if t in _STORED), None)
    if stored is None:
        return []
    right, wrong = stored
    names = [t.name for t in rows if {*t.name.split(".")} & {*wrong} and "linear_attn" in t.name]
    if not names:
        return []
    which = "split-instead-of-fused" if wrong == _SPLIT else "fused-instead-of-split"
    return [
        Fault(
            which, f"{pattern} ({len(found)}): {config.model_types[-1]} stores {' and '.join(right)}", tuple(found), "",
            "vLLM's model has no parameter of that name, or fills only a part of one",
            "convert the checkpoint again with the publisher's own script, or take the publisher's export",
        )
        for pattern, found in by_pattern(names).items()
    ]  # fmt: skip


def _stack(rows: list[Tensor]) -> tuple[str, dict[int, list[_Row]]]:
    """The prefix of the language model's layers, and their tensors by layer."""
    found: dict[str, list[_Row]] = defaultdict(list)
    for tensor in rows:
        if (match := _LAYER.fullmatch(tensor.name)) and part_of(tensor.name) not in ("draft", "vision"):
            found[match[1]].append(_Row(tensor, int(match[2]), match[3]))
    if not found:
        return "", {}
    stack = max(found, key=lambda name: len(found[name]))
    layers: dict[int, list[_Row]] = defaultdict(list)
    for row in found[stack]:
        layers[row.layer].append(row)
    return stack, dict(layers)


def _depth(config: ModelConfig, layers: Mapping[int, list[_Row]], stack: str, whole: bool) -> list[Fault]:
    stated = config.num_hidden_layers or 0
    faults = []
    if stated > _MAX_LAYERS:
        faults.append(
            Fault(
                "layer-missing", f"config.json says {stated} layers, and the checkpoint has {len(layers)}", ("num_hidden_layers",),
                "config.json", "no model has as many; config.json and weights are of two models", f"{_AGAIN} config.json",
            )
        )  # fmt: skip
        stated = 0
    gone = tuple(f"{stack}.{i}" for i in range(stated) if i not in layers)
    if gone and whole:
        faults.append(
            Fault(
                "layer-missing", f"{len(gone)} of {stated} layers have no tensor: {gone[0]}", gone, "",
                "vLLM serves a layer without its weights, or stops after all files were read", _AGAIN,
            )
        )  # fmt: skip
    limit = (config.num_hidden_layers or 0) + (config.mtp_layers or 0)
    if extra := sorted(i for i in layers if i >= limit):
        names = tuple(row.tensor.name for i in extra for row in layers[i])
        faults.append(
            Fault(
                "layer-beyond-config", f"{stack}.{extra[0]} is there, and config.json says {stated} layers", names, "config.json",
                "config.json and weights are of two models", f"{_AGAIN} config.json",
            )
        )  # fmt: skip
    return faults


def _kinds(config: ModelConfig) -> dict[int, str]:
    return {layer.index: layer.kind for layer in plan_layers(config).layers}


def _lacking(config: ModelConfig, layers: Mapping[int, list[_Row]], stack: str) -> list[Fault]:
    """What more than half of the layers of a kind have, and others of the kind lack."""
    kinds = _kinds(config)
    shared = plan_layers(config).shared
    lost: dict[str, list[str]] = defaultdict(list)
    for kind in sorted(set(kinds.values())):
        alike = [i for i, k in kinds.items() if k == kind and i in layers and i < len(kinds) - shared]
        held = {i: {r.rest for r in layers[i] if part_of(r.tensor.name) in _ALIKE} for i in alike}
        counts = Counter(rest for names in held.values() for rest in names)
        for rest, count in counts.items():
            if count * 2 > len(alike) and count < len(alike) and len(alike) >= 2:
                lost[rest] += [f"{stack}.{i}.{rest}" for i in alike if rest not in held[i]]
    return [
        Fault(
            "tensor-missing", f"{pattern_of(names[0])} ({len(names)}): other layers of the kind have it", tuple(names), "",
            "vLLM leaves the parameter as it was allocated, or stops after all files were read", _AGAIN,
        )
        for names in lost.values()
    ]  # fmt: skip


def _experts(rows: list[Tensor]) -> list[Fault]:
    """Experts that lack what the others of their layer have."""
    groups: dict[str, dict[str, set[int]]] = defaultdict(lambda: defaultdict(set))
    for tensor in rows:
        if match := _EXPERT.fullmatch(tensor.name):
            groups[match[1]][match[3]].add(int(match[2]))
    names = []
    for prefix, rests in groups.items():
        every = set().union(*rests.values())
        for rest, there in rests.items():
            if len(there) * 2 > len(every) and not is_scale(rest):
                names += [f"{prefix}.{i}.{rest}" for i in sorted(every - there)]
    return [
        Fault(
            "tensor-missing", f"{pattern} ({len(found)}): other experts of the layer have it", tuple(found), "",
            "vLLM serves the expert with what its memory held", _AGAIN,
        )
        for pattern, found in by_pattern(names).items()
    ]  # fmt: skip


def _embedding(config: ModelConfig, rows: list[Tensor]) -> list[Fault]:
    faults = []
    for tensor in rows:
        ends = tensor.name.rpartition("embed_tokens.")[2] == "weight" or tensor.name == "lm_head.weight"
        if not ends or len(tensor.shape) != 2 or tensor.dtype not in _FLOATS or part_of(tensor.name) != "embedding":
            continue
        want = (config.vocab_size, config.hidden_size)
        if None not in want and tensor.shape != want:
            faults.append(_shape_fault([tensor.name], tensor, f"config.json says {list(want)}"))
    return faults


def _shapes(config: ModelConfig, layers: Mapping[int, list[_Row]]) -> list[Fault]:
    """A tensor of another shape than that of the same name in the other layers of its kind, where those agree."""
    kinds, faults = _kinds(config), []
    by_name: dict[tuple[str, str], list[Tensor]] = defaultdict(list)
    for i, rows in layers.items():
        for row in rows:
            if part_of(row.tensor.name) in _ALIKE and i in kinds:
                by_name[kinds[i], row.rest].append(row.tensor)
    for tensors in by_name.values():
        counts = Counter(t.shape for t in tensors).most_common()
        if len(counts) == 2 and counts[0][1] > 1 and counts[1][1] == 1:
            odd = next(t for t in tensors if t.shape == counts[1][0])
            faults.append(_shape_fault([odd.name], odd, f"in the other layers it is {list(counts[0][0])}"))
    return faults


def _shape_fault(names: list[str], tensor: Tensor, why: str) -> Fault:
    return Fault(
        "wrong-shape", f"{tensor.name} is {list(tensor.shape)}; {why}", tuple(names), tensor.file,
        "vLLM stops when it comes to this tensor, or takes as much of it as fits, without a word", f"{_AGAIN} {tensor.file}",
    )  # fmt: skip


def _dtypes(rows: list[Tensor]) -> list[Fault]:
    """Weights of a checkpoint that is not quantised: not floating-point, or of another dtype than in the other layers."""
    odd: list[tuple[Tensor, str]] = []
    by_name: dict[str, list[Tensor]] = defaultdict(list)
    for tensor in rows:
        if tensor.name.endswith((".weight", ".bias")):
            by_name[pattern_of(tensor.name)].append(tensor)
    scaled = any(is_scale(t.name) for t in rows)
    for tensors in by_name.values():
        counts = Counter(t.dtype for t in tensors)
        usual, count = counts.most_common(1)[0]
        for tensor in tensors:
            if tensor.dtype not in _FLOATS:
                odd.append((tensor, "config.json tells of no quantisation"))
            elif tensor.dtype != usual and count * 2 > len(tensors) and usual in _FLOATS:
                odd.append((tensor, f"in the other layers it is {usual}"))
    faults = []
    for pattern, names in by_pattern(t.name for t, _ in odd).items():
        tensor, why = next((t, w) for t, w in odd if t.name == names[0])
        bare = scaled and tensor.dtype not in _FLOATS
        faults.append(
            Fault(
                "quantization-config-missing" if bare else "wrong-dtype", f"{pattern} ({len(names)}) is {tensor.dtype}; {why}",
                tuple(names), "config.json" if bare else tensor.file,
                "vLLM takes the numbers as they are, without their scales" if tensor.dtype not in _FLOATS
                else "vLLM converts it without a word; the file was put together from two exports",
                f"{_AGAIN} {'config.json' if bare else tensor.file}",
            )
        )  # fmt: skip
    return faults
