"""Where each key of a JSON text stands, so that a value can be shown as it was written. Works on broken JSON as far as it goes."""

from __future__ import annotations

from itertools import islice

from hybridctl.patterns import late

_TOKEN = late(r'"(?:[^"\\\n]|\\.){0,10000}"|[{}\[\],:]|[^\s{}\[\],:"]{1,200}')
_MAX_KEYS, _MAX_TOKENS, _MAX_DEPTH = 20_000, 400_000, 30


def key_spans(text: str) -> dict[str, tuple[int, int]]:
    """Dotted path of a key → the span from the key's opening quote to the end of its value. Of a repeated key the last counts."""
    spans: dict[str, tuple[int, int]] = {}
    open_keys: list[tuple[str, int] | None] = []  # for each open bracket, the key that it is the value of
    path: list[str] = []
    key: tuple[str, int] | None = None
    last: tuple[str, int, int] | None = None
    for m in islice(_TOKEN.finditer(text), _MAX_TOKENS):
        token = m[0]
        if token == ":" and last is not None:
            key = (last[0], last[1])
        elif token in "{[":
            open_keys.append(key)
            path.append(key[0] if key else "")
            key = None
        elif token in "}]":
            opened = open_keys.pop() if open_keys else None
            if path:
                path.pop()
            if opened:
                _keep(spans, path, opened, m.end())
            key = None
        elif token == ",":
            key = None
        elif key is not None:
            _keep(spans, path, key, m.end())
            key = None
        last = (token.strip('"'), m.start(), m.end()) if token not in "{}[],:" else None
        if len(spans) > _MAX_KEYS:
            break
    return spans


def whole_part(text: str) -> str:
    """The text without its last value when a bracket is still open at the end: that value may be half a name or half a number."""
    depth, boundary = 0, 0
    for m in _TOKEN.finditer(text):
        if m[0] in "{[,":
            boundary = m.end()
        depth += 1 if m[0] in "{[" else -1 if m[0] in "}]" else 0
        if m[0] in "}]":
            boundary = m.end()
    return text[:boundary] if depth > 0 else text


def _keep(spans: dict[str, tuple[int, int]], path: list[str], key: tuple[str, int], end: int) -> None:
    if len(path) <= _MAX_DEPTH:
        spans[".".join([*(p for p in path if p), key[0]])] = (key[1], end)
