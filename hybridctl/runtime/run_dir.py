"""One directory a run under the state directory: ``run.json``, the processes' proof, metrics files, the overlay, the log.

A run that ends well leaves nothing. One that fails leaves its log and ``run.json`` for a week. vLLM's sockets and other temporary
files, which it leaves behind even when it ends in order, lie in a folder of their own: the path of a socket must be short.
"""

from __future__ import annotations

import json
import os
import shutil
import tempfile
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from hybridctl.data import state_dir
from hybridctl.errors import HybridctlError

KEEP_FAILED = 7 * 86400.0
PROOF, METRICS, MODEL, LOG, STATE = "proof", "metrics", "model", "server.log", "run.json"
SOCKET = 37
"""Characters that vLLM adds for a socket: a slash and a UUID."""
LONGEST = 107
"""Characters of a socket's path on Linux (``sockaddr_un``, without the zero at the end)."""


def root() -> Path:
    return state_dir() / "runs"


def temporary(run: Path) -> Path | None:
    """The folder for temporary files of a run directory. None where the machine's own is so deep that no socket fits below it."""
    folder = Path(tempfile.gettempdir()) / f"hybridctl-{run.name[-8:]}"
    return folder if len(str(folder)) + SOCKET <= LONGEST else None


@dataclass
class Run:
    """A run directory.

    Attributes:
        path: the directory.
        content: what ``run.json`` says: pid, ticks (start time of that pid), state (starting, ready, failed), model, url, argv,
            log, temporary, started, reason.
    """

    path: Path
    content: dict[str, Any]

    @property
    def proof(self) -> Path:
        return self.path / PROOF

    @property
    def metrics(self) -> Path:
        return self.path / METRICS

    @property
    def log(self) -> Path:
        return self.path / LOG

    @property
    def alive(self) -> bool:
        pid = self.content.get("pid")
        return isinstance(pid, int) and start_ticks(pid) == self.content.get("ticks") is not None

    def note(self, **changed: Any) -> None:
        """Change ``run.json``, whole or not at all.

        Raises:
            HybridctlError: the disk takes nothing.
        """
        self.content.update(changed)
        draft = self.path / f".{STATE}"
        try:
            draft.write_text(json.dumps(self.content, indent=1), encoding="utf-8")
            draft.replace(self.path / STATE)
        except OSError as error:
            raise HybridctlError(f"can't write {self.path}: {error.strerror}", "df -h; HYBRIDCTL_HOME=DIR") from error

    def remove(self) -> None:
        self._remove_temporary()
        shutil.rmtree(self.path, ignore_errors=True)

    def _remove_temporary(self) -> None:
        folder = Path(str(self.content.get("temporary") or ""))
        # Whatever a damaged file may say.
        if folder.is_absolute() and folder.name == f"hybridctl-{self.path.name[-8:]}":
            shutil.rmtree(folder, ignore_errors=True)

    def fail(self, reason: str) -> None:
        """Keep the log and why; drop the rest. Where not even that can be written, drop all."""
        self._remove_temporary()
        for name in (PROOF, METRICS, MODEL):
            shutil.rmtree(self.path / name, ignore_errors=True)
        try:
            self.note(state="failed", reason=reason)
        except HybridctlError:
            self.remove()


def create(**content: Any) -> Run:
    """A fresh run directory, readable by its owner alone: the log may hold prompts.

    Raises:
        HybridctlError: it can't be made.
    """
    pid = os.getpid()
    run = None
    try:
        root().mkdir(parents=True, exist_ok=True)
        path = Path(tempfile.mkdtemp(prefix=time.strftime("%Y%m%d-%H%M%S-"), dir=root()))
        run = Run(path, {"schema_version": 1, "pid": pid, "ticks": start_ticks(pid), "started": time.time(), **content})
        for name in (PROOF, METRICS):
            (path / name).mkdir()
        if (scratch := temporary(path)) is not None:
            scratch.mkdir(0o700)
            run.content["temporary"] = str(scratch)
        run.note(state="starting")
    except (OSError, HybridctlError) as error:
        if run is not None:
            run.remove()
        if isinstance(error, HybridctlError):
            raise
        raise HybridctlError(
            f"can't make a run directory in {root()}: {error.strerror}", "HYBRIDCTL_HOME=DIR"
        ) from error
    return run


def runs() -> Iterator[Run]:
    """Every run directory, the oldest first. One without a readable ``run.json`` counts as dead."""
    folder = root()
    if not folder.is_dir():
        return
    for path in sorted(p for p in folder.iterdir() if p.is_dir()):
        try:
            content = json.loads((path / STATE).read_text(encoding="utf-8"))
        except (OSError, ValueError):
            content = {}
        yield Run(path, content if isinstance(content, dict) else {})


def clean() -> tuple[list[Run], list[Run], list[Run]]:
    """(alive, failed lately, removed): removes what a killed server left behind, and failures that are older than a week."""
    alive: list[Run] = []
    failed: list[Run] = []
    removed: list[Run] = []
    for run in runs():
        if run.alive and run.content.get("state") != "failed":
            alive.append(run)
        elif (
            run.content.get("state") == "failed" and time.time() - float(run.content.get("started") or 0) < KEEP_FAILED
        ):
            failed.append(run)
        else:
            run.remove()
            removed.append(run)
    return alive, failed, removed


def start_ticks(pid: int) -> int | None:
    """When a process began, in clock ticks since boot: a pid with it names one process for ever. None: there is none."""
    try:
        stat = Path(f"/proc/{pid}/stat").read_bytes()
    except OSError:
        return None
    fields = stat.rpartition(b")")[2].split()
    return None if fields[0] == b"Z" else int(fields[19])
