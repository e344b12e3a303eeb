"""``hybridctl report``: what it says first, what it never holds, where it writes."""

from __future__ import annotations

import io
import json
import os
import socket
from pathlib import Path

import pytest

from hybridctl.doctor.bundle import make, redactor_for
from hybridctl.doctor.diagnose import Inputs, diagnose, text_stream
from hybridctl.doctor.log_window import window
from tests.commands.test_doctor import MAMBA_LOG, run
from tests.doctor.test_redact import KEPT, PLANTED

COMMAND = "vllm serve Qwen/Qwen3.6-27B-FP8 --max-num-seqs 1024 --tensor-parallel-size 2"
ENV = "vLLM Version : 0.32.0\nNvidia driver version : 580.95.05\n[pip3] torch==2.13.0+cu130\nnvidia-cublas-cu12==12.9.1.4\n"


@pytest.fixture
def log(tmp_path: Path) -> Path:
    path = tmp_path / "crash.log"
    path.write_text(MAMBA_LOG)
    return path


def test_it_says_first_what_is_known(log: Path) -> None:
    done = run("report", "--log", str(log), "--env", "-", "--command", COMMAND, stdin=ENV)
    assert (done.returncode, "nothing was written" in done.stderr) == (0, True)
    first = done.stdout.splitlines()[0]
    assert first.startswith("> This looks like https://github.com/vllm-project/")
    assert "read it before you file a new one" in first
    for part in (
        "- vLLM: `0.32.0`",
        "driver: `580.95.05`",
        "vllm serve Qwen/Qwen3.6-27B-FP8 --max-num-seqs 1024 --tensor-parallel-size 2",
        "(error)",
        "exceeds available Mamba cache blocks",
        "pkg.nvidia-cublas-cu12 = 12.9.1.4",
        "## Log",
    ):
        assert part in done.stdout, part


def test_one_document_that_the_doctor_can_read(log: Path, tmp_path: Path) -> None:
    done = run("report", "--log", str(log), "--env", "-", "--command", COMMAND, "--json", stdin=ENV)
    document = json.loads(done.stdout)
    assert document["schema_version"] == 1
    assert document["upstream"]["finding"] == document["findings"][0]["id"]
    assert document["upstream"]["url"] in document["findings"][0]["source"]
    assert document["launch"] == COMMAND
    shown = {row[0]: row[1] for row in document["log"]["lines_shown"]}
    assert "exceeds available Mamba cache blocks" in shown[document["log"]["innermost"]["line"]]
    saved = tmp_path / "report.json"
    saved.write_text(done.stdout)
    again = json.loads(run("doctor", "--env", str(saved), "--json").stdout)
    assert again["subject"]["engine_version"] == "0.32.0"
    assert again["subject"]["driver"] == "580.95.05"


def test_an_unknown_fault_is_called_so(tmp_path: Path) -> None:
    path = tmp_path / "log"
    path.write_text(
        'Traceback (most recent call last):\n  File "x.py", line 1, in f\nQuuxError: the frobnicator is out of cheese\n'
    )
    done = run("report", "--log", str(path))
    assert done.returncode == 0
    assert done.stdout.startswith("> Nothing that is known looks like this.")
    assert "the frobnicator is out of cheese" in done.stdout
    assert json.loads(run("report", "--log", str(path), "--json").stdout)["upstream"] is None


CONFIG = {"architectures": ["Qwen3NextForCausalLM"], "model_type": "qwen3_next"}


def planted(line: str) -> Inputs:
    """The line in every input, and in the log beside the error, so that it is among the lines shown; as a key as well."""
    return Inputs(
        env=f"{ENV}\n{line}\n",
        log=text_stream(f"{line}\n{MAMBA_LOG}\n{line}\n"),
        config=json.dumps({**CONFIG, "note": line, line[:40]: 1}),
        command=f"#!/bin/sh\n# {line.splitlines()[0]}\nvllm serve Qwen/Qwen3.6-27B-FP8 --max-num-seqs 1024\n",
    )


@pytest.mark.parametrize(("kind", "line", "piece"), PLANTED, ids=[row[0] for row in PLANTED])
def test_nothing_planted_survives(kind: str, line: str, piece: str) -> None:
    inputs = planted(line)
    assert inputs.log is not None
    log = inputs.log.read()
    inputs.log = io.BytesIO(log)
    result = diagnose(inputs)
    shown = window(io.BytesIO(log), 1, 20, 20)
    assert sum(piece in text for _, text in shown) == 2 or "\n" in line
    made = make(
        result, shown, redactor_for(result, [str(inputs.env), str(inputs.command), "\n".join(t for _, t in shown)])
    )
    keys = {fact["key"] for fact in made.document["facts"]}
    values = json.dumps([{**made.document, "facts": []}, [fact["value"] for fact in made.document["facts"]]])
    assert piece not in values
    assert f"config.{line[:40]}" in keys or "." in line or "\n" in line or " " in line  # keys stay as they are
    assert made.document["hidden"]
    assert made.findings[0].id == "max-num-seqs-exceeds-mamba-blocks"  # and the fault is told as before
    assert made.document["launch"] == "vllm serve Qwen/Qwen3.6-27B-FP8 --max-num-seqs 1024"


