"""Every entry of the knowledge base against its recorded data: what fires it, and the nearest thing that must not."""

from __future__ import annotations

import json
import re
from functools import cache, lru_cache
from pathlib import Path
from typing import Any

import pytest

from hybridctl.app import COMMANDS
from hybridctl.doctor import knowledge
from hybridctl.doctor.diagnose import Inputs, gather, text_stream
from hybridctl.doctor.facts.clean import strip_controls
from hybridctl.doctor.findings import Finding
from hybridctl.doctor.knowledge import Entry, Knowledge, read_toml
from hybridctl.doctor.pasted import find_symptoms

FIXTURES = Path(__file__).parents[1] / "data" / "known_bad"
PARTS = ("env", "log", "command", "config", "model", "engine")


@lru_cache(maxsize=1)
def base() -> Knowledge:
    return knowledge.load()


ENTRIES = sorted(base().entries)
FIRING = sorted(e.id for e in base().entries.values() if e.fires != "note")


@cache
def fixture(name: str) -> dict[str, Any]:
    return read_toml(FIXTURES / f"{name}.toml")


def replaced(datum: dict[str, str], pairs: list[list[str]]) -> dict[str, str]:
    for old, new in pairs:
        datum = {part: text.replace(old, new) for part, text in datum.items()}
    return datum


def fires(name: str, datum: dict[str, str]) -> bool:
    """Whether the entry fires on a datum. Only the entries are asked, not the checks."""
    return name in {f.id for f in judged(datum)}


def as_inputs(datum: dict[str, str]) -> Inputs:
    return Inputs(
        env=datum.get("env") or None,
        log=text_stream(datum["log"]) if datum.get("log") else None,
        config=datum.get("config") or None,
        command=datum.get("command") or None,
        model=datum.get("model") or None,
        engine=datum.get("engine") or None,
    )


def judged(datum: dict[str, str]) -> list[Finding]:
    """What the entries alone make of a datum, before ranking drops what a closer one says."""
    inputs = as_inputs(datum)
    facts, log = gather(inputs, base(), [], [])
    hits = [*(log.hits if log else []), *find_symptoms(inputs.env or "", base().symptoms)]
    return base().judge(facts, hits)[0]


def test_every_firing_entry_has_data_and_all_data_belong_to_an_entry() -> None:
    recorded = {path.stem for path in FIXTURES.glob("*.toml")}
    assert set(FIRING) - recorded == set()
    assert recorded - set(ENTRIES) == set()


@pytest.mark.parametrize("name", FIRING)
def test_fires_on_its_recorded_data(name: str) -> None:
    assert set(fixture(name)["fires"]) <= set(PARTS)
    assert fires(name, fixture(name)["fires"])


@pytest.mark.parametrize("name", FIRING)
def test_is_quiet_when_only_the_deciding_thing_changes(name: str) -> None:
    datum, quiet = fixture(name)["fires"], fixture(name)["quiet"]
    assert quiet["why"].strip()
    for pair in quiet["replace"]:
        assert replaced(datum, [pair]) != datum, f"{pair} changes nothing"
    assert not fires(name, replaced(datum, quiet["replace"]))


@pytest.mark.parametrize("name", FIRING)
def test_a_recorded_log_holds_a_symptom_line(name: str) -> None:
    entry, log = base().entries[name], fixture(name)["fires"].get("log", "")
    if not log or entry.fires == "facts":
        return
    assert any(matches(symptom, line) for symptom in entry.symptom for line in log.splitlines())


def matches(symptom: dict[str, str], line: str) -> bool:
    return symptom["anchor"] in line and (not symptom.get("regex") or re.search(symptom["regex"], line) is not None)


@pytest.mark.parametrize("name", ENTRIES)
def test_is_well_formed(name: str) -> None:
    entry = base().entries[name]
    assert all(address.startswith("https://") for address in entry.source) and entry.source
    assert [x for x in entry.explains if x not in base().entries] == []
    assert name not in entry.explains
    for fix in entry.fix:
        assert placeholders(fix) <= {"model"} | groups(entry) | with_default(fix)


def test_commands_of_ours_exist() -> None:
    commands = [f["command"] for e in base().entries.values() for f in e.fix if f.get("command")]
    ours = {m for c in commands for m in re.findall(r"^hybridctl (\w+)", c, re.MULTILINE)}
    assert ours <= set(COMMANDS)


def placeholders(fix: dict[str, Any]) -> set[str]:
    return set(re.findall(r"\{(\w+)[|}]", fix["text"] + " " + (fix.get("command") or "")))


def with_default(fix: dict[str, Any]) -> set[str]:
    return set(re.findall(r"\{(\w+)\|[^{}]*\}", fix["text"] + " " + (fix.get("command") or "")))


def groups(entry: Entry) -> set[str]:
    return {g for s in entry.symptom for g in re.compile(s.get("regex", "")).groupindex}


def test_names_are_unique() -> None:
    names = [n for e in base().entries.values() for n in (e.id, *e.aliases)]
    assert sorted(n for n in set(names) if names.count(n) > 1) == []


@pytest.mark.parametrize("name", FIRING)
def test_rests_on_what_it_quotes(name: str) -> None:
    """Every quote stands in the input, and without the quoted text the finding is gone."""
    datum = fixture(name)["fires"]
    (finding,) = [f for f in judged(datum) if f.id == name]
    quotes = [e.quote for e in finding.evidence if e.quote]
    assert quotes, "a finding without evidence from the input"
    for quote in quotes:
        assert any(quote in strip_controls_of(text) for text in datum.values()), f"{quote!r} is not in the input"
    assert name not in {f.id for f in judged(without(datum, quotes))}


def without(datum: dict[str, str], quotes: list[str]) -> dict[str, str]:
    """The datum less what is quoted; of our own facts those that are quoted go as a whole."""
    if datum.get("env", "").lstrip().startswith("{"):
        document = json.loads(datum["env"])
        document["facts"] = [fact for fact in document["facts"] if fact["quote"] not in quotes]
        datum = {**datum, "env": json.dumps(document)}
    for quote in sorted(quotes, key=len, reverse=True):
        datum = {part: strip_controls_of(text).replace(quote, "") for part, text in datum.items()}
    return datum


def strip_controls_of(text: str) -> str:
    return "\n".join(strip_controls(line) for line in text.split("\n"))
