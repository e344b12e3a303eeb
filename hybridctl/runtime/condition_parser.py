"""Reads the condition of a compute unit: text such as ``2048 <= seqlen < 4096 and entropy > 0.8``, never evaluated as Python.

Grammar::

    or       := and ("or" and)*
    and      := not ("and" not)*
    not      := "not" not | chain
    chain    := operand (("<" | "<=" | ">" | ">=" | "==" | "!=") operand)* | operand ["not"] "in" "[" number ("," number)* "]"
    operand  := "(" or ")" | "true" | "false" | number | name ["%" number]

"""

from __future__ import annotations

import re
from dataclasses import dataclass
from difflib import get_close_matches

from hybridctl.errors import UsageError
from hybridctl.runtime.condition import (
    NAMES,
    Comparison,
    Condition,
    Constant,
    Every,
    Member,
    Not,
    Some,
    negation,
    show_number,
)

MAX_LENGTH = 4096
MAX_DEPTH = 32
MAX_NUMBER = 2**40

_TOKEN = re.compile(
    r"(?P<number>\d+(?:\.\d+)?|\.\d+)|(?P<word>[A-Za-z_]\w*)|(?P<sign><=|>=|==|!=|[<>()\[\],%])", re.ASCII
)
_SPACE = re.compile(r"[ \t\r\n]*")
_FLIPPED = {"<": ">", "<=": ">=", ">": "<", ">=": "<=", "==": "==", "!=": "!="}
_KEYWORDS = {"and", "or", "not", "in", "true", "false"}
_HINTS = {
    "=": "; equality is ==",
    "&": "; write and",
    "|": "; write or",
    "!": "; write not",
    "-": "; numbers start at 0",
}


class ConditionError(UsageError):
    """A condition that can't be read. ``column`` counts characters from 1."""

    def __init__(self, message: str, column: int) -> None:
        super().__init__(f"column {column}: {message}")
        self.column = column


def parse_condition(text: str) -> Condition:
    """Read a condition.

    Raises:
        ConditionError: with the column of the first thing that can't be read.
    """
    if len(text) > MAX_LENGTH:
        raise ConditionError(f"longer than {MAX_LENGTH} characters", MAX_LENGTH + 1)
    return _Parser(text).whole()


@dataclass(frozen=True, slots=True)
class _Term:
    """A name or a number before it is compared with anything."""

    name: str
    modulus: int
    number: float
    column: int


@dataclass(frozen=True, slots=True)
class _Word:
    kind: str  # number, word, sign, end
    text: str
    column: int


def _scan(text: str) -> list[_Word]:
    words: list[_Word] = []
    at = 0
    while True:
        space = _SPACE.match(text, at)
        at = space.end() if space else at
        if at == len(text):
            return [*words, _Word("end", "end", at + 1)]
        found = _TOKEN.match(text, at)
        if not found:
            raise ConditionError(f"{text[at]!r} has no meaning here{_HINTS.get(text[at], '')}", at + 1)
        words.append(_Word(str(found.lastgroup), found.group(), at + 1))
        at = found.end()


