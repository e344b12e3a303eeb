"""Run a small Python program with a time limit that holds even when the program can't be killed."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Sequence
from typing import Any


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
            out, err = self._process.communicate(timeout=seconds)
        except subprocess.TimeoutExpired as error:
            self._process.kill()  # not waited for: a process that hangs inside a driver does not even die
            raise ChildError(f"no answer within {seconds:g} s") from error
        if self._process.returncode != 0:
            last = err.decode("utf-8", "replace").strip().splitlines()[-1:] or ["no message"]
            raise ChildError(f"exit status {self._process.returncode}: {last[0][:300]}")
        try:
            return json.loads(out)
        except ValueError as error:
            raise ChildError("its answer is no JSON") from error
