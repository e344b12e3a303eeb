"""Versions as people write them, compared in three values.

A bug report says ``~0.10.2``, ``>=0.20``, ``docker (torch 2.13.0+cu129)`` or ``0.1.dev20073+g8e685d198``. Each text becomes a
set of versions: a point, a range, or nothing at all when it names no release. A condition is a set too, so the answer to
"is it older than 0.29?" is yes, no, or unknown. Ordering is that of PEP 440; a local part (``+cu129``) is kept but never
compared.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from functools import lru_cache

from packaging.version import InvalidVersion, Version


@dataclass(frozen=True, slots=True)
class Interval:
    """Versions from ``low`` to ``high``; ``None`` is without end on that side."""

    low: Version | None = None
    low_closed: bool = True
    high: Version | None = None
    high_closed: bool = False

    def is_empty(self) -> bool:
        if self.low is None or self.high is None:
            return False
        return self.low > self.high or (self.low == self.high and not (self.low_closed and self.high_closed))

    def intersect(self, other: Interval) -> Interval:
        low, low_closed = _tighter_low(self, other)
        high, high_closed = _tighter_high(self, other)
        return Interval(low, low_closed, high, high_closed)

    def covers(self, other: Interval) -> bool:
        return self.intersect(other) == other


def _tighter_low(a: Interval, b: Interval) -> tuple[Version | None, bool]:
    if a.low is None or (b.low is not None and b.low > a.low):
        return b.low, b.low_closed
    if b.low is None or a.low > b.low:
        return a.low, a.low_closed
    return a.low, a.low_closed and b.low_closed


def _tighter_high(a: Interval, b: Interval) -> tuple[Version | None, bool]:
    if a.high is None or (b.high is not None and b.high < a.high):
        return b.high, b.high_closed
    if b.high is None or a.high < b.high:
        return a.high, a.high_closed
    return a.high, a.high_closed and b.high_closed


@dataclass(frozen=True, slots=True)
class VersionSet:
    """A union of intervals, with the text that it came from.

    ``local`` is the local part of a point version (``cu129`` of ``2.13.0+cu129``), else ``None``.
    """

    intervals: tuple[Interval, ...]
    text: str = ""
    local: str | None = None

    def within(self, condition: VersionSet) -> bool | None:
        """True: all of it satisfies the condition. False: none of it does. None: that is not known."""
        pieces = [(i, [i.intersect(c) for c in condition.intervals]) for i in self.intervals]
        if all(all(p.is_empty() for p in hits) for _, hits in pieces):
            return False
        if all(any(c.covers(i) for c in condition.intervals) for i in self.intervals):
            return True
        return None

    @property
    def exact(self) -> Version | None:
        """The one version that this names, or ``None`` for a range."""
        if len(self.intervals) != 1:
            return None
        i = self.intervals[0]
        return i.low if i.low is not None and i.low == i.high else None

    @property
    def lowest(self) -> Version | None:
        """The oldest version that this may be; ``None`` when it is open downwards."""
        lows = [i.low for i in self.intervals]
        return None if not lows or any(low is None for low in lows) else min(low for low in lows if low is not None)


# PEP 440 without its epoch; a git describe tail in the local part is common ("3.5.0+git7416ffcb").
_VERSION = re.compile(
    r"v?(?P<v>\d+(?:\.\d+)*(?:[._-]?(?:a|b|rc|alpha|beta|pre)[._-]?\d*)?(?:[.-]?post[.-]?\d*)?(?:[.-]?dev\d*)?)"
    r"(?:\+(?P<local>[A-Za-z0-9._-]+))?",
    re.IGNORECASE | re.ASCII,
)
_COMMIT = re.compile(r"g[0-9a-f]{6,40}(?:\.|$)")  # "+ge962733e0", as git describe and setuptools-scm write it
_SERIES = re.compile(r"v?(\d+(?:\.\d+)*)\.[xX*](?!\w)", re.ASCII)
_CLAUSE = re.compile(r"(>=|<=|==|!=|~=|<|>|=)\s*v?(\d[0-9A-Za-z.*+-]*)", re.ASCII)
_CUDA_TAG = re.compile(r"\s*\((cu\d{2,3})\)", re.ASCII)  # "0.18.1rc1 (cu132)"
_SPAN = re.compile(r"v?(\d+(?:\.\d+)+)\s*(?:-|–|\.\.|to)\s*v?(\d+(?:\.\d+)+)(?![\w.])", re.ASCII)


def _point(version: Version, local: str | None, text: str) -> VersionSet:
    return VersionSet((Interval(version, True, version, True),), text, local)


def _series(release: tuple[int, ...]) -> Interval:
    """``0.11`` or ``535`` as a series: every version that begins so."""
    upper = (*release[:-1], release[-1] + 1)
    return Interval(Version(".".join(map(str, release))), True, Version(".".join(map(str, upper)) + ".dev0"), False)


def _next_minor(version: Version) -> Version:
    """Where the main branch is heading: 437 commits after 0.28.1rc0 are older than 0.29.0, yet hold part of what it will ship."""
    major, minor = (*version.release, 0)[:2]
    return Version(f"{major}.{minor + 1}.0.dev0")


def _is_untagged(version: Version) -> bool:
    """Builds without a tag in reach say 0.1.dev20073 or 0.0.0.dev1: that orders before everything and means nothing."""
    return (
        version.is_devrelease
        and version.release[:1] == (0,)
        and not any(version.release[2:])
        and version.release[1:2] in ((), (0,), (1,))
    )


@lru_cache(maxsize=4096)
def parse_version(text: str) -> VersionSet | None:
    """The set of versions that a person's text names, or ``None`` when it names none.

    One or two numbers (``535``, ``12.8``, ``0.11``) are a series. Prose, "latest", "nightly" and untagged builds are ``None``.
    """
    text = text.strip().strip("'\"")
    if not text or len(text) > 200:
        return None
    if _CLAUSE.match(text):
        try:
            return parse_condition(text, stated=True)
        except ValueError:
            return None
    if text[0] == "~" and (m := _VERSION.match(text[1:].lstrip(" ="))):
        base = Version(m["v"])
        return VersionSet((Interval(base, True, _series(base.release[:2]).high, False),), text)
    if m := _SERIES.match(text):
        return VersionSet((_series(tuple(map(int, m[1].split(".")))),), text)
    if m := _SPAN.match(text):
        low, high = Version(m[1]), _series(tuple(map(int, m[2].split("."))))
        return VersionSet((Interval(low, True, high.high, False),), text)
    m = _VERSION.match(text)
    if not m:
        return None
    tail = text[m.end() :]
    if tail[:1] not in ("", " ", "(", ",", ";", "-", "/", "+"):  # "16.4606 GB" is caught by callers, "2024abc" here
        return None
    try:
        version = Version(m["v"].rstrip(".-"))
    except InvalidVersion:
        return None
    if _is_untagged(version):
        return None
    local = m["local"] or ((cuda := _CUDA_TAG.match(tail)) and cuda[1]) or None
    if version.is_devrelease and _COMMIT.match(local or ""):
        return VersionSet((Interval(version, True, _next_minor(version), True),), text, local)
    release_only = version.public == ".".join(map(str, version.release))
    if release_only and len(version.release) <= 2:
        return VersionSet((_series(version.release),), text, local)
    return _point(version, local, text)


@lru_cache(maxsize=4096)
def parse_condition(spec: str, stated: bool = False) -> VersionSet:
    """A condition such as ``>=0.29,<0.30`` or ``<0.10 || ==0.12.*`` as a set.

    ``==`` with at most two numbers, or with ``.*``, means the series. ``>=0.29`` holds for candidates of 0.29 too, since they have
    what 0.29 brings; not so when the text is what a person ``stated`` of an installation.

    Raises:
        ValueError: a clause can't be read.
    """
    union: list[Interval] = []
    for part in spec.split("||"):
        alternatives = [Interval()]
        clauses = [c.strip() for c in part.split(",") if c.strip()]
        if not clauses:
            raise ValueError(f"empty version condition in {spec!r}")
        for clause in clauses:
            m = _CLAUSE.fullmatch(clause.split(" (")[0].strip())
            if not m:
                raise ValueError(f"can't read {clause!r} in the version condition {spec!r}")
            bounds = _clause_intervals(m[1], m[2].split("+")[0], stated)
            alternatives = [i for a in alternatives for b in bounds if not (i := a.intersect(b)).is_empty()]
        union += alternatives
    return VersionSet(tuple(union), spec)


def _clause_intervals(operator: str, number: str, stated: bool) -> list[Interval]:
    wildcard = number.endswith(".*")
    try:
        version = Version(number[:-2] if wildcard else number)
    except InvalidVersion as error:
        raise ValueError(f"{number!r} is not a version") from error
    if operator in ("==", "=", "!="):
        short = wildcard or (len(version.release) <= 2 and version.public == ".".join(map(str, version.release)))
        same = _series(version.release) if short else Interval(version, True, version, True)
        if operator != "!=":
            return [same]
        return [Interval(high=same.low), Interval(low=same.high, low_closed=not same.high_closed)]
    if operator == "~=":
        return [Interval(version, True, _series(version.release[:-1] or version.release).high, False)]
    final = version.public == ".".join(map(str, version.release))
    first = Version(f"{version.public}.dev0") if final else version
    if operator == ">=":
        return [Interval(low=version if stated else first)]
    if operator == ">":
        return [Interval(low=version, low_closed=False)]
    if operator == "<=":
        return [Interval(high=version, high_closed=True)]
    return [Interval(high=first if stated else version)]
