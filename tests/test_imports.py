"""Who may import whom (the contracts stand in pyproject.toml), and what a start does not load."""

from __future__ import annotations

import pkgutil
import subprocess
import sys
from pathlib import Path

import pytest

import hybridctl.doctor

ROOT = Path(__file__).parents[1]
HEAVY = ("rich", "pydantic", "huggingface_hub", "torch", "vllm", "numpy", "requests", "httpx")
# Loaded when a page is drawn or the knowledge is compiled, never at a start.
LATE = {f"hybridctl.doctor.{name}" for name in ("schema", "stack_schema", "terminal", "pages", "fields", "prose")}


def loaded_by(modules: list[str]) -> set[str]:
    """Top-level packages in memory after a fresh interpreter imported the modules."""
    code = "import importlib, sys\nfor m in sys.argv[1:]: importlib.import_module(m)\nprint(*sys.modules)"
    done = subprocess.run(
        [sys.executable, "-c", code, *modules], capture_output=True, text=True, check=False, timeout=60
    )
    assert done.returncode == 0, done.stderr
    return {name.partition(".")[0] for name in done.stdout.split()}


def test_contracts_hold() -> None:
    pytest.importorskip("importlinter")
    code = "import sys; from importlinter.cli import lint_imports; sys.exit(lint_imports(no_cache=True))"
    done = subprocess.run(
        [sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, check=False, timeout=120
    )
    assert done.returncode == 0, done.stdout + done.stderr


def test_start_of_the_command_line_loads_nothing_heavy() -> None:
    assert not loaded_by(["hybridctl.cli"]) & set(HEAVY)


def test_doctor_loads_nothing_heavy() -> None:
    found = pkgutil.walk_packages(hybridctl.doctor.__path__, "hybridctl.doctor.")
    modules = sorted(m.name for m in found if m.name not in LATE)
    assert "hybridctl.doctor.knowledge" in modules
    assert not loaded_by(modules) & set(HEAVY)
