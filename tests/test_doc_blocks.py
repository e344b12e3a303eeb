"""Every command block of the documents is run, and what it prints is compared, with numbers and paths masked.

A block is ```` ```console ````, with commands after ``$ `` and what they print below. ``…`` stands for anything: alone on a line
for any lines, else for the rest of a word or line. A command without output below only has to work. Words after ``console`` say
why a block is not run here: ``gpu``, ``network``, ``long`` (seconds to minutes, or a server), ``vllm`` (or torch).

Blocks run in a folder of their own that holds docs, tests and recipes, and examples of the files that readers have (server.log,
env.txt, start.sh, config.json, …).
"""

from __future__ import annotations

import contextlib
import io
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from hybridctl import cli

ROOT = Path(__file__).parents[1]
DOCUMENTS = sorted(
    [*ROOT.glob("*.md"), *ROOT.glob("docs/**/*.md"), *ROOT.glob("recipes/runbooks/*.md")],
    key=lambda p: str(p.relative_to(ROOT)),
)
NOT_HERE = {"gpu", "network", "long", "vllm"}
QUOTES = {"text", "ini", "powershell", "json", "toml", "yaml"}
# Nothing else may stand in a block that a test runs.
HARMLESS = {"hybridctl", "printf", "cat", "grep", "echo", "jq", "sed", "head", "tail", "ls", "wc"}
# What readers have: where an example of it lies.
FILES = {
    "server.log": "docs/demo/crash.log",
    "env.txt": "docs/demo/env.txt",
    "start.sh": "docs/demo/command.txt",
    "config.json": "hybridctl/demo_model/config.json",
    "nvidia-smi.txt": "tests/data/env/nvidia_smi_h200.txt",
}
COMPOSE = """\
services:
  vllm:
    image: vllm/vllm-openai:v0.32.0
    command: --model Qwen/Qwen3.6-27B-FP8 --max-model-len 65536
"""
_FENCE = re.compile(r"^ *```(?P<info>[^\n`]*)\n(?P<body>.*?)^ *```$", re.MULTILINE | re.DOTALL)
_HERE = re.compile(r"<<-?\s*'?(\w+)'?")
# Stands for `hybridctl` in a shell that only expands words: keeps the arguments and standard input, and whether the output
# goes on to another program.
_RECORDER = r"""
hybridctl() {
  printf '%s\0' "$@" > "$KEPT/argv.$BASHPID"
  if [ ! -t 0 ]; then cat > "$KEPT/stdin"; fi
  if [ /proc/self/fd/1 -ef "$KEPT/out" ]; then echo > "$KEPT/last"; fi
}
"""


@dataclass(frozen=True)
class Step:
    """A command and the lines that it prints."""

    command: str
    expected: tuple[str, ...]


@dataclass(frozen=True)
class Block:
    document: Path
    line: int
    info: tuple[str, ...]
    body: str

    @property
    def id(self) -> str:
        return f"{self.document.relative_to(ROOT)}:{self.line}"

    def steps(self) -> list[Step]:
        out: list[tuple[list[str], list[str]]] = []
        until = ""
        for line in self.body.splitlines():
            if line.startswith("$ ") and not until:
                out.append(([line[2:]], []))
            elif until or (out and not out[-1][1] and out[-1][0][-1].endswith("\\")):
                out[-1][0].append(line)
                until = "" if line == until else until
                continue
            else:
                assert out, f"{self.id}: output without a command"
                out[-1][1].append(line)
                continue
            if here := _HERE.search(line):
                until = here[1]
        return [Step("\n".join(command), tuple(expected)) for command, expected in out]


def blocks() -> Iterator[Block]:
    for document in DOCUMENTS:
        text = document.read_text(encoding="utf-8")
        for fence in _FENCE.finditer(text):
            info = tuple(fence["info"].split()) or ("",)
            yield Block(document, text.count("\n", 0, fence.start()) + 1, info, fence["body"])


ALL = list(blocks())
RUN = [b for b in ALL if b.info[0] == "console" and not NOT_HERE & set(b.info)]


def test_fences_say_what_they_are() -> None:
    odd = [(b.id, b.info) for b in ALL if b.info[0] not in QUOTES | {"console"} or set(b.info[1:]) - NOT_HERE]
    assert odd == []
    assert len(RUN) > 40


def test_blocks_run_nothing_that_changes_the_machine() -> None:
    first = re.compile(r"(?:^|[|;&(]\s*)(?:\w+=\S*\s+)*([\w./-]+)", re.MULTILINE)
    for block in RUN:
        for step in block.steps():
            shell = re.sub(r"'[^']*'|\"[^\"$]*\"|\s#.*", "''", step.command.split("\n", 1)[0])
            assert set(first.findall(shell)) <= HARMLESS, (block.id, step.command)


