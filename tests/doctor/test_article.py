"""docs/article.md against the checks, the entries and what the doctor says: no claim is forgotten or made louder than it is."""

from __future__ import annotations

import re
from functools import cache
from pathlib import Path
from typing import NamedTuple

import pytest

from hybridctl.app import COMMANDS
from hybridctl.data import recipes_dir
from hybridctl.doctor import knowledge
from hybridctl.doctor.checks import discover
from hybridctl.doctor.diagnose import Inputs, diagnose, text_stream
from hybridctl.doctor.findings import UNVERIFIED, Finding

PAGE = Path(__file__).parents[2] / "docs" / "article.md"
FIXTURES = Path(__file__).parents[1] / "data" / "known_bad"
STACK = "article-vllm-0.6.3"
VERDICTS = {"true", "true then", "outdated", "false", "unverified"}
# Every claim of the article, in its order.
CLAIMS = [
    "driver-535",
    "cuda-12-8",
    "python-3-10",
    "torch-2-3-1",
    "torchvision-0-18-1",
    "triton-2-3-1",
    "pycuda-2023-1-1",
    "pycuda-2024",
    "conda-torch",
    "enforce-eager",
    "duplicate-symbol",
    "one-backend",
    "sglang-hybrid",
    "ollama-run",
    "ollama-throughput",
    "lmstudio-cpu",
    "msvc-cub",
    "oom-two-backends",
    "wsl-fast-math",
    "head-size-padding",
    "linear-prefix",
    "load-format-dummy",
    "module-vllm-hybrid",
    "block-size-32",
    "max-num-seqs-256",
    "max-model-len-twice",
    "entropy-on-cpu",
    "latency-8k",
    "memory-42-24",
    "overhead-0-3",
    "flash-next-routing",
]


class Row(NamedTuple):
    id: str
    claim: str
    verdict: str
    evidence: str
    tool: str

    def named(self, kind: str) -> list[str]:
        return re.findall(rf"\b{kind} `([^`]+)`", self.tool)


@cache
def rows() -> list[Row]:
    lines = [line for line in PAGE.read_text(encoding="utf-8").splitlines() if line.startswith("|")]
    return [Row(*(cell.strip() for cell in line.strip("|").split("|"))) for line in lines[2:]]


def entries() -> dict[str, knowledge.Entry]:
    return knowledge.load().entries


def of_the_article() -> set[str]:
    return {e.id for e in entries().values() if "article" in (*e.keywords, *e.aliases) or e.id.startswith("article-")}


UNVERIFIED_ENTRIES = sorted(e.id for e in entries().values() if e.confidence == UNVERIFIED)


def test_every_claim_has_one_row() -> None:
    assert [row.id for row in rows()] == CLAIMS


@pytest.mark.parametrize("row", rows(), ids=lambda row: row.id)
def test_a_row_is_whole_and_names_what_exists(row: Row) -> None:
    assert row.verdict in VERDICTS
    assert re.search(r"<https://[^>]+>", row.evidence)
    assert set(row.named("check")) <= {check.id for check in discover()}
    assert set(row.named("entry")) <= set(entries())
    assert {command.split()[1] for command in row.named("command")} <= set(COMMANDS)
    assert all((recipes_dir() / "runbooks" / f"{name}.md").is_file() for name in row.named("runbook"))
    assert row.named("check") or row.named("entry"), "nothing is done about it"


def test_every_entry_of_the_article_stands_in_a_row() -> None:
    told = {name for row in rows() for name in row.named("entry")}
    assert of_the_article() - told == set()


@pytest.mark.parametrize("row", rows(), ids=lambda row: row.id)
def test_a_claim_is_unverified_where_its_entry_says_so(row: Row) -> None:
    doubtful = [name for name in row.named("entry") if entries()[name].confidence == UNVERIFIED]
    assert bool(doubtful) == (row.verdict == "unverified")


def test_unverified_entries_are_information_and_explain_nothing() -> None:
    assert UNVERIFIED_ENTRIES
    assert {entries()[name].severity for name in UNVERIFIED_ENTRIES} == {"info"}
    assert not any(entries()[name].explains for name in UNVERIFIED_ENTRIES)
    assert set(UNVERIFIED_ENTRIES) <= of_the_article()


@cache
def of_the_stack() -> list[Finding]:
    return diagnose(Inputs(stack=STACK)).findings


@pytest.mark.parametrize("name", UNVERIFIED_ENTRIES)
def test_the_stack_tells_each_unverified_claim(name: str) -> None:
    (found,) = [f for f in of_the_stack() if f.id == name]
    assert (found.severity, found.explained_by) == ("info", None)
    assert found.evidence and found.source


def test_no_unverified_claim_stands_before_a_sourced_finding() -> None:
    doubtful = [f.confidence == UNVERIFIED for f in of_the_stack()]
    assert doubtful == sorted(doubtful)
    assert not all(doubtful)


@pytest.mark.parametrize("name", UNVERIFIED_ENTRIES)
def test_its_configuration_tells_it_too_whatever_else_is_found(name: str) -> None:
    datum = knowledge.read_toml(FIXTURES / f"{name}.toml")["fires"]
    inputs = Inputs(**{**datum, "log": text_stream(datum["log"])} if "log" in datum else datum)
    found = {f.id: f for f in diagnose(inputs).findings}
    assert found[name].severity == "info"


def test_a_sourced_cause_of_the_same_line_comes_first_and_does_not_hide_the_claim() -> None:
    line = "pycuda._driver.LogicError: cuModuleLoadDataEx failed: CUDA_ERROR_INVALID_VALUE"
    found = [f.id for f in diagnose(Inputs(log=text_stream(line))).findings]
    assert found.index("cu-link-invalid-value") < found.index("article-conda-torch-invalid-value")
