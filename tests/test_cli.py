"""The entry point: one line for every wrong usage, and streams that are closed, full, broken or of an odd encoding."""

import os
import subprocess
import sys
from pathlib import Path

import pytest


def run(*args: str, shell: str = "", **env: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "hybridctl", *args]
    if shell:
        command = ["bash", "-c", f'set -o pipefail; "$@" {shell}', "bash", *command]
    return subprocess.run(
        command, capture_output=True, text=True, encoding="utf-8", errors="replace", timeout=60, check=False,
        env={**os.environ, **env},
    )  # fmt: skip


@pytest.mark.parametrize(
    "args", [("foo",), ("doctor", "--foo"), ("doctor", "--fail-on", "x"), ("doctor", "--log"), ("runbook", "--lang")]
)
def test_wrong_usage_is_one_line_and_names_the_help(args: tuple[str, ...]) -> None:
    done = run(*args)
    assert (done.returncode, done.stdout, done.stderr.count("\n")) == (2, "", 1)
    assert done.stderr.startswith("error: ")
    assert "--help" in done.stderr


def test_no_command_shows_the_help() -> None:
    done = run()
    assert done.returncode == 2
    assert "doctor" in done.stdout + done.stderr
    assert (done.stdout + done.stderr).count("\n") > 5


@pytest.mark.parametrize("args", [("recipes",), ("recipes", "--json"), ("doctor",), ("--help",)])
def test_a_reader_that_went_away_ends_us_as_it_ends_other_tools(args: tuple[str, ...]) -> None:
    nobody, pipe = os.pipe()
    os.close(nobody)
    with os.fdopen(pipe, "wb") as broken:
        done = subprocess.run(
            [sys.executable, "-m", "hybridctl", *args], stdout=broken, stderr=subprocess.PIPE, timeout=60, check=False
        )
    assert (done.returncode, done.stderr) == (141, b"")


def test_an_interrupt_while_the_parser_is_loaded_is_one_line(tmp_path: Path) -> None:
    (tmp_path / "typer.py").write_text("raise KeyboardInterrupt\n")  # as if Ctrl-C came just then
    done = run("recipes", PYTHONPATH=f"{tmp_path}{os.pathsep}{os.environ.get('PYTHONPATH', '')}")
    assert (done.returncode, done.stdout, done.stderr) == (130, "", "error: interrupted\n")


@pytest.mark.parametrize("closed", [">&-", "<&-", "2>&-", ">&- 2>&- <&-"])
def test_closed_streams_change_no_exit_code(closed: str) -> None:
    assert run("recipes", shell=closed).returncode == 0
    assert run("doctor", "--log", "/no/such/file", shell=closed).returncode == 2
    assert run("recipes", shell=closed).stderr == ""


def test_closed_standard_input_is_said() -> None:
    done = run("doctor", "--log", "-", shell="<&-")
    assert (done.returncode, done.stderr.count("\n")) == (2, 1)
    assert "standard input" in done.stderr


def test_a_full_disk_is_one_line() -> None:
    done = run("recipes", shell=">/dev/full")
    assert (done.returncode, done.stderr.count("\n")) == (3, 1)
    assert "No space left" in done.stderr
    assert "HYBRIDCTL_DEBUG" not in done.stderr  # no fault of ours to report


@pytest.mark.parametrize("encoding", ["ascii", "latin-1"])
def test_help_prints_in_any_encoding(encoding: str) -> None:
    done = run("doctor", "--help", PYTHONIOENCODING=encoding)
    assert (done.returncode, done.stderr) == (0, "")


@pytest.mark.parametrize("columns", ["0", "1", "²", "-3", "99999999999999999999"])
def test_any_width(columns: str) -> None:
    done = run("recipes", COLUMNS=columns)
    assert (done.returncode, done.stderr) == (0, "")
