"""What ``hybridctl verify`` found, and its verdict in plain sentences."""

from __future__ import annotations

import itertools
from dataclasses import asdict, dataclass, field
from typing import Any

from hybridctl.runtime.answers import Agreement
from hybridctl.runtime.perplexity import MARGIN, Part, Perplexity
from hybridctl.runtime.routing_probe import Row

CLOSE, HALF = 1e-3, 0.25
"""Largest difference of log-probabilities that passes: of float32, of half types."""
JUMP = 1.5
"""A rise of perplexity from one range of positions to a later one that the text does not explain: windows are of one kind, and
longer contexts make each easier."""
EXACT = {"thresholds halved", "thresholds doubled"}
"""Beside these, a routing that is the best one was trained for; beside others it may still be near the one that was."""


@dataclass(frozen=True)
class Fibonacci:
    """The Fibonacci prompt and how the server goes on, greedily; ``other``: how the second server does."""

    prompt: str
    answer: str
    other: str | None = None


@dataclass(frozen=True)
class Comparison:
    """Answers of the server beside those of a second one, which reads the same tokens.

    Attributes:
        name: ``--no-hybrid``, or its address.
        routed: whether it counts kernels, so has a dispatcher too.
        first: the first linear position of the server under test.
        below: tokens that positions before ``first`` compute: no dispatcher may change them. None: there are none.
        above: the rest, which differ where only one of the two routes.
    """

    name: str
    routed: bool
    first: int
    below: Agreement | None
    above: Agreement | None

    @property
    def agrees(self) -> bool:
        must = (self.below, self.above) if self.routed else (self.below,)
        return all(a is None or near(a) for a in must)

    def verdict(self) -> str:
        """A plain sentence."""
        bad = next(
            (a for a in (self.below, self.above if self.routed else None) if a is not None and not near(a)), None
        )
        if bad is not None:
            where = f"below position {self.first}" if bad is self.below else f"from position {self.first} on"
            return f"does NOT match {self.name} {where}: {apart(bad)}"
        if self.routed:
            worst = max(a.worst for a in (self.below, self.above) if a is not None)
            return f"answers as {self.name} does, to {worst:.1e}"
        same = (
            "" if self.below is None else f"matches {self.name} to {self.below.worst:.1e} below position {self.first}"
        )
        if self.above is None:
            return same or f"nothing to compare with {self.name}"
        changed = f"linear attention changes {self.above.different} of {self.above.tokens} tokens from there on"
        return f"{same}; {changed}" if same else changed.replace("there", f"position {self.first}")


