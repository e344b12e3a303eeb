"""What is known about a machine, an environment, a model and a launch line, each item with the place that says it.

A :class:`Facts` is a list of :class:`Fact`, nothing more: collectors and parsers add to it and never judge. Several places may
state one key; the more direct source wins (:data:`PRECEDENCE`), the others stay visible.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from typing import Any, TypeAlias

from hybridctl.doctor.facts.keys import KEYS as KEYS
from hybridctl.doctor.facts.keys import KeySpec as KeySpec
from hybridctl.doctor.facts.keys import Kind
from hybridctl.doctor.facts.keys import spec_of as spec_of

Scalar: TypeAlias = "bool | int | float | str"
Value: TypeAlias = "Scalar | list[str]"

# How directly a source speaks of the thing at hand, best first: what a process printed about itself beats what a person typed
# beside it, and that beats what a recipe says of such models in general.
PRECEDENCE = ("local", "log", "config", "command", "env", "stack", "model", "recipe")


@dataclass(frozen=True, slots=True)
class Origin:
    """Where a fact stands. ``quote`` is that text itself, so that a finding can show it."""

    source: str
    """One of :data:`PRECEDENCE`."""
    line: int | None = None
    """1-based line in that input, where lines exist."""
    quote: str = ""

    def __str__(self) -> str:
        return f"{self.source}:{self.line}" if self.line else self.source


@dataclass(frozen=True, slots=True)
class Fact:
    """One statement: ``key`` has ``value``, as ``origin`` says. Versions stay text, as written."""

    key: str
    value: Value
    origin: Origin


def shown(value: Value) -> str:
    """A value as evidence shows it."""
    return ", ".join(value) if isinstance(value, list) else str(value)


@dataclass
class Facts:
    """All statements, in the order in which they were found."""

    items: list[Fact] = field(default_factory=list)
    _by_key: dict[str, list[Fact]] = field(default_factory=dict, repr=False)

    def __post_init__(self) -> None:
        items, self.items = self.items, []
        self.extend(items)

    def add(self, key: str, value: Value, origin: Origin) -> None:
        """State a fact.

        Raises:
            KeyError: the key is not in :data:`KEYS`.
        """
        if spec_of(key) is None:
            raise KeyError(key)
        fact = Fact(key, value, origin)
        self.items.append(fact)
        self._by_key.setdefault(key, []).append(fact)

    def extend(self, facts: Iterable[Fact]) -> None:
        for fact in facts:
            self.add(fact.key, fact.value, fact.origin)

    def all(self, key: str) -> list[Fact]:
        """Every statement of a key, the most direct source first."""
        return sorted(self._by_key.get(key, []), key=lambda f: _rank(f.origin.source))

    def get(self, key: str) -> Fact | None:
        """The statement that counts, or ``None`` when nobody said anything."""
        found = self._by_key.get(key)
        return min(found, key=lambda f: _rank(f.origin.source)) if found else None

    def value(self, key: str) -> Value | None:
        fact = self.get(key)
        return fact.value if fact else None

    def has(self, prefix: str) -> bool:
        """Whether any key begins with ``prefix``."""
        return any(key.startswith(prefix) for key in self._by_key)

    def keys(self) -> list[str]:
        return list(self._by_key)

    def flags_known(self) -> bool:
        """Whether a launch line was seen, so that a flag that is not there is known to be unset."""
        whole = "command.form" in self._by_key and "command.partial" not in self._by_key
        return whole and self.value("command.form") not in ("pip", "bench")

    def __iter__(self) -> Iterator[Fact]:
        return iter(self.items)

    def __len__(self) -> int:
        return len(self.items)

    def to_json(self) -> dict[str, Any]:
        """The form that ``--facts`` writes and ``--env`` reads."""
        return {
            "schema_version": 1,
            "facts": [
                {
                    "key": f.key,
                    "value": f.value,
                    "source": f.origin.source,
                    "line": f.origin.line,
                    "quote": f.origin.quote,
                }
                for f in self.items
            ],
        }

    @classmethod
    def from_json(cls, document: Any) -> Facts:
        """Read what :meth:`to_json` wrote; keys of a newer version are skipped.

        Raises:
            ValueError: not such a document.
        """
        if (
            not isinstance(document, dict)
            or document.get("schema_version") != 1
            or not isinstance(document.get("facts"), list)
        ):
            raise ValueError("not a hybridctl facts document of schema_version 1")
        facts = cls()
        for row in document["facts"]:
            if not isinstance(row, dict) or not isinstance(row.get("key"), str):
                raise ValueError("a fact without a key")
            key, value = row["key"], row.get("value")
            spec = spec_of(key)
            if spec is None:
                continue
            if value is None or not _fits(value, spec.kind):
                raise ValueError(f"{key}: {value!r} is not a {spec.kind}")
            line = row.get("line")
            facts.add(
                key,
                value,
                Origin(
                    str(row.get("source", "env")), line if isinstance(line, int) else None, str(row.get("quote", ""))
                ),
            )
        return facts


def _rank(source: str) -> int:
    return PRECEDENCE.index(source) if source in PRECEDENCE else len(PRECEDENCE)


def _fits(value: object, kind: Kind) -> bool:
    if kind == "list":
        return isinstance(value, list) and all(isinstance(v, str) for v in value)
    if kind == "bool":
        return isinstance(value, bool)
    if kind == "number":
        return isinstance(value, (int, float)) and not isinstance(value, bool)
    if kind in ("str", "version", "text"):
        return isinstance(value, str)
    return isinstance(value, (bool, int, float, str)) or (
        isinstance(value, list) and all(isinstance(v, str) for v in value)
    )
