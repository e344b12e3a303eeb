"""Names of tensors by pattern: what stands in every layer, and in every expert, is told once."""

from __future__ import annotations

import re
from collections.abc import Iterable

_NUMBER = re.compile(r"(?<=\.)\d+(?=\.|$)")


def pattern_of(name: str) -> str:
    """``model.layers.3.mlp.experts.7.up_proj.weight`` → ``model.layers.*.mlp.experts.*.up_proj.weight``."""
    return _NUMBER.sub("*", name)


def by_pattern(names: Iterable[str]) -> dict[str, list[str]]:
    """Names by pattern, in their order."""
    found: dict[str, list[str]] = {}
    for name in names:
        found.setdefault(pattern_of(name), []).append(name)
    return found
