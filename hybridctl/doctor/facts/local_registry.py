"""The model classes that an installed vLLM registers, read from its registry as text: importing vLLM takes 17 to 40 s."""

from __future__ import annotations

import ast
import re
from pathlib import Path

from hybridctl.doctor.facts.local_read import regular_bytes
from hybridctl.patterns import late

REGISTRY = "model_executor/models/registry.py"
MAX_BYTES = 2 << 20
# One table of names at the top level: a single line, or from its opening brace to the closing one in the first column.
_TABLE = late(
    r"^(_?[A-Za-z]\w*)(?:[ \t]*:[^=\n]*)?[ \t]*=[ \t]*(\{[^\n]*\}(?=[ \t]*(?:#[^\n]*)?$)|\{.*?^\})",
    re.MULTILINE | re.DOTALL,
)
_ROOT = late(r"^ModelRegistry(?:[ \t]*:[^=\n]*)?[ \t]*=.*?\bin[ \t]+(\w+)\.items\(\)", re.MULTILINE | re.DOTALL)


def architectures(text: str) -> list[str] | None:
    """The names in the table that ``ModelRegistry`` is made of, in their order; ``None`` when it is built in another way.

    Only the tables themselves are parsed, which takes a third of the time of the whole file.
    """
    text = text.replace("\r\n", "\n")
    root = _ROOT.search(text)
    if root is None:
        return None
    reader = _Reader(dict(_TABLE.findall(text[: root.start()])))
    whole = reader.collect(root[1], ()) and reader.parts <= reader.done
    return list(reader.names) if whole and reader.names else None


class _Reader:
    """Follows a table to those that it unpacks."""

    def __init__(self, tables: dict[str, str]) -> None:
        self.tables = tables
        self.names: dict[str, None] = {}
        self.done: set[str] = set()
        self.parts: set[str] = set()
        """Tables of which some keys are taken once more: they name nothing new if the table itself is taken."""

    def collect(self, name: str, inside: tuple[str, ...]) -> bool:
        """Add the keys of a table. False when there is anything in it whose key can't be told from the text."""
        if name not in self.tables or name in inside:
            return False
        try:
            body = ast.parse(self.tables[name], mode="eval").body
        except (SyntaxError, ValueError, RecursionError, MemoryError):
            return False
        if not isinstance(body, ast.Dict):
            return False
        self.done.add(name)
        return all(self._item(key, value, (*inside, name)) for key, value in zip(body.keys, body.values, strict=True))

    def _item(self, key: ast.expr | None, value: ast.expr, inside: tuple[str, ...]) -> bool:
        if isinstance(key, ast.Constant) and isinstance(key.value, str):
            self.names[key.value] = None
            return True
        if key is not None:
            return False
        if isinstance(value, ast.Name):
            return self.collect(value.id, inside)
        if (part := _part_of(value)) is not None:
            self.parts.add(part)
            return True
        return False


def _part_of(value: ast.expr) -> str | None:
    """The table of ``{k: ... for k, ... in TABLE.items() ...}``."""
    if not isinstance(value, ast.DictComp) or len(value.generators) != 1 or not isinstance(value.key, ast.Name):
        return None
    source, target = value.generators[0].iter, value.generators[0].target
    first = target.elts[0] if isinstance(target, ast.Tuple) and target.elts else None
    if not (isinstance(first, ast.Name) and first.id == value.key.id):
        return None
    if not (isinstance(source, ast.Call) and isinstance(source.func, ast.Attribute) and source.func.attr == "items"):
        return None
    return source.func.value.id if isinstance(source.func.value, ast.Name) else None


def read_registry(package: Path) -> list[str] | None:
    """The same of the vLLM whose package folder this is; ``None`` when its registry is not there or can't be read."""
    data = regular_bytes(package / REGISTRY, MAX_BYTES)
    return architectures(data.decode("utf-8", "replace")) if isinstance(data, bytes) else None
