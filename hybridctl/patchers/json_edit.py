"""Changes single values in the text of a JSON document; every other character, the order of keys and unknown keys stay.

The text comes from strangers: it must be one strict JSON object, not nested without end, and no key may stand twice in one object
(which of the two counts differs from reader to reader).
"""

from __future__ import annotations

import json
import re
from dataclasses import dataclass
from typing import Any

from hybridctl.errors import UsageError

MAX_TEXT = 8 * 1024 * 1024
MAX_DEPTH = 64
Path = tuple[str | int, ...]
_SPACE = re.compile(r"[ \t\r\n]*")
_SCALAR = re.compile(r'"(?:[^"\\]|\\.)*"|-?Infinity|[^\s,\]}]+', re.DOTALL)


class BadJsonError(UsageError):
    """A document that can't be edited: no JSON, no object, too deep, or with a key that stands twice."""


@dataclass(frozen=True, slots=True)
class Span:
    """Where a value stands in a text. ``last``: for an object or list, the end of its last member (or of its opening bracket)."""

    begin: int
    end: int
    last: int


def parse(text: str, name: str) -> dict[str, Any]:
    """The document.

    Raises:
        BadJsonError: see the module.
    """
    if len(text) > MAX_TEXT:
        raise BadJsonError(f"{name}: {len(text)} characters are no configuration", "download the file again")
    depth = deepest = 0
    for mark in re.finditer(r'"(?:[^"\\]|\\.)*"|[\[{]|[\]}]', text, re.DOTALL):
        depth += 1 if mark[0] in "[{" else -1 if mark[0] in "]}" else 0
        deepest = max(deepest, depth)
    if deepest > MAX_DEPTH:
        raise BadJsonError(f"{name}: nested {deepest} deep, which no configuration is", "do not load this checkpoint")
    try:
        document = json.loads(text, object_pairs_hook=_once)
    except _TwiceError as error:
        raise BadJsonError(f"{name}: the key {str(error)[:80]!r} stands twice", "remove one of the two") from None
    except (ValueError, RecursionError) as error:
        raise BadJsonError(f"{name} is no JSON: {str(error)[:120]}", "download the file again") from error
    if not isinstance(document, dict):
        raise BadJsonError(f"{name} holds no object", "download the file again")
    return document


class _TwiceError(Exception):
    pass


def _once(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    table = dict(pairs)
    if len(table) != len(pairs):
        seen: set[str] = set()
        raise _TwiceError(next(key for key, _ in pairs if key in seen or seen.add(key)))  # type: ignore[func-returns-value]
    return table


def spans(text: str) -> dict[Path, Span]:
    """The span of every value of a document that :func:`parse` has taken."""
    found: dict[Path, Span] = {}
    _value(text, _skip(text, 0), (), found)
    return found


def _skip(text: str, at: int) -> int:
    return _SPACE.match(text, at).end()  # type: ignore[union-attr]


def _value(text: str, at: int, path: Path, found: dict[Path, Span]) -> int:
    if text[at] not in "{[":
        end = _SCALAR.match(text, at).end()  # type: ignore[union-attr]
        found[path] = Span(at, end, end)
        return end
    begin, closing, count = at, "}" if text[at] == "{" else "]", 0
    last = at + 1
    at = _skip(text, last)
    while text[at] != closing:
        if text[at] == ",":
            at = _skip(text, at + 1)
        key: str | int = count
        if closing == "}":
            end = _SCALAR.match(text, at).end()  # type: ignore[union-attr]
            key = json.loads(text[at:end])
            at = _skip(text, _skip(text, end) + 1)  # past the colon
        last = _value(text, at, (*path, key), found)
        at, count = _skip(text, last), count + 1
    found[path] = Span(begin, at + 1, last)
    return at + 1


def put(text: str, path: Path, value: Any) -> str:
    """The text with a value at a path: in place of the one that is there, or as the last member of an object.

    A new member is laid out as its neighbours are: on a line of its own where they are, else on theirs.
    """
    places = spans(text)
    if path in places:
        span = places[path]
        return text[: span.begin] + _text(value, *_layout(text, places, path[:-1])) + text[span.end :]
    owner = places[path[:-1]]
    indent, step = _layout(text, places, path[:-1])
    comma = "," if owner.last > owner.begin + 1 else ""
    member = f"{json.dumps(path[-1])}: {_text(value, indent, step)}"
    gap = "" if indent is None and not comma else " " if indent is None else _newline(text) + indent
    closing = text[owner.last : owner.end]
    if not comma and indent is not None:
        closing = _newline(text) + indent[: len(indent) - len(step)] + "}"
    elif not comma:
        closing = "}"
    return text[: owner.last] + comma + gap + member + closing + text[owner.end :]


def drop(text: str, path: Path) -> str:
    """The text without one member of an object, which must be there, and without the comma that went with it."""
    places = spans(text)
    owner = places[path[:-1]]
    at, before, members = _skip(text, owner.begin + 1), owner.begin + 1, 0
    while True:
        end = _SCALAR.match(text, at).end()  # type: ignore[union-attr]
        key = json.loads(text[at:end])
        member: Path = (*path[:-1], key)
        last = places[member].end
        if key == path[-1]:
            break
        comma = _skip(text, last)
        at, before, members = _skip(text, comma + 1), last, members + 1
    if members:  # from the end of the one before, its comma included
        return text[:before] + text[last:]
    rest = _skip(text, last)
    return text[:at] + text[_skip(text, rest + 1) :] if text[rest] == "," else text[: owner.begin + 1] + text[rest:]


def _newline(text: str) -> str:
    return "\r\n" if "\r\n" in text else "\n"


def _layout(text: str, places: dict[Path, Span], owner: Path) -> tuple[str | None, str]:
    """Indent of the members of an object and what one level adds; ``None``: all on one line."""
    if "\n" not in text.strip():
        return None, ""
    span = places[()]
    first = re.compile(r"\s*").match(text, span.begin + 1)
    step = (first[0] if first else "").rpartition("\n")[2] or "  "
    inside = re.compile(r"[ \t]*\r?\n([ \t]*)\S").match(text, places[owner].begin + 1)
    return (inside[1] if inside and text[inside.end() - 1] not in "}]" else step * (len(owner) + 1)), step


def _text(value: Any, indent: str | None, step: str) -> str:
    if indent is None or not isinstance(value, (dict, list)):
        return json.dumps(value)
    lines = json.dumps(value, indent=step).split("\n")
    return ("\n" + indent).join(lines)
