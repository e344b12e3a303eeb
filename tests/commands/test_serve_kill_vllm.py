"""Every way to end the installed vLLM under ``hybridctl serve``: the right exit code, a line that says why, and nothing left."""

from __future__ import annotations

import contextlib
import importlib.util
import json
import os
import shutil
import signal
import socket
import subprocess
import sys
import time
import urllib.request
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from fake_vllm import Serve, serving, wait_for

from hybridctl.runtime import checkpoint

pytestmark = [
    pytest.mark.vllm,
    pytest.mark.slow,
    pytest.mark.skipif(importlib.util.find_spec("vllm") is None, reason="needs vLLM"),
]
START = 500.0
"""Seconds that a start may take on a busy machine; 30 are usual."""
SMALL = ("--enforce-eager", "--dtype", "float32", "--max-model-len", "1024", "--max-num-seqs", "2")
READY = "hybridctl verify"


def start(folder: Path, *arguments: str, **env: str) -> contextlib.AbstractContextManager[Serve]:
    quick = {"VLLM_CPU_KVCACHE_SPACE": "1", "VLLM_CPU_OMP_THREADS_BIND": "nobind", "OMP_NUM_THREADS": "1"}
    return serving(folder, *(arguments or ("--demo",)), "--", *SMALL, python=Path(sys.executable), **quick, **env)


@contextlib.contextmanager
def ready(folder: Path, **env: str) -> Iterator[Serve]:
    with start(folder, **env) as server:
        server.until(READY, START)
        titles = set(server.seen.values())
        assert {"VLLM::EngineCore", "VLLM::Worker"} <= titles, titles
        assert any(path.parent == Path("/dev/shm") for path in server.files)
        yield server


@contextlib.contextmanager
def starting(folder: Path, *arguments: str, words: str) -> Iterator[Serve]:
    """A server that is in the middle of its start: a process with these words in its command line is there."""
    with start(folder, *arguments) as server:
        server.when(lambda: server.find(words), START)
        yield server


API, ENGINE = "api_server --model", "multiprocessing.spawn"


def status(server: Serve) -> dict[str, list[dict[str, object]]]:
    line = [sys.executable, "-m", "hybridctl", "serve", "--status", "--json"]
    env = {**os.environ, "HYBRIDCTL_HOME": str(server.home)}
    done = subprocess.run(line, env=env, capture_output=True, text=True, timeout=100, check=True)
    answer: dict[str, list[dict[str, object]]] = json.loads(done.stdout)
    return answer


def failed(server: Serve, code: int, *words: str, seconds: float = 120.0) -> None:
    """It ends by itself, with that exit code, and one line has all of these words; only the log and the reason are kept."""
    got, line = server.why(seconds)
    assert got == code, server.err
    assert all(word in line for word in words), line
    assert server.left == []
    (row,) = status(server)["failed"]
    assert words[0] in str(row["reason"])


def engine_is_killed(folder: Path) -> None:
    with ready(folder) as server:
        os.kill(server.find("VLLM::EngineCore")[0], signal.SIGKILL)
        failed(server, 3, "engine core exited unexpectedly", "killed from outside", "while serving")


def api_server_is_killed(folder: Path) -> None:
    with ready(folder) as server:
        os.kill(server.find(API)[0], signal.SIGKILL)
        failed(server, 137, "vLLM ended by itself with exit code 137 while serving", "SIGKILL, from outside")


def serve_is_killed(folder: Path) -> None:
    with ready(folder) as server:
        assert server.end(signal.SIGKILL) == -signal.SIGKILL
        assert wait_for(lambda: server.alive == [], 60)
        (run,) = server.runs
        assert status(server)["removed"] == [str(run)]
        assert (server.left, server.runs) == ([], [])


def serve_is_killed_while_it_starts(folder: Path) -> None:
    with starting(folder, words=ENGINE) as server:
        time.sleep(1)
        assert server.end(signal.SIGKILL) == -signal.SIGKILL
        assert wait_for(lambda: server.alive == [], 60)
        (run,) = server.runs
        assert status(server)["removed"] == [str(run)]
        assert (server.left, server.runs) == ([], [])


