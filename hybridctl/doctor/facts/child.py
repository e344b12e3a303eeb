"""Run a small Python program with a time limit that holds even when the program can't be killed."""

from __future__ import annotations

import json
import os
import selectors
import subprocess
import time
from collections.abc import Sequence
from typing import Any

MAX_ANSWER = 4 << 20


class ChildError(Exception):
    """The child gave no answer; the text says why."""


class Child:
    """A process that prints one JSON document. Started at once, so that its answer is ready when it is asked for."""

    def __init__(self, argv: Sequence[str], cwd: str) -> None:
        """Start it.

        Raises:
            ChildError: it can't be started.
        """
        try:
            self._process = subprocess.Popen(
                list(argv), cwd=cwd, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE
            )
        except (OSError, ValueError) as error:
            raise ChildError(f"can't run {argv[0]}: {getattr(error, 'strerror', None) or error}") from error

    def answer(self, seconds: float) -> Any:
        """The document.

        Raises:
            ChildError: no answer in time, a failure, or no JSON.
        """
        try:
            out, err = self._streams(seconds)
        except ChildError:
            self._process.kill()  # not waited for: a process that hangs inside a driver does not even die
            raise
        if self._process.returncode != 0:
            last = err.decode("utf-8", "replace").strip().splitlines()[-1:] or ["no message"]
            raise ChildError(f"exit status {self._process.returncode}: {last[0][:300]}")
        try:
            return json.loads(out)
        except (ValueError, RecursionError) as error:
            raise ChildError("its answer is no JSON") from error

    def _streams(self, seconds: float) -> tuple[bytes, bytes]:
        """What it writes until it ends. Unlike ``communicate`` with a limit: any program may stand there, one without end too."""
        end = time.monotonic() + seconds
        out, err = self._process.stdout, self._process.stderr
        assert out is not None
        assert err is not None
        written = {out: bytearray(), err: bytearray()}
        with out, err, selectors.DefaultSelector() as selector:
            for stream in written:
                selector.register(stream, selectors.EVENT_READ, written[stream])
            while selector.get_map():
                ready = selector.select(max(0.0, end - time.monotonic()))
                if time.monotonic() >= end:
                    raise ChildError(f"no answer within {seconds:g} s")
                for key, _ in ready:
                    piece = os.read(key.fd, 1 << 16)
                    key.data.extend(piece)
                    if not piece:
                        selector.unregister(key.fileobj)
                    if len(key.data) > MAX_ANSWER:
                        raise ChildError("its answer is too long")
        try:
            self._process.wait(max(0.1, end - time.monotonic()))
        except subprocess.TimeoutExpired as error:
            raise ChildError(f"no answer within {seconds:g} s") from error
        return bytes(written[out]), bytes(written[err])
