"""Conditions on facts, in three values: an unknown fact neither meets a condition nor fails it.

A condition is a table of keys and matchers, all of which must hold; ``any`` takes a list of tables of which one must hold, ``not``
a table that must not hold. Matchers, by the kind of the key (:data:`hybridctl.doctor.facts.keys.KEYS`):

* version: ``">=0.29,<0.30"``, ``"<0.10 || ==0.12.*"``
* number: ``">4"``, ``"<=128"``, ``8``
* bool: ``true``, ``false``
* what was said (``report.said``): a regular expression, without regard to case; any statement may meet it, silence is unknown
* text and lists: a literal without regard to case, with ``*`` as in file names; a list of literals is "any of"
* flags and variables: any of the above, and ``"<set>"`` or ``"<unset>"``
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from typing import Any

from hybridctl.doctor.facts.model import Fact, Facts, Value, shown, spec_of
from hybridctl.doctor.findings import Evidence
from hybridctl.globs import glob
from hybridctl.versions import VersionSet, parse_condition, parse_version

_NUMBER = re.compile(r"\s*(>=|<=|==|!=|>|<)\s*(-?\d+(?:\.\d+)?)\s*$")
_TRUE, _FALSE = {"1", "true", "yes", "on"}, {"0", "false", "no", "off", ""}


@dataclass(slots=True)
class Verdict:
    """``value`` is True, False or None (not known); ``missing`` names the keys that would decide it."""

    value: bool | None
    evidence: list[Evidence] = field(default_factory=list)
    missing: list[str] = field(default_factory=list)
    met: int = 0
    """How many conditions are met by something that was stated."""


def evaluate(condition: dict[str, Any], facts: Facts) -> Verdict:
    """Judge a condition. The evidence of a met condition is the facts that met it."""
    result = Verdict(True)
    for key, matcher in condition.items():
        if key == "any":
            part = _any([evaluate(alternative, facts) for alternative in matcher])
        elif key == "not":
            inner = evaluate(matcher, facts)
            part = Verdict(None if inner.value is None else not inner.value, missing=inner.missing)
        else:
            part = _match_key(key, matcher, facts)
        if part.value is False:
            return Verdict(False)
        if part.value is None:
            result.value = None
        result.evidence += part.evidence
        result.met += part.met or bool(part.evidence)
        result.missing += part.missing
    return result


def _any(parts: list[Verdict]) -> Verdict:
    met = [part for part in parts if part.value]
    if met:
        # Each alternative that holds would be enough: the finding shows them all, and counts as the closest of them.
        return Verdict(True, [e for part in met for e in part.evidence], met=max(part.met for part in met))
    if any(p.value is None for p in parts):
        return Verdict(None, missing=[m for p in parts for m in p.missing])
    return Verdict(False)


def _match_key(key: str, matcher: Any, facts: Facts) -> Verdict:
    found = facts.all(key)
    if (spec := spec_of(key)) is not None and spec.kind == "text":
        # A report that does not mention a thing says neither that it was seen nor that it was not.
        said = _all_evidence(key, found, matcher)
        return Verdict(True, said) if said else Verdict(None)
    if not found:
        if key.startswith("flag.") and facts.flags_known():
            met = matcher == "<unset>" or matcher is False
            unset = Evidence(key, "not set", _show(matcher), "command", "")
            return Verdict(met, [unset] if met else [])
        return Verdict(None, missing=[key])
    if matcher in ("<set>", "<unset>"):
        met = matcher == "<set>"
        return Verdict(met, [_evidence(fact, matcher) for fact in found] if met else [])
    for fact in found:
        answer = matches(key, fact.value, matcher)
        if answer is not None:
            return Verdict(answer, _all_evidence(key, found, matcher) if answer else [])
    return Verdict(None, missing=[key])


def _all_evidence(key: str, found: list[Fact], matcher: Any) -> list[Evidence]:
    """Every statement that meets the condition, since each of them alone would: a finding shows all that it rests on."""
    items = [_evidence(fact, matcher) for fact in found if matches(key, fact.value, matcher)]
    return list({(item.origin, item.quote, item.value): item for item in items}.values())


def matches(key: str, value: Value, matcher: Any) -> bool | None:
    """Whether one value satisfies a matcher; ``None`` when the value can't be read as what the key should hold."""
    spec = spec_of(key)
    kind = spec.kind if spec else "any"
    if isinstance(matcher, list):
        answers = [matches(key, value, m) for m in matcher]
        return True if any(answers) else None if None in answers else False
    if kind == "text":
        return re.search(str(matcher), str(value), re.IGNORECASE) is not None
    if kind == "version":
        have = parse_version(str(value))
        return None if have is None else have.within(_condition(str(matcher)))
    if isinstance(value, list):
        answers = [matches("config.item", item, matcher) for item in value]
        return any(answers)
    if isinstance(matcher, bool):
        return _truth(value) if matcher else (None if (t := _truth(value)) is None else not t)
    if isinstance(matcher, (int, float)):
        number = _number(value)
        return None if number is None else number == matcher
    if m := _NUMBER.match(str(matcher)):
        number = _number(value)
        return None if number is None else _compare(number, m[1], float(m[2]))
    return glob(str(value).lower(), str(matcher).lower())


