"""The compiled copy of the data files: whatever stands in it, or wherever it would lie, the data are right."""

import json
from pathlib import Path
from typing import Any

import pytest

from hybridctl.data import cache_dir, load_compiled


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("HYBRIDCTL_HOME", str(tmp_path / "home"))
    data = tmp_path / "data"
    data.mkdir()
    (data / "a.toml").write_text("x = 1\n")
    return data


def compile_one(path: Path) -> dict[str, Any]:
    return {"name": path.name}


def test_a_second_run_compiles_nothing(folder: Path) -> None:
    load_compiled(folder, compile_one)
    assert load_compiled(folder, lambda path: pytest.fail("compiled again")) == [{"name": "a.toml"}]


@pytest.mark.parametrize("body", [b"", b"[", b"null", b"[]", b"{}", b'[{"id": 1}]', b"[" * 200_000, b"\xff\n[]"])
def test_a_damaged_copy_is_made_anew(folder: Path, body: bytes) -> None:
    load_compiled(folder, compile_one)
    (copy,) = (cache_dir() / "compiled").iterdir()
    copy.write_bytes(body)
    assert load_compiled(folder, compile_one) == [{"name": "a.toml"}]
    assert json.loads(copy.read_bytes().partition(b"\n")[2]) == [{"name": "a.toml"}]


@pytest.mark.parametrize("home", ["~no-such-user/x", "/dev/null", "/proc/none", "x/" * 1500])
def test_a_home_that_can_not_be_written_costs_time_only(
    folder: Path, home: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    here = tmp_path / "here"
    here.mkdir()
    monkeypatch.chdir(here)
    monkeypatch.setenv("HYBRIDCTL_HOME", home)
    assert load_compiled(folder, compile_one) == [{"name": "a.toml"}]
    assert not [p for p in here.iterdir() if p.name.startswith("~")]


def test_nobody_s_home_makes_no_folder_here(folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("HYBRIDCTL_HOME")
    monkeypatch.delenv("XDG_CACHE_HOME", raising=False)
    monkeypatch.setenv("HOME", "~")
    load_compiled(folder, compile_one)
    assert not (tmp_path / "~").exists()