class _Parser:
    def __init__(self, text: str) -> None:
        self.words = _scan(text)
        self.at = 0
        self.depth = 0

    @property
    def word(self) -> _Word:
        return self.words[self.at]

    def take(self, *texts: str) -> _Word | None:
        if self.word.kind in ("sign", "word") and self.word.text in texts:
            self.at += 1
            return self.words[self.at - 1]
        return None

    def fail(self, expected: str) -> ConditionError:
        got = "the condition ends" if self.word.kind == "end" else f"found {self.word.text!r}"
        return ConditionError(f"{got} where {expected} is expected", self.word.column)

    def whole(self) -> Condition:
        result = self.truth(self.either())
        if self.word.kind != "end":
            raise self.fail("and, or, or the end")
        return result

    def truth(self, part: Condition | _Term) -> Condition:
        if isinstance(part, _Term):
            raise ConditionError(f"{part.name or show_number(part.number)} is compared with nothing", part.column)
        return part

    def either(self) -> Condition | _Term:
        first = self.both()
        if not (self.word.kind == "word" and self.word.text == "or"):
            return first
        parts = [self.truth(first)]
        while self.take("or"):
            parts.append(self.truth(self.both()))
        return Some(tuple(parts))

    def both(self) -> Condition | _Term:
        first = self.opposite()
        if not (self.word.kind == "word" and self.word.text == "and"):
            return first
        parts = [self.truth(first)]
        while self.take("and"):
            parts.append(self.truth(self.opposite()))
        return Every(tuple(parts))

    def deeper(self) -> None:
        self.depth += 1
        if self.depth > MAX_DEPTH:
            raise ConditionError(f"nested deeper than {MAX_DEPTH}", self.word.column)

    def opposite(self) -> Condition | _Term:
        if not self.take("not"):
            return self.chain()
        self.deeper()
        part = negation(self.truth(self.opposite()))
        self.depth -= 1
        return part

    def chain(self) -> Condition | _Term:
        left = self.operand()
        if not isinstance(left, _Term):
            return left
        negated = self.word.text == "not" and self.words[min(self.at + 1, len(self.words) - 1)].text == "in"
        if negated:
            self.at += 1
        if inside := self.take("in"):
            member = self.member(left, inside)
            return Not(member) if negated else member
        parts: list[Condition] = []
        while operator := self.take(*_FLIPPED):
            right = self.operand()
            if not isinstance(right, _Term):
                raise ConditionError("a condition can't be compared", operator.column)
            parts.append(self.comparison(left, operator, right))
            left = right
        if not parts:
            return left
        return parts[0] if len(parts) == 1 else Every(tuple(parts))

    def operand(self) -> Condition | _Term:
        column = self.word.column
        if self.take("("):
            self.deeper()
            inner = self.either()
            if not self.take(")"):
                raise self.fail("')'")
            self.depth -= 1
            return inner
        if constant := self.take("true", "false"):
            return Constant(constant.text == "true")
        if self.word.kind == "number":
            return _Term("", 0, self.number(), column)
        if self.word.kind != "word" or self.word.text in _KEYWORDS:
            raise self.fail("a name, a number or '('")
        name = self.word.text
        if name not in NAMES:
            near = get_close_matches(name.lower(), NAMES, 1, 0.5)
            hint = f"; did you mean {near[0]}?" if near else f"; known: {', '.join(NAMES)}"
            raise ConditionError(f"unknown name {name!r}{hint}", column)
        self.at += 1
        return _Term(name, self.modulus(name), 0, column)

    def modulus(self, name: str) -> int:
        sign = self.take("%")
        if not sign:
            return 0
        if name not in ("head", "layer"):
            raise ConditionError(f"only head and layer take %: by {name} it would need ranges without end", sign.column)
        column = self.word.column
        number = self.number()
        if not isinstance(number, int) or number < 1:
            raise ConditionError("% takes a whole number of 1 or more", column)
        return number

    def number(self) -> float:
        if self.word.kind != "number":
            raise self.fail("a number")
        text, column = self.word.text, self.word.column
        self.at += 1
        value = float(text) if "." in text else int(text) if len(text) < 20 else MAX_NUMBER + 1
        if value > MAX_NUMBER:
            raise ConditionError("number above 2^40", column)
        return value

    def member(self, left: _Term, inside: _Word) -> Condition:
        if not left.name or left.name == "entropy":
            raise ConditionError("in takes seqlen, position, head or layer on its left", inside.column)
        if not self.take("["):
            raise self.fail("'['")
        numbers = set()
        while True:
            column = self.word.column
            number = self.number()
            if not isinstance(number, int):
                raise ConditionError(f"{left.name} is a whole number", column)
            numbers.add(number)
            if self.take("]"):
                return Member(left.name, tuple(sorted(numbers)), left.modulus)
            if not self.take(","):
                raise self.fail("',' or ']'")

    def comparison(self, left: _Term, operator: _Word, right: _Term) -> Condition:
        sign = operator.text
        if not left.name:
            left, right, sign = right, left, _FLIPPED[sign]
        if not left.name or right.name:
            raise ConditionError("a comparison takes one name and one number", operator.column)
        if left.name == "entropy":
            if sign in ("==", "!="):
                raise ConditionError("entropy is compared with <, <=, > or >=", operator.column)
            if right.number > 1:
                raise ConditionError("entropy lies between 0 and 1", right.column)
            return Comparison("entropy", sign, float(right.number))
        if not isinstance(right.number, int):
            raise ConditionError(f"{left.name} is a whole number", right.column)
        return Comparison(left.name, sign, right.number, left.modulus)