@pytest.mark.parametrize("block", RUN, ids=[b.id for b in RUN])
def test_block_prints_what_it_shows(block: Block, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    _furnish(tmp_path)
    monkeypatch.chdir(tmp_path)
    for name in ("COLUMNS", "LC_ALL", "LC_MESSAGES", "NO_COLOR", "HYBRIDCTL_DEBUG"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("LANG", "C.UTF-8")
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    code = 0
    for step in block.steps():
        if needs := [p for p in ("jq",) if p in step.command.split() and not shutil.which(p)]:
            pytest.skip(f"{needs[0]} is not installed")
        code, printed = _run(step.command, code, tmp_path)
        shown = f"\n$ {step.command}\n{printed}"
        assert code in (0, 1), shown
        assert not re.search(r"^error: ", printed, re.MULTILINE), shown
        if step.expected:
            assert _matches(step.expected, printed), (
                f"the document shows\n{chr(10).join(step.expected)}\nprinted{shown}"
            )


def test_a_wrong_line_is_noticed() -> None:
    printed = "1 error, 0 warnings   vllm 0.32.0\n\n1. ERROR  Too many sequences\n   fix    vllm serve a/b --max-num-seqs 856\n"
    assert _matches(("2 error, 7 warnings   vllm 0.9", "…", "   fix vllm serve a/b --max-num-seqs 12"), printed)
    assert _matches(("1 error…", "…"), printed)
    assert not _matches(("1 error…",), printed)
    assert not _matches(("…", "1. ERROR  Too few sequences", "…"), printed)
    assert not _matches(("…", "   fix    vllm serve a/b --max-num-seqs", "…"), printed)
    assert not _matches(("2 errors, 7 warnings   vllm 0.9", "…"), printed)


def _furnish(folder: Path) -> None:
    for name in ("docs", "tests", "recipes"):
        (folder / name).symlink_to(ROOT / name)
    for name, example in FILES.items():
        (folder / name).symlink_to(ROOT / example)
    (folder / "docker-compose.yml").write_text(COMPOSE, encoding="utf-8")


def _run(command: str, last_code: int, folder: Path) -> tuple[int, str]:
    """Exit code and output. A start of Python costs 0.4 s, so hybridctl runs in this process unless the shell needs its output."""
    kept = folder / ".kept"
    shutil.rmtree(kept, ignore_errors=True)
    kept.mkdir()
    shell = ["bash", "-c", f"{_RECORDER}(exit {last_code}); {command}"]
    environment = {**os.environ, "KEPT": str(kept)}
    with (kept / "out").open("wb") as out:
        done = subprocess.run(
            shell, env=environment, stdout=out, stderr=out, stdin=subprocess.DEVNULL, timeout=60, check=False
        )
    calls = sorted(kept.glob("argv.*"))
    printed = (kept / "out").read_text(encoding="utf-8")
    if not calls:
        return done.returncode, printed
    if len(calls) == 1 and not printed and (kept / "last").exists():
        argv = [a.decode() for a in calls[0].read_bytes().split(b"\0")[:-1]]
        stdin = kept / "stdin"
        return _in_process(argv, stdin.read_bytes() if stdin.exists() else b"")
    real = f'hybridctl() {{ "{sys.executable}" -m hybridctl "$@"; }}; (exit {last_code}); {command}'
    whole = subprocess.run(
        ["bash", "-c", real], stdout=subprocess.PIPE, stderr=subprocess.STDOUT, stdin=subprocess.DEVNULL, timeout=60, check=False,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
    )  # fmt: skip
    return whole.returncode, whole.stdout.decode()


def _in_process(argv: list[str], stdin: bytes) -> tuple[int, str]:
    out = io.BytesIO()
    stream = io.TextIOWrapper(out, encoding="utf-8", write_through=True)
    before = sys.argv, sys.stdin
    sys.argv, sys.stdin = ["hybridctl", *argv], io.TextIOWrapper(io.BytesIO(stdin), encoding="utf-8")
    try:
        with contextlib.redirect_stdout(stream), contextlib.redirect_stderr(stream), pytest.raises(SystemExit) as stop:
            cli.main()
    finally:
        sys.argv, sys.stdin = before
    code = stop.value.code
    return code if isinstance(code, int) else 0, out.getvalue().decode()


def _matches(expected: tuple[str, ...], printed: str) -> bool:
    pattern = ""
    for line in expected:
        if line.strip() == "…":
            pattern += r"(?:[^\n]*\n)*?"
        else:
            pattern += ".*".join(re.escape(_masked(part)) for part in line.split("…")) + "\n"
    text = "".join(_masked(line) + "\n" for line in printed.splitlines())
    return re.fullmatch(pattern, text.rstrip("\n") + "\n") is not None


def _masked(line: str) -> str:
    """Without what differs from machine to machine and from release to release."""
    line = re.sub(r"(?<![\w:/.])/[\w.-]+(?:/[\w.@+-]+)+", "/PATH", line)
    return re.sub(r" +", " ", re.sub(r"\d+(?:[.,]\d+)*", "#", line)).rstrip()
