"""Reads a table of unchecked JSON field by field; every complaint names the field and what is allowed there."""

from __future__ import annotations

import math
from collections.abc import Iterable
from difflib import get_close_matches
from typing import Any, NoReturn

from hybridctl.errors import UsageError

_SHOWN = 60


class ConfigError(UsageError):
    """A field of a configuration that can't be used. One line: path, what is wrong, what is allowed."""

    def __init__(self, path: str, problem: str) -> None:
        super().__init__(f"{path}: {problem}")
        self.path = path


def show(value: object) -> str:
    """A foreign value in one short line of printable characters."""
    if isinstance(value, int) and not isinstance(value, bool) and abs(value) >= 10**30:
        return "a number of more than 30 digits"
    if isinstance(value, (dict, list, tuple)):
        return f"a {'table' if isinstance(value, dict) else 'list'} of {len(value)}"
    if value is None or isinstance(value, bool):
        return {None: "null", True: "true", False: "false"}[value]
    text = ascii(value[: _SHOWN * 2]) if isinstance(value, str) and not value.isprintable() else repr(value)
    return text if len(text) <= _SHOWN else text[:_SHOWN] + "…"


class Fields:
    """A table under a path. Keys that are not known are refused at once, each with the nearest known one.

    Raises:
        ConfigError: from every method.
    """

    def __init__(self, document: object, path: str, known: Iterable[str]) -> None:
        self.path, self.known = path, tuple(known)
        if not isinstance(document, dict):
            raise ConfigError(path, f"is {show(document)}; allowed: a table")
        self.values: dict[str, Any] = document
        unknown = [key for key in document if key not in self.known]
        if unknown:
            raise ConfigError(
                path, "unknown " + ", ".join(self._near(key) for key in unknown[:5]) + self._more(unknown)
            )

    def _near(self, key: object) -> str:
        near = get_close_matches(str(key)[:_SHOWN], self.known, 1, 0.5)
        return f"{show(key)} (did you mean {near[0]}?)" if near else show(key)

    def _more(self, unknown: list[Any]) -> str:
        more = f" and {len(unknown) - 5} more" if len(unknown) > 5 else ""
        return f"{more}; allowed: {', '.join(self.known)}"

    def __contains__(self, key: str) -> bool:
        return key in self.values

    def get(self, key: str) -> Any:
        return self.values.get(key)

    def fail(self, key: str, problem: str) -> NoReturn:
        raise ConfigError(f"{self.path}.{key}", problem)

    def refuse(self, key: str, why: str) -> None:
        """Refuse a field that must not be there."""
        if key in self.values:
            self.fail(key, why)

    def one_of(self, key: str, value: object, allowed: tuple[str, ...]) -> str:
        if not isinstance(value, str) or value not in allowed:
            near = get_close_matches(value[:_SHOWN], allowed, 1, 0.6) if isinstance(value, str) else []
            hint = f" (did you mean {near[0]}?)" if near else ""
            shown = ", ".join(a if a.isprintable() and len(a) <= _SHOWN else show(a) for a in allowed[:20])
            self.fail(key, f"is {show(value)}{hint}; allowed: {shown}")
        return value

    def choice(self, key: str, allowed: tuple[str, ...], default: str | None) -> str:
        """One of ``allowed``; needed where there is no default."""
        if key not in self.values:
            if default is None:
                self.fail(key, f"missing; allowed: {', '.join(allowed[:20])}")
            return default
        return self.one_of(key, self.values[key], allowed)

    def integer(self, key: str, least: int, most: int) -> int:
        return self._integer(key, self.values.get(key), least, most)

    def _integer(self, key: str, value: object, least: int, most: int) -> int:
        if isinstance(value, bool) or not isinstance(value, int) or not least <= value <= most:
            self.fail(key, f"is {show(value)}; allowed: a whole number from {least} to {most}")
        return value

    def number(self, key: str, least: float, most: float, default: float) -> float:
        value = self.values.get(key, default)
        if isinstance(value, bool) or not isinstance(value, (int, float)) or not least <= value <= most:
            self.fail(key, f"is {show(value)}; allowed: {least:g} to {most:g}")
        return math.fabs(value)  # no -0.0

    def text(self, key: str) -> str:
        value = self.values.get(key)
        if not isinstance(value, str) or not value.strip():
            self.fail(key, f"is {show(value)}; allowed: text" if key in self.values else "missing; allowed: text")
        return value

    def items(self, key: str, least: int, most: int) -> list[Any]:
        value = self.values.get(key)
        count = str(least) if least == most else f"{least} to {most}"
        if not isinstance(value, list) or not least <= len(value) <= most:
            self.fail(key, f"is {show(value)}; allowed: a list of {count}")
        return value

    def indices(self, key: str, count: int, what: str, value: object = None) -> frozenset[int]:
        """Places below ``count``, each at most once; of the field itself, or of ``value`` that stands in it."""
        value = self.values.get(key) if value is None else value
        if not isinstance(value, list) or len(value) > count:
            self.fail(key, f"is {show(value)}; allowed: a list of {what} numbers from 0 to {count - 1}")
        found = [self._integer(f"{key}[{i}]", each, 0, count - 1) for i, each in enumerate(value)]
        if len(set(found)) != len(found):
            self.fail(key, f"names a {what} twice; allowed: each once")
        return frozenset(found)

    def table(self, key: str, known: tuple[str, ...], index: int | None = None) -> Fields:
        """The table in a field, or with ``index`` in a list: ``key`` is then ``field[index]``."""
        value = self.values[key] if index is None else self.values[key.split("[")[0]][index]
        return Fields(value, f"{self.path}.{key}", known)
