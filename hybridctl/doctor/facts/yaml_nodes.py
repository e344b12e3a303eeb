"""YAML as a tree whose every value knows its place in the text. Never raises; what can't be read is no tree."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, TypeAlias

from hybridctl.doctor.facts.shell import Word, split_commands

MAX_YAML = 65_536
Node: TypeAlias = Any  # yaml.Node; PyYAML ships no types and is imported only when YAML is at hand
_MAX_NODES = 20_000
_MAX_PLAIN = 2_000


def documents(text: str, offset: int, end: int) -> list[Node]:
    """The root nodes of ``text[offset:end]``; those before an error when there is one."""
    import yaml  # type: ignore[import-untyped]

    roots: list[Node] = []
    try:
        for root in yaml.compose_all(text[offset : min(end, offset + MAX_YAML)], Loader=yaml.SafeLoader):
            if root is not None:
                roots.append(root)
    except (yaml.YAMLError, RecursionError, ValueError):
        return roots
    return roots


def kind(node: Node) -> str:
    """``mapping``, ``sequence``, ``scalar``, or nothing."""
    return getattr(node, "id", "") if node is not None else ""


def pairs(node: Node) -> list[tuple[Node, Node]]:
    """The entries of a mapping whose keys are plain."""
    return [(k, v) for k, v in node.value if kind(k) == "scalar"] if kind(node) == "mapping" else []


def get(node: Node, *path: str) -> Node:
    """The value at a path of keys, or ``None``."""
    for name in path:
        node = next((v for k, v in pairs(node) if k.value == name), None)
    return node


def items(node: Node) -> list[Node]:
    return list(node.value) if kind(node) == "sequence" else []


def scalar(node: Node) -> str | None:
    """Text of a scalar; ``None`` for null and for anything else."""
    if kind(node) != "scalar" or node.tag == "tag:yaml.org,2002:null":
        return None
    return str(node.value)


def walk(root: Node) -> Iterator[Node]:
    """Every mapping of a tree, each once."""
    stack: list[Node] = [root]
    seen: set[int] = set()
    while stack and len(seen) < _MAX_NODES:
        node = stack.pop()
        if id(node) in seen:
            continue
        seen.add(id(node))
        if kind(node) == "mapping":
            yield node
            stack += [v for _, v in reversed(node.value)]
        elif kind(node) == "sequence":
            stack += reversed(node.value)


def plain(node: Node) -> Any:
    """A tree as Python values; of the plain scalars, truth values and whole numbers are read, others stay text.

    Aliases can make a short text an endless tree: after :data:`_MAX_PLAIN` nodes the rest is null.
    """
    return _plain(node, 0, [_MAX_PLAIN])


def _plain(node: Node, depth: int, budget: list[int]) -> Any:
    budget[0] -= 1
    if depth > 12 or budget[0] < 0:
        return None
    if kind(node) == "mapping":
        return {k.value: _plain(v, depth + 1, budget) for k, v in pairs(node)[:200]}
    if kind(node) == "sequence":
        return [_plain(v, depth + 1, budget) for v in items(node)[:200] if budget[0] > 0]
    text = scalar(node)
    if text is None or node.style is not None:
        return text
    if text.lower() in ("true", "false"):
        return text.lower() == "true"
    return int(text) if text.isdecimal() and len(text) < 19 else text


def word(node: Node, offset: int) -> Word:
    """A scalar as one word; of anything else only the place, as its text would unfold every alias."""
    return Word(
        str(node.value) if kind(node) == "scalar" else "", offset + node.start_mark.index, offset + node.end_mark.index
    )


def words(node: Node, text: str, offset: int) -> list[Word]:
    """The words of a ``command:``, given as a list or as one text."""
    if kind(node) == "sequence":
        return [word(n, offset) for n in items(node) if kind(n) == "scalar"]
    if scalar(node) is None:
        return []
    start, end = offset + node.start_mark.index, offset + node.end_mark.index
    source = text[start:end]
    if node.style in ("|", ">"):
        start += source.find("\n") + 1
    elif node.style in ("'", '"'):
        if "\\" in source or "''" in source:
            return [Word(w.value, start, end) for c in split_commands(str(node.value), newline_ends=False) for w in c]
        start, end = start + 1, end - 1
    return [w for command in split_commands(text, start, end, newline_ends=False) for w in command]
