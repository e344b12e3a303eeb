"""Run a small program with a time limit that holds even when the program can't be killed."""

from __future__ import annotations

import json
import os
import subprocess
import time
from collections.abc import Mapping, Sequence
from threading import Thread
from typing import IO, Any

MAX_ANSWER = 4 << 20


class ChildError(Exception):
    """The child gave no answer; the text says why."""


class Child:
    """A process that prints something. Started at once, so that its answer is ready when it is asked for."""

    def __init__(self, argv: Sequence[str], cwd: str, environ: Mapping[str, str] | None = None) -> None:
        """Start it.

        Raises:
            ChildError: it can't be started.
        """
        try:
            self._process = subprocess.Popen(
                list(argv), cwd=cwd, env=environ, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
                stderr=subprocess.PIPE,
            )  # fmt: skip
        except (OSError, ValueError) as error:
            raise ChildError(f"can't run {argv[0]}: {getattr(error, 'strerror', None) or error}") from error

    def answer(self, seconds: float) -> Any:
        """The JSON document that it prints.

        Raises:
            ChildError: no answer in time, a failure, or no JSON.
        """
        out = self.text(seconds)
        try:
            return json.loads(out)
        except (ValueError, RecursionError) as error:
            raise ChildError("its answer is no JSON") from error

    def text(self, seconds: float) -> bytes:
        """All that it prints.

        Raises:
            ChildError: no answer in time, or a failure.
        """
        out, problem = self._finish(seconds)
        if problem:
            raise ChildError(problem)
        return out

    def documents(self, seconds: float) -> tuple[list[Any], str]:
        """The JSON documents that it prints, one a line, as far as they came; and why there are no more ("" when it ended well)."""
        out, problem = self._finish(seconds)
        found: list[Any] = []
        for line in out.split(b"\n"):
            try:
                found.append(json.loads(line))
            except (ValueError, RecursionError):
                if line.strip() and not problem:
                    problem = "its answer is no JSON"
        return found, problem

    def _finish(self, seconds: float) -> tuple[bytes, str]:
        """What it wrote, and what kept it from ending well. Any program may stand there: one that writes without end too."""
        end = time.monotonic() + seconds
        assert self._process.stdout is not None
        assert self._process.stderr is not None
        written = bytearray(), bytearray()
        readers = [
            Thread(target=self._pour, args=pair, daemon=True)
            for pair in zip((self._process.stdout, self._process.stderr), written, strict=True)
        ]
        for reader in readers:
            reader.start()
        for reader in readers:
            reader.join(max(0.0, end - time.monotonic()))
        problem = ""
        if max(map(len, written)) > MAX_ANSWER:
            problem = "its answer is too long"
        elif any(reader.is_alive() for reader in readers) or not self._ended(max(0.1, end - time.monotonic())):
            problem = f"no answer within {seconds:g} s"
        if problem:
            self._process.kill()  # not waited for: a process that hangs inside a driver does not even die
        elif self._process.returncode != 0:
            last = written[1].decode("utf-8", "replace").strip().splitlines()[-1:] or ["no message"]
            problem = f"exit status {self._process.returncode}: {last[0][:300]}"
        return bytes(written[0]), problem

    def _pour(self, stream: IO[bytes], into: bytearray) -> None:
        """A thread for each stream, since Windows can't wait for two pipes. A descendant that keeps the pipe keeps the thread."""
        while piece := os.read(stream.fileno(), 1 << 16):
            into.extend(piece)
            if len(into) > MAX_ANSWER:
                self._process.kill()
                return
        stream.close()

    def _ended(self, seconds: float) -> bool:
        try:
            self._process.wait(seconds)
        except subprocess.TimeoutExpired:
            return False
        return True