@dataclass
class Report:
    """What was found. ``skipped`` says in words what could not be looked at."""

    url: str
    model: str
    rule: list[str] = field(default_factory=list)
    rows: list[Row] = field(default_factory=list)
    fibonacci: Fibonacci | None = None
    agreement: Agreement | None = None
    comparison: Comparison | None = None
    perplexities: list[Perplexity] = field(default_factory=list)
    windows: int = 0
    skipped: list[str] = field(default_factory=list)

    @property
    def routed_right(self) -> bool:
        return bool(self.rows) and all(row.right for row in self.rows)

    @property
    def agrees(self) -> bool | None:
        """With the reference; None where it was not asked."""
        return None if self.agreement is None else near(self.agreement)

    @property
    def served(self) -> Perplexity | None:
        return next((p for p in self.perplexities if p.served), None)

    @property
    def others(self) -> list[Perplexity]:
        return [p for p in self.perplexities if not p.served]

    def loss(self) -> tuple[Perplexity, Part, Part] | None:
        """(other routing, its part, the served part) where the served routing loses most, surely and by more than the margin: over
        everything from the first linear position on or, failing that, over one range."""
        if self.served is None:
            return None
        whole = [(p, p.whole, self.served.whole) for p in self.others]
        parts = [(p, *pair) for p in self.others for pair in zip(p.parts, self.served.parts, strict=True)]
        for found in (whole, parts):
            worse = [row for row in found if row[1].factor is not None and row[1].factor[2] < 1 / MARGIN]
            if worse:
                return min(worse, key=lambda row: row[1].factor or (1.0, 1.0, 1.0))
        return None

    def jump(self) -> tuple[Part, Part] | None:
        """(a range, a later one) between which the served perplexity jumps, where nothing closer to the routing was compared."""
        if self.served is None or {p.name for p in self.others} >= EXACT:
            return None
        pairs = [(a, b) for a, b in itertools.combinations(self.served.parts, 2) if b.value > JUMP * a.value]
        return max(pairs, key=lambda pair: pair[1].value / pair[0].value) if pairs else None

    @property
    def trained(self) -> bool | None:
        """Whether the served routing is the best of those compared; None where none was, or the intervals don't say."""
        factors = [p.whole.factor for p in self.others]
        if self.loss() is not None:
            return False
        if self.jump() is not None:
            return None
        return True if factors and all(f is not None and f[1] > 1 for f in factors) else None

    @property
    def passed(self) -> bool:
        same = self.comparison is None or self.comparison.agrees
        return self.routed_right and self.agrees is not False and same and self.trained is not False

    def verdict(self) -> list[str]:
        """Plain sentences."""
        wrong = [row for row in self.rows if not row.right]
        lines = ["routing as configured"]
        if not self.routed_right:
            lines = [f"NOT routed as configured: {len(wrong)} of {len(self.rows)} prompts"]
        if self.agreement is not None:
            kind = "" if self.agreement.worst <= CLOSE else ", as half precision does"
            good = f"matches the reference to {self.agreement.worst:.1e}{kind}"
            lines.append(good if self.agrees else f"does NOT match the reference: {apart(self.agreement)}")
        if self.comparison is not None:
            lines.append(self.comparison.verdict())
        if self.served is not None and (self.others or self.jump() is not None):
            lines.append(self._training(self.served))
        return lines

    def _training(self, served: Perplexity) -> str:
        if (loss := self.loss()) is not None:
            other, better, own = loss
            where = f"from position {own.start} on" if own == served.whole else f"at positions {own.place}"
            return (
                "this checkpoint was not trained for this routing: "
                f"perplexity rises from {better.value:.2f} ({other.name}) to {own.value:.2f} {where}"
            )
        told = ", ".join(f"{p.name} {p.whole.value:.2f}" for p in self.others) or "no other routing was measured"
        here = f"perplexity {served.whole.value:.2f} from position {served.whole.start} on"
        if (jump := self.jump()) is not None:
            a, b = jump
            return (
                f"perplexity jumps from {a.value:.2f} at positions {a.place} to {b.value:.2f} at {b.place}: "
                f"this checkpoint may not have been trained for this routing; {here}; {told}"
            )
        if self.trained is None:
            few = "s do" if self.windows != 1 else " does"
            return f"whether it was trained for this routing, {self.windows} window{few} not tell: {here}; {told}"
        if {p.name for p in self.others} >= EXACT:
            return f"trained for this routing: {here}; otherwise routed: {told}"
        return f"this routing is the better one: {here}; {told}"

    def to_json(self) -> dict[str, Any]:
        """The document of ``--json``."""
        return {
            "schema_version": 1,
            "url": self.url,
            "model": self.model,
            "rule": self.rule,
            "routing": [
                {
                    "length": r.length,
                    "place": r.place,
                    "last": r.last,
                    "expected_last": r.expected_last,
                    "counted": r.shares,
                    "expected": r.expected,
                    "right": r.right,
                }
                for r in self.rows
            ],
            "fibonacci": None if self.fibonacci is None else asdict(self.fibonacci),
            "reference": None if self.agreement is None else asdict(self.agreement),
            "against": None
            if self.comparison is None
            else {**asdict(self.comparison), "agrees": self.comparison.agrees},
            "windows": self.windows,
            "perplexity": [
                {"routing": p.name, "served": p.served, **_part(p.whole), "ranges": [_part(part) for part in p.parts]}
                for p in self.perplexities
            ],
            "skipped": self.skipped,
            "trained": self.trained,
            "passed": self.passed,
            "verdict": self.verdict(),
        }


def near(a: Agreement) -> bool:
    return a.different == 0 and a.worst <= HALF


def apart(a: Agreement) -> str:
    return f"{a.different} of {a.tokens} tokens differ, log-probabilities by up to {a.worst:.2g}"


def _part(part: Part) -> dict[str, Any]:
    return {"positions": [part.start, part.end - 1], "value": part.value, "factor": part.factor}
