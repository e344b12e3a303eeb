"""Whole bug reports from public threads: the first finding lies in the area that the thread settled on, and rests on the report."""

from __future__ import annotations

from functools import lru_cache
from pathlib import Path
from typing import Any

import pytest

from hybridctl.doctor import knowledge
from hybridctl.doctor.diagnose import Inputs, diagnose, text_stream
from hybridctl.doctor.facts.clean import strip_controls
from hybridctl.doctor.findings import Finding
from hybridctl.doctor.knowledge import Knowledge, read_toml

REPORTS = sorted((Path(__file__).parents[1] / "data" / "reports").glob("*.toml"))


@lru_cache(maxsize=1)
def base() -> Knowledge:
    return knowledge.load()


def loud(report: dict[str, str]) -> list[Finding]:
    log = report.get("log")
    inputs = Inputs(
        **{k: v for k, v in report.items() if k != "log" and v.strip()}, log=text_stream(log) if log else None
    )
    return [f for f in diagnose(inputs, base()).findings if f.severity != "info"]


def read(path: Path) -> dict[str, Any]:
    return read_toml(path)


@pytest.mark.parametrize("path", REPORTS, ids=lambda p: p.stem)
def test_first_finding_is_what_the_thread_found(path: Path) -> None:
    case = read(path)
    findings = loud(case["report"])
    if case["areas"] == ["healthy"]:
        assert [f.id for f in findings] == []
    else:
        assert findings and findings[0].area in case["areas"], [f"{f.id} ({f.area})" for f in findings]


@pytest.mark.parametrize("path", [p for p in REPORTS if read(p)["areas"] != ["healthy"]], ids=lambda p: p.stem)
def test_first_finding_falls_without_what_it_quotes(path: Path) -> None:
    report = {k: "\n".join(map(strip_controls, v.split("\n"))) for k, v in read(path)["report"].items()}
    first = loud(report)[0]
    quotes = sorted({e.quote for e in first.evidence if e.quote}, key=len, reverse=True)
    assert quotes
    whole = list(report.values())
    for quote in quotes:
        assert any(quote in text for text in whole), f"{quote!r} is not in the report"
        report = (
            {k: v.replace(quote, "") for k, v in report.items()} if any(quote in v for v in report.values()) else report
        )
    assert first.id not in {f.id for f in loud(report)}