def test_nothing_of_all_that_survives_in_any_form(tmp_path: Path) -> None:
    lines = "\n".join(row[1] for row in PLANTED)
    log, out = tmp_path / "log", tmp_path / "out"
    log.write_text(f"{lines}\n{MAMBA_LOG}{lines}\n")
    given = ("report", "--log", str(log), "--env", "-", "--lines", "60")
    done = run(*given, "--output", f"{out}/", stdin=f"{ENV}\n{lines}\n")
    assert done.returncode == 0, done.stderr
    written = [(out / "report.md").read_text(), (out / "report.json").read_text()]
    printed = run(*given, stdin=f"{ENV}\n{lines}\n").stdout
    assert printed == written[0]
    for kind, _, piece in PLANTED:
        for text in (done.stdout, done.stderr, *written):
            assert piece not in text, kind


def test_keys_and_versions_stay(tmp_path: Path) -> None:
    log = tmp_path / "log"
    log.write_text("\n".join([*KEPT, MAMBA_LOG, *KEPT]))
    done = run("report", "--log", str(log), "--lines", "60", "--json", "--env", "-", stdin="\n".join([ENV, *KEPT]))
    document = json.loads(done.stdout)
    shown = {text for _, text in document["log"]["lines_shown"]}
    assert set(KEPT) <= shown
    facts = {row["key"]: row["value"] for row in document["facts"]}
    assert facts["pkg.nvidia-cublas-cu12"] == "12.9.1.4"
    assert facts["pkg.nvidia-curand-cu12"] == "10.3.10.19"
    assert facts["driver.version"] == "580.95.05"


def test_this_machine_is_not_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    home = tmp_path / "places" / "weiwang"
    home.mkdir(parents=True)
    monkeypatch.setenv("HOME", str(home))
    monkeypatch.setenv("USER", "weiwang")
    monkeypatch.setenv("LOGNAME", "weiwang")
    monkeypatch.setenv("VLLM_CACHE_ROOT", f"{home}/cache")
    monkeypatch.setenv("HF_TOKEN", "hf_" + "AbCdEfGhIjKlMnOp0123")
    text = run("report", "--local", "--env", "-", stdin=f"pytorch 2.13.0\n{socket.gethostname()} weiwang\n").stdout
    assert "env.VLLM_CACHE_ROOT = ~/cache" in text
    assert "weiwang" not in text
    assert "AbCdEfGh" not in text
    if len(socket.gethostname()) > 3:
        assert f" {socket.gethostname()} " not in text


def test_files_are_written_once(log: Path, tmp_path: Path) -> None:
    target = tmp_path / "new" / "report.md"
    first = run("report", "--log", str(log), "-o", str(target))
    assert first.returncode == 0
    assert "https://github.com/" in first.stdout
    assert str(target) in first.stdout
    assert target.read_text().startswith("> This looks like")
    assert run("report", "--log", str(log), "-o", str(target)).returncode == 0  # the same again changes nothing
    target.write_text("mine")
    refused = run("report", "--log", str(log), "-o", str(target))
    assert (refused.returncode, target.read_text()) == (2, "mine")
    assert "--force" in refused.stderr
    assert run("report", "--log", str(log), "-o", str(target), "--force", "-q").stdout == ""
    assert target.read_text().startswith("> This looks like")
    told = json.loads(run("report", "--log", str(log), "-o", str(tmp_path / "x.json"), "--json").stdout)
    assert told["written"] == [str(tmp_path / "x.json")]
    assert json.loads((tmp_path / "x.json").read_text())["findings"]
    both = tmp_path / "folder"
    both.mkdir()
    (both / "report.json").write_text("mine")
    assert run("report", "--log", str(log), "-o", str(both)).returncode == 2
    assert not (both / "report.md").exists()  # all or nothing


@pytest.mark.parametrize("target", ["/dev/null/x.md", "", " "])
def test_a_place_that_can_not_be_written_is_wrong_usage(target: str, log: Path) -> None:
    done = run("report", "--log", str(log), "-o", target)
    assert done.returncode == 2
    assert done.stderr.startswith("error: --output")


def test_a_log_through_a_pipe(tmp_path: Path) -> None:
    piped = run("report", "--log", "-", stdin=MAMBA_LOG)
    (tmp_path / "log").write_text(MAMBA_LOG)
    assert piped.stdout == run("report", "--log", str(tmp_path / "log")).stdout
    if hasattr(os, "mkfifo"):
        assert run("report", "--log", "/dev/stdin", stdin=MAMBA_LOG).stdout == piped.stdout


def test_fences_can_not_be_closed_from_within(tmp_path: Path) -> None:
    log = tmp_path / "log"
    log.write_text(f"{MAMBA_LOG}````\n</details> # title\n")
    text = run("report", "--log", str(log)).stdout
    assert "`````\n" in text
