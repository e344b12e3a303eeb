"""JSON as it survives copying: cut short with ``...``, single quotes, Python words, or no quotes at all. Never raises."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any, TypeAlias

from hybridctl.patterns import late

Plain: TypeAlias = "bool | int | float | str | list[str]"

_BARE = late(r"[^,{}\[\]\n]*")
# Bounded: where no colon follows, every place of a long word is tried.
_KEY = late(r"""\s{0,99}(?:"([^"\n]{0,200})"|'([^'\n]{0,200})'|([\w.-]{1,200}))\s{0,99}[:=]""")
_NUMBER = late(r"-?\d+(?:\.\d+)?(?:[eE][+-]?\d+)?")
_WORDS: dict[str, Any] = {"true": True, "True": True, "false": False, "False": False, "null": None, "None": None}
_MAX_DEPTH, _MAX_ITEMS = 12, 300
_MAX_NUMBER = 2**63
MAX_TEXT = 65_536
"""Characters that are looked at of a text that is no JSON."""


def loads(text: str) -> Any:
    """The value that the text holds, as far as it can be read; plain text when it is no object or list."""
    try:
        return json.loads(text)
    except (ValueError, RecursionError):
        return _Reader(text[:MAX_TEXT]).value(0)


def flatten(value: Any, path: str = "") -> Iterator[tuple[str, Plain]]:
    """``(dotted path, value)`` for every scalar, and for every list of scalars as texts. Null is nothing, and
    neither are NaN, infinity and whole numbers beyond 64 bits."""
    budget = [_MAX_ITEMS]
    yield from _flatten(value, path, 0, budget)


def _flatten(value: Any, path: str, depth: int, budget: list[int]) -> Iterator[tuple[str, Plain]]:
    if depth > _MAX_DEPTH or budget[0] <= 0:
        return
    if isinstance(value, dict):
        for key, inner in value.items():
            yield from _flatten(inner, f"{path}.{key}" if path else str(key), depth + 1, budget)
    elif isinstance(value, list):
        budget[0] -= 1
        yield path, [str(v) for v in value[:_MAX_ITEMS] if isinstance(v, (str, int, float, bool))]
    elif isinstance(value, str) or (isinstance(value, (int, float)) and abs(value) < _MAX_NUMBER):
        budget[0] -= 1
        yield path, value


class _Reader:
    def __init__(self, text: str) -> None:
        self.text, self.i = text, 0

    def value(self, depth: int) -> Any:
        self._blanks()
        c = self.text[self.i : self.i + 1]
        if depth <= _MAX_DEPTH and c == "{":
            return self._object(depth)
        if depth <= _MAX_DEPTH and c == "[":
            return self._list(depth)
        if c and c in "\"'":
            return self._string(c)
        m = _BARE.match(self.text, self.i)
        bare = (m[0] if m else "").strip().strip("\"'")
        self.i = m.end() if m else len(self.text)
        if bare in _WORDS:
            return _WORDS[bare]
        if _NUMBER.fullmatch(bare) and len(bare) < 40:
            return float(bare) if any(c in bare for c in ".eE") else int(bare)
        return bare

    def _blanks(self) -> None:
        while self.i < len(self.text) and (self.text[self.i].isspace() or self.text[self.i] == ","):
            self.i += 1

    def _string(self, quote: str) -> str:
        out: list[str] = []
        self.i += 1
        while self.i < len(self.text) and (c := self.text[self.i]) != quote:
            if c == "\\" and self.i + 1 < len(self.text):
                self.i += 1
                c = self.text[self.i]
            out.append(c)
            self.i += 1
        self.i += 1
        return "".join(out)

    def _object(self, depth: int) -> dict[str, Any]:
        out: dict[str, Any] = {}
        self.i += 1
        while self.i < len(self.text):
            self._blanks()
            if self.text[self.i : self.i + 1] in ("}", ""):
                self.i += 1
                break
            m = _KEY.match(self.text, self.i)
            if not m:
                self.i += 1  # "..." and whatever else stands where a name should
                continue
            self.i = m.end()
            out[m[1] or m[2] or m[3] or ""] = self.value(depth + 1)
        return out

    def _list(self, depth: int) -> list[Any]:
        out: list[Any] = []
        self.i += 1
        while self.i < len(self.text):
            self._blanks()
            if self.text[self.i : self.i + 1] in ("]", ""):
                self.i += 1
                break
            before = self.i
            item = self.value(depth + 1)
            if self.i == before:
                self.i += 1  # a stray bracket
            elif item not in ("...", "…"):
                out.append(item)
        return out
