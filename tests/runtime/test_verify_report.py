"""The verdict in words, and when it fails."""

from __future__ import annotations

import json

import pytest

from hybridctl.runtime.answers import Agreement
from hybridctl.runtime.perplexity import Part, Perplexity
from hybridctl.runtime.routing_probe import Row
from hybridctl.runtime.verify_report import Comparison, Report

FINE = Agreement(144, 40, 0, 1e-5)
APART = Agreement(100, 40, 60, 4.0)
Factor = tuple[float, float, float]


def rows(right: bool = True) -> list[Row]:
    shares = {"flash": 4, "linear": 0}
    return [Row(1, "below", "flash", shares, shares if right else {"flash": 0, "linear": 4}, "flash")]


def ppl(name: str, early: float, late: float, early_factor: Factor | None, late_factor: Factor | None) -> Perplexity:
    """Over two ranges of which the second is linear."""
    late_part = Part(512, 1024, late, late_factor)
    return Perplexity(name, late_part, (Part(0, 512, early, early_factor), late_part), name == "as served")


SERVED = ppl("as served", 2.2, 2.3, None, None)
SAME = (1.0, 0.99, 1.01)
GOOD = [SERVED, ppl("all flash", 2.2, 25.0, SAME, (11.0, 8.0, 15.0))]
ALL_GOOD = [*GOOD, *(ppl(f"thresholds {x}", 2.2, 4.0, SAME, (1.7, 1.5, 1.9)) for x in ("halved", "doubled"))]


@pytest.mark.parametrize(
    ("report", "passed", "words"),
    [
        (Report("u", "m", [], rows(), None, FINE), True, "matches the reference to 1.0e-05"),
        (Report("u", "m", [], rows(), None, Agreement(144, 40, 0, 0.02)), True, "as half precision does"),
        (
            Report("u", "m", [], rows(), None, Agreement(144, 40, 3, 0.65)),
            False,
            "does NOT match the reference: 3 of 144",
        ),
        (Report("u", "m", [], rows(), None, Agreement(144, 40, 0, 0.65)), False, "does NOT match"),
        (Report("u", "m", [], rows(False)), False, "NOT routed as configured: 1 of 1"),
        (Report("u", "m", []), False, "NOT routed"),
    ],
)
def test_routing_and_reference(report: Report, passed: bool, words: str) -> None:
    assert report.passed is passed
    assert words in "; ".join(report.verdict())
    assert json.loads(json.dumps(report.to_json()))["passed"] is passed


@pytest.mark.parametrize(
    ("found", "trained", "words"),
    [
        (
            ALL_GOOD,
            True,
            "trained for this routing: perplexity 2.30 from position 512 on; otherwise routed: all flash 25.00",
        ),
        (GOOD, True, "this routing is the better one: perplexity 2.30 from position 512 on; all flash 25.00"),
        (
            [SERVED, ppl("--no-hybrid", 2.2, 1.1, SAME, (0.5, 0.4, 0.6))],
            False,
            "not trained for this routing: perplexity rises from 1.10 (--no-hybrid) to 2.30 from position 512 on",
        ),
        (  # better later on, but worse where it sets in: its thresholds are not those that it was trained for
            [SERVED, ppl("all flash", 1.5, 25.0, (0.7, 0.6, 0.8), (11.0, 8.0, 15.0))],
            False,
            "perplexity rises from 1.50 (all flash) to 2.20 at positions 0–511",
        ),
        (  # of two, the worse
            [
                SERVED,
                *(ppl(n, 2.2, v, SAME, (v / 2.3, v / 2.4, v / 2.2)) for n, v in (("a", 1.5), ("b", 1.2), ("c", 2.0))),
            ],
            False,
            "rises from 1.20 (b) to 2.30",
        ),
        (  # three percent are no verdict
            [SERVED, ppl("--no-hybrid", 2.2, 2.23, SAME, (0.97, 0.96, 0.98))],
            None,
            "whether it was trained for this routing, 4 windows do not tell: perplexity 2.30 from position 512 on; --no-hybrid",
        ),
        ([SERVED, ppl("--no-hybrid", 2.2, 1.1, None, None)], None, "4 windows do not tell"),  # no interval
        ([SERVED], None, "routing as configured"),
        (  # nothing near the routing was compared, but its own ranges tell
            [ppl("as served", 2.2, 9.7, None, None), ppl("--no-hybrid", 2.2, 54.0, SAME, (5.6, 5.0, 6.0))],
            None,
            "perplexity jumps from 2.20 at positions 0–511 to 9.70 at 512–1023: this checkpoint may not have been trained",
        ),
        ([ppl("as served", 2.2, 9.7, None, None)], None, "no other routing was measured"),
        ([ppl("as served", 2.2, 9.7, None, None), *ALL_GOOD[1:]], True, "trained for this routing"),
        ([], None, "routing as configured"),
    ],
)
def test_training(found: list[Perplexity], trained: bool | None, words: str) -> None:
    report = Report("u", "m", [], rows(), perplexities=found, windows=4)
    assert report.trained is trained
    assert report.passed is (trained is not False)
    assert words in report.verdict()[-1]
    assert json.loads(json.dumps(report.to_json()))["trained"] is trained


@pytest.mark.parametrize(
    ("seen", "agrees", "words"),
    [
        (
            Comparison("--no-hybrid", False, 512, FINE, APART),
            True,
            "matches --no-hybrid to 1.0e-05 below position 512; linear",
        ),
        (Comparison("--no-hybrid", False, 512, FINE, None), True, "matches --no-hybrid to 1.0e-05 below position 512"),
        (Comparison("--no-hybrid", False, 0, None, APART), True, "changes 60 of 100 tokens from position 0 on"),
        (
            Comparison("--no-hybrid", False, 512, APART, APART),
            False,
            "does NOT match --no-hybrid below position 512: 60 of",
        ),
        (Comparison("http://b", True, 512, FINE, FINE), True, "answers as http://b does, to 1.0e-05"),
        (
            Comparison("http://b", True, 512, FINE, APART),
            False,
            "does NOT match http://b from position 512 on: 60 of 100",
        ),
    ],
)
def test_comparison(seen: Comparison, agrees: bool, words: str) -> None:
    report = Report("u", "m", [], rows(), comparison=seen)
    assert (seen.agrees, report.passed) == (agrees, agrees)
    assert words in report.verdict()[1]
    assert json.loads(json.dumps(report.to_json()))["against"]["agrees"] is agrees
