"""The reference is asked only where it can answer, and says why it did not."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from hybridctl.runtime import reference_probe
from hybridctl.runtime.reference_probe import NoReferenceError, missing, reference


def test_a_reference_that_fails_says_why(tmp_path: Path) -> None:
    with pytest.raises(NoReferenceError, match="the reference fails: "):
        reference(tmp_path, [[1, 2]], [1], [None])


def test_what_is_not_installed_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(reference_probe.importlib.util, "find_spec", lambda name: None if name == "torch" else object())
    assert missing(tmp_path).startswith("torch not installed in ")


def test_weights_that_the_memory_does_not_hold_are_not_tried(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(reference_probe.importlib.util, "find_spec", lambda name: object())
    file = tmp_path / "model.safetensors"
    file.touch()
    assert missing(tmp_path) == ""
    os.truncate(file, 1 << 40)  # sparse
    assert "its weights take 3072 GiB in float32" in missing(tmp_path)
    monkeypatch.setattr(reference_probe, "_free", lambda: None)
    assert missing(tmp_path) == ""
