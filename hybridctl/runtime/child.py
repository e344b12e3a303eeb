"""A command with all that it starts, under a guard: started, asked to end, ended by force, and never left behind."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import IO

from hybridctl.errors import HybridctlError
from hybridctl.runtime import guard

GRACE = 30.0
"""Seconds that vLLM gets to end its requests and workers."""


class Child:
    """A running command. To be started from the main thread: the guard dies with the thread that started it.

    Args:
        argv: the command.
        env: its whole environment.
        grace: seconds between the request to end and the end by force.

    Raises:
        HybridctlError: it can't be started.
    """

    def __init__(self, argv: Sequence[str], env: Mapping[str, str], grace: float = GRACE) -> None:
        if threading.current_thread() is not threading.main_thread():
            raise HybridctlError("a server can be started from the main thread only")
        guard.prctl(guard.PR_SET_CHILD_SUBREAPER, 1)  # should the guard be killed, its processes come to us
        self._others = set(guard.descendants(os.getpid()))
        read, write = os.pipe()
        line = [sys.executable, "-I", "-S", guard.__file__, str(os.getpid()), str(grace), str(write), "--", *argv]
        try:
            self._guard = subprocess.Popen(
                line,
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=subprocess.STDOUT,
                env=dict(env),
                pass_fds=[write],
                start_new_session=True,
            )
        except OSError as error:
            os.close(read)
            raise HybridctlError(f"can't start {argv[0]}: {error.strerror}") from error
        finally:
            os.close(write)
        with os.fdopen(read) as report:
            told = report.readline().strip()
        self.pid = int(told) if told.isdigit() else self._guard.pid
        """Of the command itself."""

    @property
    def output(self) -> IO[bytes]:
        """Everything that the command and its processes print."""
        assert self._guard.stdout is not None
        return self._guard.stdout

    def poll(self) -> int | None:
        """The exit code once everything has ended."""
        code = self._guard.poll()
        if code is not None and code < 0:
            self._sweep()
            return 128 - code
        return code

    def wait(self) -> int:
        self._guard.wait()
        code = self.poll()
        assert code is not None
        return code

    def stop(self) -> None:
        """Ask for an end in order; a second time: at once."""
        self._signal(signal.SIGTERM)

    def hurry(self) -> None:
        self._signal(signal.SIGINT)

    def serves(self) -> None:
        """Tell the guard that the command serves: from now on it ends requests in order, and is asked to end only once."""
        self._signal(signal.SIGUSR1)

    def processes(self) -> dict[int, str]:
        """Living processes of the command by pid, with the title that they gave themselves."""
        out = {}
        for pid in guard.descendants(self._guard.pid):
            try:
                out[pid] = Path(f"/proc/{pid}/cmdline").read_bytes().replace(b"\0", b" ").decode("utf-8", "replace")
            except OSError:
                continue
        return out

    def _signal(self, number: int) -> None:
        if self._guard.poll() is None:
            self._guard.send_signal(number)

    def _sweep(self) -> None:
        """The guard itself was killed: end what it guarded."""

        def left() -> list[int]:
            return [pid for pid in guard.descendants(os.getpid()) if pid not in self._others]

        shared = guard.shared_memory(left())
        guard.kill(left, time.sleep)
        guard.unlink(shared)
