"""What users get: the wheel (built from the sdist, so that both are proven) and its entry point in a fresh environment."""

from __future__ import annotations

import os
import subprocess
import sys
import tarfile
import zipfile
from pathlib import Path

import pytest

import hybridctl

ROOT = Path(__file__).parents[1]
pytestmark = pytest.mark.slow


def run(*command: str | Path, cwd: Path) -> str:
    environment = {k: v for k, v in os.environ.items() if k not in ("PYTHONPATH", "PYTHONHOME")}
    done = subprocess.run(command, cwd=cwd, capture_output=True, text=True, check=False, timeout=300, env=environment)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


@pytest.fixture(scope="module")
def dist(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with the sdist and the wheel that was built from it."""
    pytest.importorskip("build")
    pytest.importorskip("hatchling")
    folder = tmp_path_factory.mktemp("dist")
    run(sys.executable, "-m", "build", "--no-isolation", "--outdir", folder, ROOT, cwd=folder)
    return folder


@pytest.fixture(scope="module")
def wheel(dist: Path) -> Path:
    return next(dist.glob("*.whl"))


@pytest.fixture(scope="module")
def names(wheel: Path) -> set[str]:
    with zipfile.ZipFile(wheel) as archive:
        return set(archive.namelist())


def test_every_recipe_is_in_the_wheel(names: set[str]) -> None:
    listed = run("git", "ls-files", "recipes", cwd=ROOT).split() if (ROOT / ".git").exists() else []
    assert {f"hybridctl/{name}" for name in listed} <= names
    assert any(name.startswith("hybridctl/recipes/known_bad/") for name in names)


def test_wheel_holds_types_licence_and_no_tests(names: set[str]) -> None:
    assert "hybridctl/py.typed" in names
    info = f"hybridctl-{hybridctl.__version__}.dist-info"
    assert {f"{info}/licenses/LICENSE", f"{info}/licenses/NOTICE", f"{info}/entry_points.txt"} <= names
    assert {name.split("/")[0] for name in names} == {"hybridctl", info}
    assert not [name for name in names if "/tests/" in name or Path(name).name.startswith("test_")]


def test_sdist_holds_what_the_tests_need(dist: Path) -> None:
    with tarfile.open(next(dist.glob("*.tar.gz"))) as archive:
        inside = {name.partition("/")[2] for name in archive.getnames()}
    assert {"pyproject.toml", "LICENSE", "NOTICE", "Makefile", "tests/test_wheel.py", "docs/demo/env.txt"} <= inside


@pytest.mark.network
def test_wheel_runs_in_a_fresh_environment(wheel: Path, tmp_path: Path) -> None:
    run(sys.executable, "-m", "venv", tmp_path / "venv", cwd=tmp_path)
    python = tmp_path / "venv" / "bin" / "python"
    run(python, "-m", "pip", "install", "--quiet", wheel, cwd=tmp_path)
    script = tmp_path / "venv" / "bin" / "hybridctl"
    assert run(script, "--version", cwd=tmp_path).strip() == f"hybridctl {hybridctl.__version__}"
    assert run(python, "-m", "hybridctl", "--version", cwd=tmp_path).strip() == f"hybridctl {hybridctl.__version__}"
    where = run(python, "-c", "from hybridctl.data import recipes_dir; print(recipes_dir())", cwd=tmp_path).strip()
    assert Path(where).parent.name == "hybridctl"
    assert tmp_path in Path(where).parents
