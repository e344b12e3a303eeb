"""Which flags `vllm serve` takes in which release, from ``recipes/tables/vllm_flags.toml`` (read from released wheels)."""

from __future__ import annotations

import difflib
from collections.abc import Mapping
from dataclasses import dataclass
from functools import lru_cache

from packaging.version import Version

from hybridctl.data import read_table as read_table
from hybridctl.versions import VersionSet, parse_condition


@dataclass(frozen=True, slots=True)
class Window:
    """The releases that have something, as far as they were looked at.

    ``first`` and ``last`` are the outermost checked releases that have it; ``None`` means it is in the oldest (newest) one
    checked, so that older (newer) ones may have it too.
    """

    first: str | None
    last: str | None
    checked: tuple[str, ...]

    def holds(self, version: VersionSet) -> bool | None:
        """Whether that version has it: no only where a checked release on the same side has it not."""
        if self.first is not None:
            before = [v for v in self.checked if Version(v) < Version(self.first)]
            if before and version.within(parse_condition(f"<={before[-1]}")):
                return False
        if self.last is not None:
            after = [v for v in self.checked if Version(v) > Version(self.last)]
            if after and version.within(parse_condition(f">={after[0]}")):
                return False
        low, high = self.first or self.checked[0], self.last or self.checked[-1]
        return True if version.within(parse_condition(f">={low},<={high}")) else None

    @property
    def absent_before(self) -> str | None:
        """The newest checked release before it came."""
        return None if self.first is None else self._neighbour(self.first, -1)

    @property
    def absent_from(self) -> str | None:
        """The oldest checked release after it went."""
        return None if self.last is None else self._neighbour(self.last, 1)

    def _neighbour(self, version: str, step: int) -> str | None:
        i = self.checked.index(version) + step
        return self.checked[i] if 0 <= i < len(self.checked) else None


@dataclass(frozen=True, slots=True)
class _Table:
    checked: tuple[str, ...]
    switches: frozenset[str]
    short: Mapping[str, str]
    flags: Mapping[str, list[str]]


@lru_cache(maxsize=1)
def _table() -> _Table:
    raw = read_table("vllm_flags.toml")
    return _Table(tuple(raw["checked"]), frozenset(raw["switches"]), raw["short"], raw["flags"])


def flag_window(name: str) -> Window | None:
    """The releases that take ``--name`` (long kebab-case, without dashes); ``None`` when no checked release does."""
    table = _table()
    seen = table.flags.get(name)
    return None if seen is None else Window(seen[0] or None, seen[1] or None, table.checked)


def is_switch(name: str) -> bool:
    """Whether the flag takes no value in at least one release."""
    return name in _table().switches


def long_name(short: str) -> str | None:
    """The long name of a short flag such as ``-tp``, or ``None``."""
    return _table().short.get(short)


def abbreviates(name: str) -> list[str]:
    """Flags that begin with ``name``: argparse takes a unique beginning for the whole."""
    return [flag for flag in _table().flags if flag.startswith(name)]


def nearest_flags(name: str, count: int = 3) -> list[str]:
    """Flags that look alike, best first."""
    return difflib.get_close_matches(name, list(_table().flags), count, 0.72)


def newest_checked() -> str:
    """The newest release that was looked at."""
    return _table().checked[-1]


@dataclass(frozen=True, slots=True)
class Module:
    """A module of vLLM that ``python -m`` can start."""

    name: str
    window: Window
    gone: str
    replacement: str
    note: str
    source: tuple[str, ...]


@lru_cache(maxsize=1)
def modules() -> Mapping[str, Module]:
    """Startable modules by name."""
    checked = _table().checked
    return {
        name: Module(
            name,
            Window(row["seen"][0] or None, row["seen"][1] or None, checked),
            row.get("gone", ""),
            row.get("replacement", ""),
            row.get("note", ""),
            tuple(row["source"]),
        )
        for name, row in read_table("vllm_modules.toml")["module"].items()
    }


@dataclass(frozen=True, slots=True)
class Hint:
    """What to write instead of a flag: ``use`` may be empty; ``of`` names the program whose flag it is."""

    use: str = ""
    why: str = ""
    of: str = ""


@lru_cache(maxsize=1)
def hints() -> Mapping[str, Hint]:
    """Hints by the flag that vLLM does not take."""
    return {name: Hint(**row) for name, row in read_table("vllm_flag_hints.toml")["flag"].items()}
