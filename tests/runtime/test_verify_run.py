"""Which servers a verification needs, and that they never live at the same time where memory would not do."""

from __future__ import annotations

import json
import os
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from fake_routed import CUT, routed_server

from hybridctl.errors import HybridctlError, UsageError
from hybridctl.runtime import reference_probe, run_dir, verify_run
from hybridctl.runtime.checkpoint import DEMO
from hybridctl.runtime.verify_run import Request


@pytest.fixture(autouse=True)
def apart(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("HYBRIDCTL_HOME", str(tmp_path))
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))  # a run's temporary files go with the test
    monkeypatch.setattr(reference_probe, "missing", lambda *_: "torch not installed here")


@pytest.fixture
def lives(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """What is started and ended, in order."""
    told: list[str] = []

    @contextmanager
    def borrowed(checkpoint: Any, say: Any, python: Any, no_hybrid: bool = False, extra: Any = ()) -> Iterator[str]:
        name = ("plain " if no_hybrid else "routed ") + " ".join(extra)
        told.append(f"+{name}")
        with routed_server(counters=not no_hybrid, odd=lambda p: no_hybrid and p >= CUT) as url:
            yield url
        told.append(f"-{name}")

    monkeypatch.setattr(verify_run, "borrowed", borrowed)
    return told


@pytest.fixture
def copy(tmp_path: Path) -> Path:
    """The demo model's checkpoint, as anybody's."""
    folder = tmp_path / "copy"
    folder.mkdir()
    for file in DEMO.iterdir():
        (folder / file.name).symlink_to(file)
    return folder


def test_a_model_is_served_twice_one_after_the_other_with_the_same_flags(lives: list[str], copy: Path) -> None:
    request = Request(str(copy), against="no-hybrid", windows=1, extra=("--dtype", "float32"))
    report = verify_run.run(request, lambda line: None)
    assert lives == [f"{sign}{kind} --dtype float32" for kind in ("routed", "plain") for sign in "+-"]
    assert report.comparison is not None
    assert (report.comparison.name, report.comparison.agrees) == ("--no-hybrid", True)


def test_without_being_asked_it_is_served_once(lives: list[str], copy: Path) -> None:
    assert verify_run.run(Request(str(copy), windows=0), lambda line: None).comparison is None
    assert lives == ["+routed ", "-routed "]


def note_running(url: str, source: Path) -> None:
    run = run_dir.create(url=url, source=str(source), model="name")
    run.note(state="ready", pid=os.getpid(), ticks=run_dir.start_ticks(os.getpid()))


def test_no_second_server_beside_one_that_holds_the_memory(lives: list[str], copy: Path) -> None:
    with routed_server() as url:
        note_running(url, copy)
        with pytest.raises(UsageError, match="holds the memory that a second server needs") as caught:
            verify_run.run(Request(against="no-hybrid"), lambda line: None)
    assert caught.value.hint == f"stop it, then hybridctl verify {copy} --against no-hybrid: one after the other"
    assert lives == []


def test_the_demo_is_small_enough_for_two(lives: list[str]) -> None:
    with routed_server() as url:
        note_running(url, DEMO)
        verify_run.run(Request(against="no-hybrid", windows=0), lambda line: None)
    assert lives == ["+plain ", "-plain "]


def test_a_model_without_a_routing_is_not_started(lives: list[str], copy: Path) -> None:
    config = json.loads((DEMO / "config.json").read_text())
    del config["hybrid_config"]
    (copy / "config.json").unlink()
    (copy / "config.json").write_text(json.dumps(config))
    with pytest.raises(HybridctlError, match="declares no routing"):
        verify_run.run(Request(str(copy)), lambda line: None)
    assert lives == []
