"""Which layers have experts instead of one feed-forward part, from the fields of a config.json."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any


def expert_layers(
    text: Mapping[str, Any], kinds: list[str], types: list[str], experts: int | None
) -> list[bool | None]:
    """For every layer: experts, no experts, or ``None`` when the config does not tell.

    Args:
        text: the language model's part of a config.json.
        kinds: kinds of the layers, as :func:`hybridctl.model.layers.layer_kinds` names them.
        types: model types.
        experts: how many experts a layer has; ``None``: not stated.
    """
    count = len(kinds)
    if "moe" in kinds or any(t.startswith("nemotron_h") for t in types):
        return [kind == "moe" for kind in kinds]
    if experts is not None and experts <= 1:
        return [False] * count
    stated = text.get("mlp_layer_types")
    if isinstance(stated, list) and len(stated) == count:
        return [word != "dense" for word in stated]
    if experts is None:
        return [None if any("moe" in t for t in types) else False] * count
    marks: list[bool | None] = [True] * count
    if (step := _count(text.get("decoder_sparse_step"))) and step > 1:
        marks = [(i + 1) % step == 0 for i in range(count)]
    if period := _count(text.get("expert_layer_period")):  # Jamba
        offset = text.get("expert_layer_offset")
        marks = [i % period == (offset if isinstance(offset, int) else 1) for i in range(count)]
    if frequency := _count(text.get("moe_layer_freq")):
        marks = [i % frequency == 0 for i in range(count)]
    elif isinstance(listed := text.get("moe_layer_freq"), list) and len(listed) == count:
        marks = [bool(mark) for mark in listed]
    for field in ("first_k_dense_replace", "num_dense_layers"):
        dense = _count(text.get(field))
        marks = [mark and i >= dense for i, mark in enumerate(marks)]
    only = text.get("mlp_only_layers")
    if isinstance(only, list):
        marks = [False if i in only else mark for i, mark in enumerate(marks)]
    return marks


def _count(value: object) -> int:
    return value if isinstance(value, int) and not isinstance(value, bool) and 0 < value <= 2000 else 0
