"""The condition of a compute unit as a tree: what it holds for, what it becomes once some names are known, where it may change.

``position`` (tokens before this one) and ``seqlen`` (the length that routes, see :mod:`hybridctl.runtime.hybrid_config`) are one
variable to the planner, called the *value*; ``entropy`` is the score of the position, 0 to 1; ``head`` is the KV group over all
ranks; ``layer`` counts from 0. A comparison sets one name against one number, so that a condition changes at finitely many values.
:mod:`hybridctl.runtime.condition_parser` makes the tree; ``str`` of a tree is text that parses to the same tree.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from decimal import Decimal

NAMES = ("seqlen", "position", "entropy", "head", "layer")


@dataclass(frozen=True, slots=True)
class Constant:
    value: bool

    def __str__(self) -> str:
        return "true" if self.value else "false"


@dataclass(frozen=True, slots=True)
class Comparison:
    """``name % modulus operator number``; ``modulus`` 0 means none."""

    name: str
    operator: str
    number: float
    modulus: int = 0

    def __str__(self) -> str:
        return f"{_term(self.name, self.modulus)} {self.operator} {show_number(self.number)}"


@dataclass(frozen=True, slots=True)
class Member:
    """``name % modulus in numbers``; numbers sorted, each once."""

    name: str
    numbers: tuple[int, ...]
    modulus: int = 0

    def __str__(self) -> str:
        return f"{_term(self.name, self.modulus)} in [{', '.join(map(str, self.numbers))}]"


@dataclass(frozen=True, slots=True)
class Not:
    part: Condition

    def __str__(self) -> str:
        return f"not ({self.part})"


@dataclass(frozen=True, slots=True)
class Every:
    """True when all parts are (``and``); two parts or more."""

    parts: tuple[Condition, ...]

    def __str__(self) -> str:
        return " and ".join(f"({p})" if isinstance(p, (Every, Some)) else str(p) for p in self.parts)


@dataclass(frozen=True, slots=True)
class Some:
    """True when one part is (``or``); two parts or more."""

    parts: tuple[Condition, ...]

    def __str__(self) -> str:
        return " or ".join(f"({p})" if isinstance(p, (Every, Some)) else str(p) for p in self.parts)


Condition = Constant | Comparison | Member | Not | Every | Some


def _term(name: str, modulus: int) -> str:
    return f"{name} % {modulus}" if modulus else name


def show_number(value: float) -> str:
    return str(value) if isinstance(value, int) else format(Decimal(repr(value)), "f")


def negation(part: Condition) -> Condition:
    """The opposite of a condition."""
    return Constant(not part.value) if isinstance(part, Constant) else Not(part)


def walk(condition: Condition) -> Iterator[Condition]:
    """The condition and all its parts."""
    yield condition
    if isinstance(condition, Not):
        yield from walk(condition.part)
    elif isinstance(condition, (Every, Some)):
        for part in condition.parts:
            yield from walk(part)


def names(condition: Condition) -> frozenset[str]:
    """The names that a condition speaks of."""
    return frozenset(part.name for part in walk(condition) if isinstance(part, (Comparison, Member)))


def compare(left: float, operator: str, right: float) -> bool:
    """``left operator right``; comparisons with NaN are false, except ``!=``."""
    if operator == "<":
        return left < right
    if operator == "<=":
        return left <= right
    if operator == ">":
        return left > right
    if operator == ">=":
        return left >= right
    return left == right if operator == "==" else left != right


def holds(condition: Condition, value: int, entropy: float, head: int = 0, layer: int = 0) -> bool:
    """Whether the condition holds for one token, layer and KV group; ``value`` stands for seqlen and position."""
    known = {"seqlen": value, "position": value, "entropy": entropy, "head": head, "layer": layer}
    return _holds(condition, known)


def _holds(condition: Condition, known: dict[str, float]) -> bool:
    if isinstance(condition, Constant):
        return condition.value
    if isinstance(condition, Not):
        return not _holds(condition.part, known)
    if isinstance(condition, Every):
        return all(_holds(part, known) for part in condition.parts)
    if isinstance(condition, Some):
        return any(_holds(part, known) for part in condition.parts)
    left = known[condition.name]
    if condition.modulus:
        left %= condition.modulus
    if isinstance(condition, Member):
        return left in condition.numbers
    return compare(left, condition.operator, condition.number)


def bind(condition: Condition, known: dict[str, float]) -> Condition:
    """The condition with some names known: parts that are decided fold away."""
    if isinstance(condition, (Comparison, Member)):
        return Constant(_holds(condition, known)) if condition.name in known else condition
    if isinstance(condition, Not):
        return negation(bind(condition.part, known))
    if isinstance(condition, Constant):
        return condition
    wins = isinstance(condition, Some)  # the constant that decides the whole: true for "or", false for "and"
    rest: list[Condition] = []
    for part in condition.parts:
        bound = bind(part, known)
        if isinstance(bound, Constant):
            if bound.value is wins:
                return bound
        else:
            rest.append(bound)
    if not rest:
        return Constant(not wins)
    return rest[0] if len(rest) == 1 else type(condition)(tuple(rest))


def value_cuts(condition: Condition) -> set[int]:
    """The values above 0 at which the condition may change: between two of them it does not."""
    cuts: set[int] = set()
    for part in walk(condition):
        if isinstance(part, Comparison) and part.name in ("seqlen", "position"):
            number = int(part.number)
            if part.operator in ("<", ">=", "==", "!="):
                cuts.add(number)
            if part.operator in ("<=", ">", "==", "!="):
                cuts.add(number + 1)
        elif isinstance(part, Member) and part.name in ("seqlen", "position"):
            cuts.update(part.numbers)
            cuts.update(n + 1 for n in part.numbers)
    return {cut for cut in cuts if cut > 0}


def entropy_cuts(condition: Condition) -> set[float]:
    """The entropies that the condition compares with."""
    return {part.number for part in walk(condition) if isinstance(part, Comparison) and part.name == "entropy"}
