"""Which model classes each vLLM release registers, and which model types transformers knows, as read from released wheels.

From ``recipes/tables/vllm_architectures.toml`` and ``transformers_types.toml``; the first says how a release treats a name that
it lacks. All answers have three values: between two checked releases that differ nothing is known.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

from hybridctl.flags import Window, read_table
from hybridctl.versions import VersionSet, parse_condition, parse_version


def _windows(row: Sequence[str], checked: tuple[str, ...]) -> tuple[Window, ...]:
    """``[first, last, first, last, ...]`` as windows."""
    return tuple(Window(row[i] or None, row[i + 1] or None, checked) for i in range(0, len(row), 2))


def _any(answers: Iterable[bool | None]) -> bool | None:
    found = list(answers)
    return True if True in found else None if None in found else False


def _since(first: str, version: VersionSet | None, checked: tuple[str, ...]) -> bool | None:
    """Whether a version is from ``first`` on; an empty ``first`` is never."""
    return False if not first else Window(first, None, checked).holds(version) if version else None


@dataclass(frozen=True, slots=True)
class Registered:
    """A name that at least one checked release registers, with the spans of releases that do."""

    name: str
    windows: tuple[Window, ...]
    removed: bool
    """Whether a later registry names it as removed."""
    plugin: str
    """Address of the plugin that brings it back, or empty."""

    def holds(self, version: VersionSet) -> bool | None:
        return _any(window.holds(version) for window in self.windows)

    def releases_around(self, version: VersionSet) -> tuple[str | None, str | None]:
        """The nearest checked releases that have it, before and after a version that has it not."""
        before = [w.last for w in self.windows if w.last and version.within(parse_condition(f">{w.last}"))]
        after = [w.first for w in self.windows if w.first and version.within(parse_condition(f"<{w.first}"))]
        return (before[-1] if before else None), (after[0] if after else None)


@dataclass(frozen=True, slots=True)
class _Architectures:
    source: tuple[str, ...]
    checked: tuple[str, ...]
    seen: Mapping[str, list[str]]
    always: frozenset[str]
    removed: frozenset[str]
    plugins: Mapping[str, str]
    takes: Mapping[str, list[str]]
    checked_transformers: tuple[str, ...]
    endings: tuple[str, ...]
    fallback: tuple[Window, ...]
    wide: tuple[Window, ...]


@lru_cache(maxsize=1)
def _architectures() -> _Architectures:
    raw = read_table("vllm_architectures.toml")
    checked = tuple(raw["checked"])
    return _Architectures(
        tuple(raw["source"]),
        checked,
        raw["seen"],
        frozenset(raw["always"]),
        frozenset(raw["removed"]),
        raw["plugins"],
        raw["takes"],
        tuple(raw["checked_transformers"]),
        tuple(raw["endings"]),
        _windows(raw["fallback"], checked),
        _windows(raw["fallback_wide"], checked),
    )


@dataclass(frozen=True, slots=True)
class Alias:
    """Another name of a class: how both names begin. ``model_types``: the only ones that it holds for; empty: it holds for all."""

    old: str
    new: str
    vllm: str
    model_types: tuple[str, ...]
    reason: str
    source: tuple[str, ...]

    def of(self, name: str) -> str | None:
        """The class that serves a name; ``None`` for a name that the alias does not speak of."""
        return self.new + name.removeprefix(self.old) if name.startswith(self.old) else None

    def holds(self, version: VersionSet | None) -> bool | None:
        return None if version is None else version.within(parse_condition(self.vllm))


@lru_cache(maxsize=1)
def aliases() -> tuple[Alias, ...]:
    """Every alias of ``recipes/tables/architecture_aliases.toml``."""
    return tuple(
        Alias(r["old"], r["new"], r["vllm"], tuple(r["model_types"]), r["reason"], tuple(r["source"]))
        for r in read_table("architecture_aliases.toml")["alias"]
    )


def _aliases_of_any_type(vllm: str) -> list[Alias]:
    """The aliases that hold in a release, whatever the model type."""
    version = parse_version(vllm)
    return [alias for alias in aliases() if not alias.model_types and alias.holds(version) is True]


def alias_target(name: str, vllm: str) -> str:
    """The class by which a release knows a legacy name; empty for any other name."""
    if registered(name) is not None:
        return ""
    return next((new for alias in _aliases_of_any_type(vllm) if (new := alias.of(name)) is not None), "")


def alias_targets(known: Iterable[str], vllm: str) -> dict[str, str]:
    """Names that a release does not register, each with the registered class that stands for it, whatever the model type.

    Args:
        known: what it registers.
    """
    names = set(known)
    found: dict[str, str] = {}
    for alias in _aliases_of_any_type(vllm):
        for name in sorted(names):
            old = alias.old + name.removeprefix(alias.new)
            if name.startswith(alias.new) and old not in names:
                found[old] = name
    return found


@lru_cache(maxsize=1)
def _types() -> Mapping[str, Any]:
    return read_table("transformers_types.toml")


def registered(name: str) -> Registered | None:
    """The releases that register a class name; ``None`` when no checked release does."""
    table = _architectures()
    seen = ["", ""] if name in table.always else table.seen.get(name)
    if seen is None:
        return None
    return Registered(name, _windows(seen, table.checked), name in table.removed, table.plugins.get(name, ""))


def stands_in(name: str, vllm: VersionSet) -> bool | None:
    """Whether a registered class of the same stem and another ending may serve the name. ``None`` is: perhaps."""
    others = (row for other in same_stem(name) if (row := registered(other)))
    return False if all(row.holds(vllm) is False for row in others) else None


def same_stem(name: str) -> list[str]:
    """The name with each of the other endings that one class may stand in for another with; none for other names."""
    endings = _architectures().endings
    ending = next((e for e in endings if name.endswith(e)), None)
    return [] if ending is None else [name.removesuffix(ending) + e for e in endings if e != ending]


def backend_takes(name: str, vllm: VersionSet, transformers: VersionSet | None) -> bool | None:
    """Whether that vLLM serves a class that it lacks with the implementation in transformers (``auto_map`` not looked at).

    No before the backend came, and where the installed transformers has no such class, or one that the backend refuses.
    """
    table = _architectures()
    if _any(w.holds(vllm) for w in table.fallback) is False:
        return False
    row = table.takes.get(name)
    if row is None:
        return False
    narrow, wide = (_since(first, transformers, table.checked_transformers) for first in row)
    widened = _any(w.holds(vllm) for w in table.wide)
    if widened is None:
        return narrow if narrow is wide else None
    return wide if widened else narrow


def depends_on_transformers(name: str) -> bool:
    """Whether some transformers release has a class of that name which the backend takes."""
    return name in _architectures().takes


def has_backend(vllm: VersionSet) -> bool | None:
    """Whether that vLLM asks the Transformers backend about a class that it lacks."""
    return _any(w.holds(vllm) for w in _architectures().fallback)


def newest_registry() -> str:
    """The newest release whose registry was looked at."""
    return _architectures().checked[-1]


def type_window(model_type: str) -> Window | None:
    """The transformers releases that know a model type; ``None`` for types that the table does not speak of."""
    seen = _types()["seen"].get(model_type)
    return None if seen is None else _windows(seen, tuple(_types()["checked"]))[0]


def vllm_reads_type(model_type: str, vllm: VersionSet) -> bool | None:
    """Whether that vLLM brings a configuration class of its own for a type that :func:`type_window` knows."""
    own = _types()["own"].get(model_type)
    return False if own is None else _any(w.holds(vllm) for w in _windows(own, tuple(_types()["checked_vllm"])))


def types_source() -> tuple[str, ...]:
    """Where the model types can be read."""
    return tuple(_types()["source"])


def architectures_source() -> tuple[str, ...]:
    """Where the registries can be read."""
    return _architectures().source
