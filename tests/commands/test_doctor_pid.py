"""``hybridctl doctor --pid``: a server that runs, and what is none."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

pytestmark = pytest.mark.skipif(not sys.platform.startswith("linux"), reason="needs /proc")


def run(*args: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "hybridctl", "doctor", *args], capture_output=True, text=True, timeout=60, check=False
    )


@pytest.mark.parametrize(
    ("args", "says"),
    [
        (("--pid", "4194305"), "there is no process 4194305"),
        (("--pid", "0"), "--pid"),
        (("--pid", "x"), "--pid"),
        (("--pid", str(os.getpid())), "is no server of a known engine"),
        (("--pid", "1", "--python", sys.executable), "its own launch line and Python"),
    ],
)
def test_what_is_no_server_is_refused_in_one_line(args: tuple[str, ...], says: str) -> None:
    done = run(*args)
    assert (done.returncode, done.stdout) == (2, "")
    assert says in done.stderr
    assert done.stderr.count("\n") == 1


def test_a_server_is_judged_by_its_own_launch_line(tmp_path: Path) -> None:
    script = tmp_path / "vllm"
    script.write_text("print('up', flush=True)\nimport time\ntime.sleep(60)\n")
    words = [
        sys.executable,
        str(script),
        "serve",
        "Qwen/Qwen3-8B",
        "--no-such-flag",
        "--api-key",
        "sk-abcdefghijklmnopqrstuv",
    ]
    with subprocess.Popen(words, stdout=subprocess.PIPE) as server:
        try:
            assert server.stdout is not None
            server.stdout.readline()
            done = run("--pid", str(server.pid), "--json")
            shown = run("--pid", str(server.pid))
        finally:
            server.kill()
    document = json.loads(done.stdout)
    assert document["subject"]["model"] == "Qwen/Qwen3-8B"
    assert "no-such-flag" in json.dumps(document["findings"])
    assert f"process {server.pid}" in shown.stdout
    assert "sk-abc" not in done.stdout + shown.stdout
