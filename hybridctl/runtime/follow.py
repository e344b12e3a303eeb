"""What the server prints: into the log file, into memory for the doctor, and into a queue for whoever shows it."""

from __future__ import annotations

import io
import os
import queue
import re
import threading
from collections import deque
from pathlib import Path
from typing import IO, BinaryIO

MAX_LINE = 64 * 1024
HEAD, TAIL = 2_000, 20_000
ROTATE = 64 << 20
_BREAK = re.compile(rb"\r\n|\n|\r")


class LogFile:
    """A log that may fail: the server matters more. ``trouble`` says what went wrong, once.

    At 64 MiB the file is moved to ``NAME.1`` and begun anew.
    """

    def __init__(self, path: Path) -> None:
        self.path, self.trouble = path, ""
        self._size = 0
        self._file: BinaryIO | None = None
        try:
            self._file = path.open("ab", buffering=0)
        except OSError as error:
            self.trouble = f"{path}: {error.strerror}"

    def write(self, data: bytes) -> None:
        if self._file is None:
            return
        try:
            self._file.write(data)
            self._size += len(data)
            if self._size > ROTATE and self.path.is_file():
                self._file.close()
                self.path.replace(self.path.with_name(self.path.name + ".1"))
                self._file, self._size = self.path.open("ab", buffering=0), 0
        except OSError as error:
            self.trouble = f"{self.path}: {error.strerror}"
            self.close()

    def close(self) -> None:
        if self._file is not None:
            self._file.close()
            self._file = None


class Follower:
    """Reads a pipe in a thread of its own. ``lines`` gives text lines and, at the end, None."""

    def __init__(self, pipe: IO[bytes], log: LogFile) -> None:
        self.lines: queue.SimpleQueue[str | None] = queue.SimpleQueue()
        self.log = log
        self._pipe = pipe
        self._head: list[str] = []
        self._tail: deque[str] = deque(maxlen=TAIL)
        self._thread = threading.Thread(target=self._run, name="follow", daemon=True)
        self._thread.start()

    def transcript(self) -> BinaryIO:
        """The first and the last lines, for the doctor."""
        return io.BytesIO("\n".join([*self._head, *self._tail]).encode("utf-8", "replace"))

    def _run(self) -> None:
        rest = b""
        descriptor = self._pipe.fileno()
        while data := os.read(descriptor, 65536):
            self.log.write(data)
            *whole, rest = _BREAK.split(rest + data)
            for line in whole:
                self._take(line)
            if len(rest) > MAX_LINE:
                self._take(rest)
                rest = b""
        self._take(rest)
        self.log.close()
        self.lines.put(None)

    def _take(self, data: bytes) -> None:
        text = data[:MAX_LINE].decode("utf-8", "replace").rstrip()
        if text:
            (self._head if len(self._head) < HEAD else self._tail).append(text)
            self.lines.put(text)
