"""The process between serve and vLLM, on commands that behave badly."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from hybridctl.runtime import guard

pytestmark = [
    pytest.mark.lifecycle,
    pytest.mark.skipif(not sys.platform.startswith("linux"), reason="reads /proc, as vLLM's machines have it"),
]

# As vLLM's processes do: memory that is shared with a spawned process, and a resource tracker to remove it.
SHARES = """
import signal, time
from multiprocessing import get_context, shared_memory

def work():
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    time.sleep(600)

if __name__ == "__main__":
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    memory = shared_memory.SharedMemory(create=True, size=4096)
    get_context("spawn").Process(target=work).start()
    print(memory.name, flush=True)
    work()
"""


def guarded(*command: str, grace: float = 30.0, rest: float = guard.REST) -> subprocess.Popen[str]:
    read, write = os.pipe()
    run = (
        f"import runpy, sys; made = runpy.run_path({guard.__file__!r}); "
        f"made['main'].__globals__['REST'] = {rest}; sys.exit(made['main'](sys.argv[1:]))"
    )
    line = [sys.executable, "-I", "-S", "-c", run, str(os.getpid()), str(grace), str(write), "--", *command]
    process = subprocess.Popen(line, stdout=subprocess.PIPE, text=True, pass_fds=[write], start_new_session=True)
    os.close(write)
    with os.fdopen(read) as report:
        assert report.readline().strip().isdigit()
    return process


@pytest.mark.parametrize("asked", [(signal.SIGTERM, signal.SIGINT), (signal.SIGTERM,)])
def test_shared_memory_of_processes_that_are_killed_is_removed(tmp_path: Path, asked: tuple[int, ...]) -> None:
    script = tmp_path / "shares.py"
    script.write_text(SHARES)
    process = guarded(sys.executable, str(script), grace=30.0 if len(asked) > 1 else 0.1)
    assert process.stdout is not None
    memory = Path("/dev/shm", process.stdout.readline().strip())
    assert memory.exists()
    below = guard.descendants(process.pid)
    assert any(guard.is_tracker(pid) for pid in below)
    for number in asked:
        process.send_signal(number)
        time.sleep(0.3)
    assert process.wait(20) == 137
    assert not memory.exists()
    assert not set(below) & set(guard.parents())
    process.stdout.close()


COUNTS = """
import signal, sys, time
got = []
def count(*_):
    got.append(1)
    if len(got) == int(sys.argv[1]):
        sys.exit(40 + len(got))
signal.signal(signal.SIGTERM, count)
print("on", flush=True)
while True:
    time.sleep(1)
"""


def asked_to_end(
    script: str, *words: str, serves: bool, grace: float, rest: float = guard.REST
) -> subprocess.Popen[str]:
    """The guard of a script that has begun (it prints "on") and may serve, right after SIGTERM."""
    process = guarded(sys.executable, "-c", script, *words, grace=grace, rest=rest)
    assert process.stdout is not None
    with process.stdout as out:
        assert out.readline() == "on\n"
    if serves:
        process.send_signal(signal.SIGUSR1)
        time.sleep(0.1)
    process.send_signal(signal.SIGTERM)
    return process


@pytest.mark.parametrize(("serves", "code"), [(False, 42), (True, 137)])
def test_sigterm_is_repeated_only_until_it_serves(serves: bool, code: int) -> None:
    assert asked_to_end(COUNTS, "2", serves=serves, grace=1.0).wait(20) == code


IGNORES = """
import signal, subprocess, sys
signal.signal(signal.SIGTERM, signal.SIG_IGN)
helper = subprocess.Popen(["sleep", "600"]) if "helped" in sys.argv else None
print("on", flush=True)
signal.pause()
"""


@pytest.mark.parametrize(
    ("serves", "words", "waits"),
    [(False, (), False), (True, (), True), (False, ("helped",), True)],
    ids=["alone", "serving", "with a process of its own"],
)
def test_a_command_that_lost_all_its_processes_before_it_served_is_not_waited_for(
    serves: bool, words: tuple[str, ...], waits: bool
) -> None:
    process = asked_to_end(IGNORES, *words, serves=serves, grace=60.0, rest=0.5)
    if waits:
        with pytest.raises(subprocess.TimeoutExpired):
            process.wait(3)
        process.send_signal(signal.SIGINT)
    assert process.wait(20) == 137
