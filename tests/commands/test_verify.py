"""``hybridctl verify`` against a stand-in for a routed server: what it counts, what it concludes, how it exits."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import pytest
from fake_routed import CUT, by_position, routed_server
from typer.testing import CliRunner

from hybridctl.errors import HybridctlError, UsageError
from hybridctl.runtime import reference_probe, routing_probe, verify
from hybridctl.runtime.checkpoint import demo
from hybridctl.runtime.http import Client
from hybridctl.runtime.reference_probe import Agreement
from hybridctl.runtime.verify import Perplexity, Report

FINE = Agreement(144, 40, 0, 1e-5)
GOOD = [Perplexity("as served", 2.3), Perplexity("all flash", 25.0, (11.0, 8.0, 15.0))]


@pytest.fixture(autouse=True)
def apart(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("HYBRIDCTL_HOME", str(tmp_path))
    monkeypatch.setattr(reference_probe, "available", lambda: "torch not installed here")


def run(*arguments: str) -> tuple[int, str]:
    from hybridctl.cli import app

    done = CliRunner().invoke(app, ["verify", *arguments])
    assert done.exception is None or isinstance(done.exception, SystemExit), done.exception
    return done.exit_code, done.stdout


def test_prompts_stand_below_between_above_and_at_the_cut() -> None:
    dispatcher = demo().dispatcher()
    assert dispatcher is not None
    assert routing_probe.lengths(dispatcher, [256, 512], 2047) == [128, 384, 512, 513, 768]
    assert routing_probe.lengths(dispatcher, [256, 512], 600) == [128, 384, 512, 513]


def test_a_server_that_routes_as_configured() -> None:
    with routed_server() as url:
        code, text = run(url, "--model", str(demo().folder), "--json")
    document = json.loads(text)
    assert code == 0
    assert [(r["length"], r["last"]) for r in document["routing"]] == [
        (128, "flash"), (384, "flash"), (512, "flash"), (513, "linear"), (768, "linear"),
    ]  # fmt: skip
    assert document["routing"][-1]["counted"] == {"flash": 4 * 512, "linear": 4 * 256}
    assert document["verdict"] == ["routing as configured"]
    assert document["skipped"] == ["the reference: torch not installed here"]


@pytest.mark.parametrize("shift", [-16, -1, 1, 16])
def test_a_cut_in_another_place_is_seen(shift: int) -> None:
    with routed_server(lambda p: by_position(p - shift)) as url:
        code, text = run(url, "--model", str(demo().folder), "--json")
    document = json.loads(text)
    assert (code, document["passed"]) == (1, False)
    assert document["verdict"][0].startswith("NOT routed as configured")


def test_flash_only_is_seen_and_told_as_a_table() -> None:
    with routed_server(lambda p: "flash") as url:
        code, text = run(url, "--model", str(demo().folder))
    assert code == 1
    assert "Kernel by prompt length" in text
    assert "NOT routed as configured: 2 of 5" in " ".join(text.split())


def test_a_server_without_counters() -> None:
    with routed_server(counters=False) as url, pytest.raises(HybridctlError, match="no routed model is served there"):
        verify.verify(verify.Subject(url, demo()), None, 0, lambda line: None)


def test_nothing_named_and_nothing_running() -> None:
    with pytest.raises(UsageError, match="no server runs"):
        verify.running(None, None)
    with pytest.raises(UsageError, match="is no server of ours"):
        verify.running("http://127.0.0.1:1", None)


def rows(right: bool = True) -> list[routing_probe.Row]:
    shares = {"flash": 4, "linear": 0}
    return [routing_probe.Row(1, "flash", shares, shares if right else {"flash": 0, "linear": 4}, "flash")]


@pytest.mark.parametrize(
    ("report", "passed", "words"),
    [
        (Report("u", "m", [], rows(), FINE, GOOD), True, "matches the reference to 1.0e-05"),
        (Report("u", "m", [], rows(), Agreement(144, 40, 0, 0.02)), True, "as half precision does"),
        (Report("u", "m", [], rows(), Agreement(144, 40, 3, 0.65)), False, "does NOT match the reference: 3 of 144"),
        (Report("u", "m", [], rows(), Agreement(144, 40, 0, 0.65)), False, "does NOT match"),
        (Report("u", "m", [], rows(), FINE, GOOD), True, "trained for this routing: perplexity 2.30"),
        (
            Report(
                "u",
                "m",
                [],
                rows(),
                FINE,
                [Perplexity("as served", 9.0), Perplexity("all flash", 3.0, (0.33, 0.3, 0.4))],
            ),
            False,
            "not trained for this routing: perplexity rises from 3.00 (all flash) to 9.00",
        ),
        (Report("u", "m", [], rows(False)), False, "NOT routed"),
        (Report("u", "m", []), False, "NOT routed"),
    ],
)
def test_verdicts(report: Report, passed: bool, words: str) -> None:
    assert report.passed is passed
    assert words in "; ".join(report.verdict())
    assert json.loads(json.dumps(report.to_json()))["passed"] is passed


def test_the_interval_of_a_ratio_holds_it() -> None:
    value, low, high = reference_probe.ratio([2.0, 2.2, 2.1, 1.9], [1.0, 1.3, 1.0, 1.1])
    assert low < value < high
    assert low > 1


def test_other_routings_differ_only_in_what_they_say() -> None:
    config = demo().config["hybrid_config"]
    others = reference_probe.wrong_routings(config, 2049)
    assert others["thresholds doubled"]["thresholds"] == {"flash": 512, "linear": 2 * CUT}
    assert others["all linear"]["thresholds"] == {"flash": 0, "linear": 0}
    assert others["all flash"]["thresholds"]["linear"] == 2049


def test_a_reference_that_fails_says_why(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "executable", sys.executable)
    with pytest.raises(HybridctlError, match="the reference fails"):
        reference_probe.reference(tmp_path, [[1, 2]], [1], [None])


def test_unreachable() -> None:
    with pytest.raises(HybridctlError, match="does not answer"):
        Client("http://127.0.0.1:1").get("/health")
