"""Each kind of version outside the window gets its own line: from serve before anything starts, and from the plugin itself."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest
from fake_vllm import make_environment

from hybridctl.runtime.vllm_plugin.window import VersionError, check_version

ANCIENT, OLDER, OLD, NEW = "its engine (V0)", "no registry of cache specs", "seq_lens_cpu_upper_bound", "is too new"
OUTSIDE = [("0.6.3", ANCIENT), ("0.29.0", OLD), ("0.34.0", NEW)]


@pytest.mark.parametrize("version", ["0.30.0", "0.30.1rc1", "0.32.0", "0.32.0+cpu", "0.33.2", "0.33.1.dev4+gabc"])
def test_inside(version: str) -> None:
    check_version(version)


@pytest.mark.parametrize(
    ("version", "why"),
    [
        *OUTSIDE,
        ("0.6.3.post1", ANCIENT),
        ("0.11.2", OLDER),
        ("0.22.1", OLDER),
        ("0.23.0", OLD),
        ("0.34.0rc1", NEW),
        ("0.34.1.dev3+gdeadbee", NEW),
        ("1.0.0", NEW),
    ],
)
def test_outside(version: str, why: str) -> None:
    with pytest.raises(VersionError) as caught:
        check_version(version)
    line = str(caught.value)
    assert why in line
    assert line.startswith(f"vLLM {version} is too ")
    assert ">=0.30,<0.34" in line
    assert "\n" not in line
    assert ("--upgrade hybridctl" in str(caught.value.hint)) is (why == NEW)
    assert ("hybridctl doctor" in str(caught.value.hint)) is (why != NEW)


@pytest.mark.parametrize(("version", "why"), OUTSIDE)
def test_serve_refuses_before_anything_starts(tmp_path: Path, version: str, why: str) -> None:
    python = make_environment(tmp_path, version=version)
    env = {**os.environ, "HYBRIDCTL_HOME": str(tmp_path / "home"), "HF_HUB_OFFLINE": "1", "NO_COLOR": "1"}
    line = [sys.executable, "-m", "hybridctl", "serve", "--demo", "--python", str(python)]
    done = subprocess.run(line, env=env, capture_output=True, text=True, check=False, timeout=60)
    assert done.returncode == 2
    assert why in done.stderr
    assert done.stdout == ""
    assert not (tmp_path / "home" / "runs").exists()


@pytest.mark.parametrize(("version", "why"), [*OUTSIDE, ("0.32.0", "")])
def test_the_plugin_refuses_when_a_wrong_vllm_loads_it(tmp_path: Path, version: str, why: str) -> None:
    """In a process where vLLM is nothing but its version: what comes after the check fails on the missing rest."""
    (tmp_path / "vllm").mkdir()
    (tmp_path / "vllm" / "__init__.py").write_text(f"__version__ = {version!r}\n", encoding="utf-8")
    env = {**os.environ, "HYBRIDCTL_PLUGIN": "1", "PYTHONPATH": str(tmp_path)}
    code = "from hybridctl.runtime.vllm_plugin.plugin import register; register()"
    done = subprocess.run(
        [sys.executable, "-c", code], env=env, capture_output=True, text=True, check=False, timeout=60
    )
    last = done.stderr.strip().splitlines()[-1]
    assert done.returncode == 1
    if why:
        assert last.startswith(f"hybridctl.runtime.vllm_plugin.window.VersionError: vLLM {version} ")
        assert why in last
    else:
        assert "ModuleNotFoundError: No module named 'vllm.model_executor'" in last
