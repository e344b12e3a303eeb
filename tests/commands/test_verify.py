"""``hybridctl verify`` against a stand-in for a routed server: what it counts, what it compares, how it exits."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from fake_routed import CUT, by_position, routed_server
from typer.testing import CliRunner

from hybridctl.app import app
from hybridctl.errors import HybridctlError, UsageError
from hybridctl.runtime import reference_probe
from hybridctl.runtime.checkpoint import DEMO

LOST = [lambda p: 1.0, lambda p: 1.0 if p < CUT else 3.0]
"""Nats by position: of a model in its element, and of one that is lost from the cut on."""


@pytest.fixture(autouse=True)
def apart(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("HYBRIDCTL_HOME", str(tmp_path))
    monkeypatch.setenv("COLUMNS", "160")
    monkeypatch.setattr(reference_probe, "missing", lambda *_: "torch not installed here")


def run(*arguments: str) -> tuple[int, str]:
    """Exit code and stdout."""
    done = CliRunner().invoke(app, ["verify", *arguments])
    if isinstance(done.exception, HybridctlError):
        raise done.exception
    assert done.exception is None or isinstance(done.exception, SystemExit), done.exception
    return done.exit_code, done.stdout


def checked(*arguments: str) -> tuple[int, dict[str, Any]]:
    code, text = run(*arguments, "--model", str(DEMO), "--json")
    return code, json.loads(text)


def test_a_server_that_routes_as_configured() -> None:
    with routed_server() as url:
        code, document = checked(url)
    assert code == 0
    assert [(r["length"], r["place"], r["last"]) for r in document["routing"]] == [
        (128, "below", "flash"),
        (384, "between", "flash"),
        (512, "between", "flash"),
        (513, "above", "linear"),
        (768, "above", "linear"),
    ]
    assert document["routing"][-1]["counted"] == {"flash": 4 * 512, "linear": 4 * 256}
    assert document["verdict"] == ["routing as configured"]
    assert document["skipped"] == ["the reference: torch not installed here"]
    assert document["fibonacci"]["prompt"].startswith("def fibonacci(n):")
    assert document["fibonacci"]["answer"] == bytes(range(11, 59)).decode()  # what the stand-in says after a line's end
    assert (document["against"], document["trained"], document["windows"]) == (None, None, 4)


@pytest.mark.parametrize("shift", [-16, -1, 1, 16])
def test_a_cut_in_another_place_is_seen(shift: int) -> None:
    with routed_server(lambda p: by_position(p - shift)) as url:
        code, document = checked(url)
    assert (code, document["passed"]) == (1, False)
    assert document["verdict"][0].startswith("NOT routed as configured")


def test_flash_only_is_seen_and_told_as_a_table() -> None:
    with routed_server(lambda p: "flash") as url:
        code, text = run(url, "--model", str(DEMO))
    assert code == 1
    assert "Kernel by prompt length" in text
    assert "Fibonacci prompt (hybridctl's own wording)" in text
    assert "NOT routed as configured: 2 of 5 prompts" in text


def test_against_a_plain_server_of_a_checkpoint_that_was_trained_for_it() -> None:
    good, lost = LOST
    with routed_server(nats=good) as url, routed_server(counters=False, nats=lost, odd=lambda p: p >= CUT) as plain:
        code, document = checked(url, "--against", plain)
    against = document["against"]
    assert (code, document["trained"], against["routed"]) == (0, True, False)
    assert (against["below"]["different"], against["below"]["worst"]) == (0, 0.0)
    assert against["above"]["different"] == against["above"]["tokens"] > 48
    assert document["verdict"][1] == (
        f"matches {plain} to 0.0e+00 below position 512; "
        f"linear attention changes {against['above']['tokens']} of {against['above']['tokens']} tokens from there on"
    )
    assert document["verdict"][2].startswith("this routing is the better one: perplexity 2.")
    served, other = document["perplexity"]
    assert [r["positions"] for r in served["ranges"]] == [[0, 255], [256, 511], [512, 1023], [1024, 2045]]
    assert other["ranges"][0]["factor"] == [1.0, 1.0, 1.0]
    assert other["ranges"][2]["factor"][1] > 5


def test_against_a_plain_server_of_one_that_was_not() -> None:
    good, lost = LOST
    with routed_server(nats=lost) as url, routed_server(counters=False, nats=good) as plain:
        code, document = checked(url, "--against", plain)
        told = run(url, "--model", str(DEMO), "--against", plain)[1]
    a, b = document["perplexity"][1]["value"], document["perplexity"][0]["value"]
    assert (code, document["trained"], document["passed"]) == (1, False, False)
    assert b > 5 * a
    assert document["verdict"][2] == (
        f"this checkpoint was not trained for this routing: perplexity rises from {a:.2f} ({plain}) to {b:.2f} "
        "from position 512 on"
    )
    assert "Perplexity of held-out text by position (4 windows; lower is better)" in told
    assert f"against {plain}, below position 512: " in told


def test_a_dispatcher_that_disturbs_what_it_should_not_touch() -> None:
    with routed_server() as url, routed_server(counters=False, odd=lambda p: p == 40) as plain:
        code, document = checked(url, "--against", plain)
    assert (code, document["passed"]) == (1, False)
    assert document["verdict"][1].startswith(f"does NOT match {plain} below position 512: 1 of ")


@pytest.mark.parametrize(("odd", "code"), [(None, 0), (600, 1)])
def test_against_a_server_that_routes_too_all_must_agree(odd: int | None, code: int) -> None:
    with routed_server() as url, routed_server(odd=lambda p: p == odd) as other:
        found, document = checked(url, "--against", other)
    assert found == code
    words = f"answers as {other} does" if odd is None else f"does NOT match {other} from position 512 on: 1 of "
    assert document["verdict"][1].startswith(words)


def test_another_model_is_no_comparison() -> None:
    with (
        routed_server() as url,
        routed_server(begin=1) as other,
        pytest.raises(UsageError, match="serves another model"),
    ):
        run(url, "--model", str(DEMO), "--against", other)


def test_a_server_without_counters() -> None:
    with routed_server(counters=False) as url, pytest.raises(HybridctlError, match="no routed model is served there"):
        run(url, "--model", str(DEMO))


def test_nothing_named_and_nothing_running() -> None:
    with pytest.raises(UsageError, match="no server runs"):
        run()
    with pytest.raises(UsageError, match="nothing answers at") as raised:
        run("http://127.0.0.1:1")
    assert raised.value.hint.startswith("hybridctl serve")
    with routed_server() as url, pytest.raises(UsageError, match="is no server of ours"):
        run(url)


def test_what_can_be_compared_with() -> None:
    with pytest.raises(UsageError, match="allowed are no-hybrid and an address"):
        run("http://127.0.0.1:1", "--against", "plain")
    with routed_server() as url, pytest.raises(UsageError, match="a server runs already"):
        run(url, "--model", str(DEMO), "--", "--seed", "3")