def interrupted_while_it_starts(folder: Path) -> None:
    with starting(folder, words=ENGINE) as server:
        time.sleep(1)  # vLLM waits for its engine by now, and swallows the first signal
        assert server.why(60, signal.SIGINT) == (130, "error: interrupted")
        assert (server.left, server.runs) == ([], [])


def terminated_while_it_imports(folder: Path) -> None:
    with starting(folder, words=API) as server:
        assert server.why(60, signal.SIGTERM) == (143, "")
        assert (server.left, server.runs) == ([], [])


def interrupted_twice(folder: Path) -> None:
    with ready(folder) as server:
        os.kill(server.find(API)[0], signal.SIGSTOP)  # one that hangs
        server.process.send_signal(signal.SIGINT)
        assert not wait_for(lambda: server.process.poll() is not None, 2)
        assert server.why(20, signal.SIGINT) == (137, "")
        assert (server.left, server.runs) == ([], [])


def the_disk_is_full_and_the_terminal_closed(folder: Path) -> None:
    home = folder / "home"
    home.mkdir()
    mount = ["mount", "-t", "tmpfs", "-o", "size=64m", "tmpfs", str(home)]
    if shutil.which("mount") is None or subprocess.run(mount, capture_output=True, check=False).returncode != 0:
        pytest.skip("no file system can be mounted here")
    try:
        with ready(folder, HYBRIDCTL_HOME=str(home)) as server:
            with pytest.raises(OSError, match="No space left"), (home / "fill").open("wb", buffering=0) as fill:
                while True:
                    fill.write(b"x" * 4096)
            body = json.dumps({"model": "hybridctl-demo", "prompt": "def", "max_tokens": 2}).encode()
            request = urllib.request.Request(
                f"http://127.0.0.1:{server.port}/v1/completions", body, {"Content-Type": "application/json"}
            )

            def told() -> bool:
                with urllib.request.urlopen(request, timeout=60) as answer:
                    assert answer.status == 200
                return "the log is not written any more" in server.err

            server.when(told, 60)
            assert "server.log: No space left on device; the server goes on" in server.err
            with urllib.request.urlopen(request, timeout=60) as answer:
                assert json.loads(answer.read())["choices"][0]["text"]
            assert server.why(60, signal.SIGHUP) == (0, "")
            assert (server.left, server.runs) == ([], [])
    finally:
        subprocess.run(["umount", "-l", str(home)], check=True)


def the_port_is_taken_on_the_way(folder: Path) -> None:
    with start(folder) as server, socket.socket() as other:
        server.when(lambda: server.runs, START)
        other.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        other.bind(("127.0.0.1", server.port))
        other.listen()
        failed(server, 1, "Address already in use", seconds=START)


def copy(folder: Path) -> Path:
    source = checkpoint.demo().folder
    assert source is not None
    return Path(shutil.copytree(source, folder / "model"))


def the_model_goes_while_it_starts(folder: Path) -> None:
    model = copy(folder)
    with starting(folder, str(model), words=API) as server:
        shutil.rmtree(model)
        failed(server, 1, f"{model} is gone", seconds=START)


def the_weights_are_cut_short_while_it_starts(folder: Path) -> None:
    model = copy(folder)
    weights = model / "model.safetensors"
    with starting(folder, str(model), words=API) as server:
        os.truncate(weights, weights.stat().st_size * 2 // 3)
        failed(server, 1, "SafetensorError", "incomplete", seconds=START)


@pytest.mark.parametrize(
    "scenario",
    [
        engine_is_killed,
        api_server_is_killed,
        serve_is_killed,
        serve_is_killed_while_it_starts,
        interrupted_while_it_starts,
        terminated_while_it_imports,
        interrupted_twice,
        the_disk_is_full_and_the_terminal_closed,
        the_port_is_taken_on_the_way,
        the_model_goes_while_it_starts,
        the_weights_are_cut_short_while_it_starts,
    ],
    ids=lambda scenario: scenario.__name__,
)
def test_it_ends_when(side_by_side: Callable[[Callable[[Path], None]], None], scenario: Callable[[Path], None]) -> None:
    side_by_side(scenario)
