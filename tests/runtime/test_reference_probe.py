"""The reference is asked only where it can answer, and says why it did not."""

from __future__ import annotations

import os
from dataclasses import replace
from pathlib import Path

import pytest

from hybridctl.runtime import reference_probe
from hybridctl.runtime.checkpoint import Checkpoint, demo
from hybridctl.runtime.reference_probe import NoReferenceError, missing, reference


def test_a_reference_that_fails_says_why(tmp_path: Path) -> None:
    with pytest.raises(NoReferenceError, match="the reference fails: "):
        reference(tmp_path, [[1, 2]], [1], [None])


def test_what_is_not_installed_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(reference_probe.importlib.util, "find_spec", lambda name: None if name == "torch" else object())
    assert missing(demo()).startswith("torch not installed in ")


@pytest.fixture
def installed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(reference_probe.importlib.util, "find_spec", lambda name: object())
    monkeypatch.setattr(reference_probe, "_free", lambda: 8 << 30)


@pytest.mark.usefixtures("installed")
def test_what_the_memory_does_not_hold_is_not_tried(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    model = Checkpoint("m", tmp_path, {"num_hidden_layers": 4, "num_attention_heads": 8})
    (tmp_path / "model.safetensors").touch()
    assert missing(model, [2048] * 16) == ""
    assert missing(model, [65536]) == "it would take 640 GiB of memory, and 8 are free"
    os.truncate(tmp_path / "model.safetensors", 4 << 30)  # sparse
    assert missing(model) == "it would take 12 GiB of memory, and 8 are free"
    monkeypatch.setattr(reference_probe, "_free", lambda: None)
    assert missing(model) == ""


@pytest.mark.usefixtures("installed")
def test_what_would_take_hours_is_not_tried() -> None:
    assert missing(demo(), [2048] * 16 * 10) == ""
    large = replace(demo(), config={"num_hidden_layers": 28, "num_attention_heads": 16})
    assert missing(large, [5000] * 16) == "it would take 92 TFLOP on the CPU; more than 20 are not tried"


def test_files_that_are_not_here(installed: None) -> None:
    assert missing(Checkpoint("owner/name")) == "the checkpoint's files are not at hand"


def test_free_memory_is_told_or_unknown() -> None:
    free = reference_probe._free()
    assert free is None or 1 << 20 < free < 1 << 60
