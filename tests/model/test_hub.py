"""config.json is found in folders and in the hub's cache, without the network."""

from __future__ import annotations

import threading
import time
from pathlib import Path

import pytest

from hybridctl.model.hub import cached_config, fetch_config, is_repository


def test_local(tmp_path: Path) -> None:
    file = tmp_path / "config.json"
    file.write_text("{}")
    assert cached_config(str(tmp_path)) == file
    assert cached_config(str(file)) == file
    assert cached_config(str(tmp_path / "nowhere")) is None


def test_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from huggingface_hub import constants

    monkeypatch.setenv("HF_HUB_CACHE", str(tmp_path))
    monkeypatch.setattr(constants, "HF_HUB_CACHE", str(tmp_path))
    assert cached_config("o/m-1") is None
    root = tmp_path / "models--o--m-1"
    (root / "refs").mkdir(parents=True)
    commit = "a" * 40
    (root / "refs" / "main").write_text(commit)
    (root / "snapshots" / commit).mkdir(parents=True)
    (root / "snapshots" / commit / "config.json").write_text("{}")
    found = cached_config("o/m-1")
    assert found is not None
    assert found.read_text() == "{}"


@pytest.mark.parametrize("name", ["", "Qwen3.6 AWQ", "a/b/c", "../x", "a\0b", "x" * 5000, "o/m..x", "C:\\m\\x"])
def test_what_is_no_repository_is_not_asked_for(name: str) -> None:
    assert not is_repository(name)
    assert cached_config(name) is None
    path, why = fetch_config(name)
    assert path is None
    assert why


def test_failure_is_one_line(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    import huggingface_hub
    from huggingface_hub.errors import LocalEntryNotFoundError

    def fail(*_: object, **__: object) -> str:
        raise LocalEntryNotFoundError("offline\nand more")

    monkeypatch.setenv("HF_HUB_CACHE", str(tmp_path))
    monkeypatch.setattr(huggingface_hub, "hf_hub_download", fail)
    path, why = fetch_config("o/m-1")
    assert path is None
    assert why.startswith("o/m-1: ")
    assert "\n" not in why


def test_a_hub_that_does_not_answer_costs_no_more_than_the_limit(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    import huggingface_hub

    release = threading.Event()

    def hang(*_: object, **__: object) -> str:
        release.wait(30)
        return "config.json"

    monkeypatch.setenv("HF_HUB_CACHE", str(tmp_path))
    monkeypatch.setattr(huggingface_hub, "hf_hub_download", hang)
    start = time.monotonic()
    path, why = fetch_config("o/m-1", timeout=0.1)
    release.set()
    assert time.monotonic() - start < 10
    assert path is None
    assert "within 0.1 seconds" in why