def _condition(text: str) -> VersionSet:
    return parse_condition(text if text[:1] in "<>=!~" else f"=={text}")


def _truth(value: Value) -> bool | None:
    text = str(value).strip().lower()
    return True if text in _TRUE else False if text in _FALSE else None


def _number(value: Value) -> float | None:
    if isinstance(value, (bool, list)):
        return None
    try:
        return float(value)
    except ValueError:
        return None


def _compare(a: float, operator: str, b: float) -> bool:
    return {">=": a >= b, "<=": a <= b, "==": a == b, "!=": a != b, ">": a > b, "<": a < b}[operator]


def _evidence(fact: Fact, matcher: Any) -> Evidence:
    return Evidence(fact.key, shown(fact.value), _show(matcher), str(fact.origin), fact.origin.quote)


def _show(matcher: Any) -> str:
    if isinstance(matcher, list):
        return " or ".join(map(str, matcher))
    return str(matcher).lower() if isinstance(matcher, bool) else str(matcher)


def check_condition(condition: Any, where: str = "when") -> list[str]:
    """What is wrong with a condition as written: unknown keys, matchers that don't suit the key. Empty when all is well."""
    if not isinstance(condition, dict):
        return [f"{where}: not a table"]
    problems: list[str] = []
    for key, matcher in condition.items():
        if key == "any":
            if not isinstance(matcher, list) or not matcher:
                problems.append(f"{where}.any: needs a list of tables")
                continue
            problems += [
                p for i, alternative in enumerate(matcher) for p in check_condition(alternative, f"{where}.any[{i}]")
            ]
        elif key == "not":
            problems += check_condition(matcher, f"{where}.not")
        elif (spec := spec_of(key)) is None:
            problems.append(f"{where}: there is no fact {key!r}")
        else:
            try:
                matches(key, _sample(spec.kind), matcher)
            except (ValueError, TypeError, re.error) as error:
                problems.append(f"{where}: {key}: {error}")
            if spec.kind == "bool" and not isinstance(matcher, bool):
                problems.append(f"{where}: {key} takes true or false")
            if spec.kind == "number" and not (isinstance(matcher, (int, float)) or _NUMBER.match(str(matcher))):
                problems.append(f"{where}: {key} takes a number or a comparison, not {matcher!r}")
    return problems


def _sample(kind: str) -> Value:
    samples: dict[str, Value] = {"version": "1.0.0", "number": 1, "bool": True, "list": ["x"]}
    return samples.get(kind, "x")
