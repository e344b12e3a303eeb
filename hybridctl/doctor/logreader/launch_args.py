"""Arguments as engines print them: Python dicts and dataclass reprs, read without evaluating anything that is no literal."""

from __future__ import annotations

import ast
from collections.abc import Iterator

_OPEN, _CLOSE = "([{<", ")]}>"
_SECRET = ("api", "token", "secret", "password", "ssl")


def fields(text: str, separator: str) -> Iterator[tuple[str, str, str]]:
    """``(name, value text, the whole piece)`` of each top-level item of ``a=1, b=[2, 3]`` or ``'a': 1, 'b': [2, 3]``.

    Stops where the closing bracket of the whole would be, or where the text is cut off (the item that is cut is left out).
    """
    depth, start, quote, i = 0, 0, "", 0
    while i < len(text):
        c = text[i]
        if quote:
            if c == "\\":
                i += 1
            elif c == quote:
                quote = ""
        elif c in "'\"":
            quote = c
        elif c in _OPEN:
            depth += 1
        elif c in _CLOSE:
            if c == ">" and text[i - 1 : i] in "-=":
                i += 1
                continue
            if depth == 0:
                break
            depth -= 1
        elif c == "," and depth == 0:
            yield from _piece(text[start:i], separator)
            start = i + 1
        i += 1
    else:
        if depth or quote:
            return
    yield from _piece(text[start:i], separator)


def _piece(piece: str, separator: str) -> Iterator[tuple[str, str, str]]:
    piece = piece.strip()
    name, found, value = piece.partition(separator)
    name = name.strip().strip("'\"")
    if found and name.isidentifier():
        yield name, value.strip(), piece


def literal(text: str) -> object:
    """The value of a Python literal; text that is none comes back as it is."""
    if len(text) > 4096:
        return text
    try:
        return ast.literal_eval(text)
    except (ValueError, SyntaxError, MemoryError, RecursionError, TypeError):
        return text


def is_secret(name: str) -> bool:
    return any(part in name.lower() for part in _SECRET)


def flatten(name: str, value: object) -> Iterator[tuple[str, bool | int | float | str | list[str]]]:
    """A value as flags: tables by path, lists as lists of texts, ``None`` not at all."""
    if isinstance(value, dict):
        for key, inner in value.items():
            if isinstance(key, str):
                yield from flatten(f"{name}.{key}", inner)
    elif isinstance(value, (list, tuple, set)):
        yield name, [str(v) for v in value]
    elif isinstance(value, (bool, int, float, str)):
        yield name, value
