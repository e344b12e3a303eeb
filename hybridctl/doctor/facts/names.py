"""Tells a model's name from a placeholder for one."""

from __future__ import annotations

import re

from hybridctl.patterns import late

_PLACEHOLDER = late(
    r"<.*>|\{.*\}|\[.*\]|.*\.\.\.|.*…|\$.*|%.*%|x{2,}|"
    r"(?:\S*/)?(?:the[-_]|your[-_/ ]*|my[-_]|some[-_])?(?:org[-_/])?"
    r"(?:model|models|checkpoint|ckpt|weights)(?:[-_ ]?(?:name|path|id|dir|tag|here|folder))?/?",
    re.IGNORECASE | re.DOTALL,
)
_PLAIN = late(r"[^\s\"'`|;,()=*?]{1,300}")
_TELLING = late(r"[/\\0-9_.:-]|[A-Z]")


def is_placeholder(name: str) -> bool:
    """``MODEL``, ``<model>``, ``$MODEL``, ``/path/to/model``: words that stand for a model."""
    return _PLACEHOLDER.fullmatch(name.strip()) is not None


def plausible_model(name: str) -> bool:
    """Whether this can be a model's name or path, and not a placeholder or a word of prose."""
    name = name.strip()
    return bool(
        _PLAIN.fullmatch(name) and _TELLING.search(name) and not is_placeholder(name) and not name.startswith("-")
    )
