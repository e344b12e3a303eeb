"""Names of tensors that are renamed while a checkpoint is loaded: the rules that may be needed, and what a rule does to a name.

The rows are those of ``recipes/tables/weight_names.toml``. The plugin does the same to the tensors themselves.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

from hybridctl.flags import read_table
from hybridctl.overlays import NameRule

ARTICLE = "linear-prefix"


@dataclass(frozen=True, slots=True)
class Candidate:
    """Rules of one row that match a checkpoint. ``by_name``: the names alone prove that they are needed."""

    id: str
    rules: tuple[NameRule, ...]
    by_name: bool


@lru_cache(maxsize=1)
def _rows() -> tuple[Mapping[str, Any], ...]:
    return tuple(read_table("weight_names.toml")["row"])


def pattern(rule: NameRule) -> str:
    """What a rule replaces, as a regular expression."""
    old = re.escape(rule.old)
    return {"component": rf"(?:^|(?<=\.)){old}(?=\.|$)", "prefix": rf"^{old}", "suffix": rf"{old}$"}[rule.kind]


def renamed(name: str, rules: Iterable[NameRule]) -> str:
    """A name after all rules, in their order."""
    for rule in rules:
        name = re.sub(pattern(rule), lambda _: rule.new, name)  # noqa: B023  called at once
    return name


def rename_all(names: Iterable[str], rules: Sequence[NameRule]) -> dict[str, str]:
    """Old name → new name, where the rules change it."""
    return {name: new for name in names if (new := renamed(name, rules)) != name}


def candidates(names: Iterable[str], architecture: str) -> list[Candidate]:
    """The rows that match a checkpoint, in the table's order.

    A rule after which two tensors have one name is none: what has its plain name already stays as it is.
    """
    there = set(names)
    found = []
    for row in _rows():
        if row["architectures"] and architecture not in row["architectures"]:
            continue
        rules = tuple(rule for rule in _rules(row, there) if _fits(rule, there))
        if rules:
            found.append(Candidate(row["id"], rules, row["by_name"]))
        if row["by_name"]:  # what comes after is matched with the names that they leave
            there = {renamed(name, rules) for name in there}
    return found


def _rules(row: Mapping[str, Any], there: Iterable[str]) -> list[NameRule]:
    def rule(old: str, new: str) -> NameRule:
        return NameRule(id=row["id"], kind=row["kind"], old=old, new=new, reason=row["reason"])

    if row["kind"] != "component":
        return [rule(row["old"], row["new"])]
    parts = dict.fromkeys(part for name in sorted(there) for part in name.split("."))
    wanted = {row["old"] + plain: plain for plain in row["components"]}
    return [rule(part, wanted[part]) for part in parts if part in wanted]


def _fits(rule: NameRule, there: set[str]) -> bool:
    changed = rename_all(there, (rule,))
    return bool(changed) and not there & set(changed.values()) and len(set(changed.values())) == len(changed)
