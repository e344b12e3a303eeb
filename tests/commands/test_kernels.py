"""``hybridctl kernels`` from outside; what compiles and what needs a GPU is tested beside the kernels."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import pytest
from typer.testing import CliRunner, Result

from hybridctl.app import app
from hybridctl.errors import HybridctlError, UsageError
from hybridctl.kernels import build as building
from tests.kernels.test_build import fake_nvcc


@pytest.fixture
def nvcc(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A compiler that answers at once, and a cache of its own."""
    monkeypatch.setenv("HYBRIDCTL_HOME", str(tmp_path / "home"))
    compiler = fake_nvcc(tmp_path / "bin")
    monkeypatch.setattr(building, "find_compiler", lambda environ=None: compiler)
    for name in ("NVCC_APPEND_FLAGS", "NVCC_PREPEND_FLAGS"):
        monkeypatch.delenv(name, raising=False)
    return tmp_path


def kernels(*arguments: str) -> Result:
    return CliRunner().invoke(app, ["kernels", *arguments])


def test_builds_says_where_and_how_by_hand(nvcc: Path) -> None:
    out = nvcc / "linear_attention.ptx"
    first = kernels("build", "--arch", "sm_90", "-o", str(out))
    again = json.loads(kernels("build", "--arch", "sm_90", "--json").stdout)
    assert first.exit_code == 0
    assert first.stdout.startswith("built: sm_90, nvcc 13.0, no fast-math in the PTX")
    assert "nvcc -std=c++17 -ptx -arch=sm_90" in first.stdout
    assert out.read_text() == Path(again["ptx"]).read_text()
    assert (again["schema_version"], again["fresh"], again["ptx_isa"]) == (1, False, [9, 0])
    listed = json.loads(kernels("list", "--json").stdout)
    assert [row["arch"] for row in listed["builds"]] == ["sm_90"]


def test_nothing_built_yet(nvcc: Path) -> None:
    assert kernels("list").stdout.startswith("nothing is built yet")


@pytest.mark.parametrize(
    ("arguments", "why"),
    [
        (("--arch", "sm_75"), "sm_80 or newer"),
        (("--arch", "sm_90", "--flag=--use_fast_math"), "fast-math"),
        (("--arch", "sm_90", "--value-size", "80"), "a multiple of 32"),
        (("--arch", "sm_90", "-o", "/no/such/folder/x.ptx"), "can't write"),
    ],
)
def test_refusals(nvcc: Path, arguments: tuple[str, ...], why: str) -> None:
    error = kernels("build", *arguments).exception
    assert isinstance(error, UsageError)
    assert why in str(error)


def test_check_without_torch_says_what_is_missing(tmp_path: Path) -> None:
    program = tmp_path / "python"
    program.write_text("#!/bin/sh\necho \"ModuleNotFoundError: No module named 'torch'\" >&2\nexit 1\n")
    program.chmod(0o755)
    error = kernels("check", "--python", str(program)).exception
    assert isinstance(error, HybridctlError)
    assert "No module named 'torch'" in str(error)
    assert "--python PATH" in error.hint


def test_check_shows_what_is_wrong(tmp_path: Path) -> None:
    rows = [
        {"form": "128", "kernel": kernel, "error": error, "limit": 5e-3, "rows": [1], "paged": False}
        for kernel, error in (("prefill", 2e-3), ("decode", float("nan")))
    ]
    document = {
        "schema_version": 1, "gpu": "a GPU", "arch": "sm_90", "compiler": ["nvcc", "13.0"], "results": rows,
        "chunked": {}, "microseconds": {"128": {"decode 64": 17.0}},
    }  # fmt: skip
    program = tmp_path / "python"
    program.write_text(f"#!{sys.executable}\nprint({json.dumps(document)!r})\n")
    program.chmod(0o755)
    result = kernels("check", "--python", str(program))
    assert result.exit_code == 1
    lines = result.stdout.splitlines()
    assert [line.endswith("WRONG") for line in lines if line.startswith("128 ") and "e-0" in line] == [False, True]
    assert "1 of 2 comparisons are off" in result.stdout
