"""``hybridctl serve``: plan, look, start, follow, prove, tell, and end in order."""

from __future__ import annotations

import os
import queue
import signal
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from types import FrameType
from typing import TYPE_CHECKING, Any

from hybridctl.errors import EXIT_FAILURE, HybridctlError
from hybridctl.runtime import aftermath, listening, overlay_min, run_dir
from hybridctl.runtime.child import GRACE, Child
from hybridctl.runtime.follow import Follower, LogFile
from hybridctl.runtime.http import Client
from hybridctl.runtime.launch import Launch
from hybridctl.runtime.progress import Phases, worth_showing
from hybridctl.runtime.ready import Probe, Proof, ProofError, Ready, missing, read_proof

if TYPE_CHECKING:
    from hybridctl.output import Output

PROOF_SECONDS = 10.0
START_SECONDS = 3600.0
RAISED_SECONDS = 5.0
"""What vLLM gets, before it is ready, to end by itself after an exception in a worker."""
SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


@dataclass(frozen=True)
class Ended:
    """How a server ended: the exit code to pass on; whether it failed, and then why."""

    code: int
    reason: str = ""
    finding: Any = None
    log: str = ""

    @property
    def failed(self) -> bool:
        return bool(self.reason)


class Server:
    """One run of a server.

    Args:
        launch: planned with ``run.path`` as its run directory.
        argv: in place of the launch's own command (tests).
    """

    def __init__(
        self,
        launch: Launch,
        run: run_dir.Run,
        out: Output,
        *,
        verbose: bool = False,
        log: Path | None = None,
        start_seconds: float = START_SECONDS,
        argv: list[str] | None = None,
    ) -> None:
        self.launch, self.run, self.out = launch, run, out
        self._verbose, self._log, self._start_seconds = verbose, log or run.log, start_seconds
        self._argv = argv or launch.argv
        self._asked: int | None = None
        self._times_asked = 0
        self._child: Child | None = None
        self._phases = Phases()
        self.ready: Ready | None = None

    def serve(self, on_ready: Any = None) -> Ended:
        """Start, and stay until it ends. ``on_ready(ready)`` is called once it is ready."""
        log = LogFile(self._log)
        checkpoint, path = self.launch.checkpoint, self.launch.model_path
        if path != checkpoint.location:
            assert checkpoint.folder is not None
            overlay_min.make(checkpoint.folder, Path(path), checkpoint.config, self.launch.routed)
        with self._signals():
            if self._asked is not None:
                return Ended(128 + self._asked)
            self._child = Child(self._argv, self.launch.environment(os.environ), GRACE)
            if self._asked is not None:  # while it was being started: nobody has told it yet
                self._child.stop()
            follower = Follower(self._child.output, log)
            prove = self._prove if self.launch.plugin else None
            client = Client(self.launch.url, self.launch.api_key, own=True)
            probe = Probe(client, prove, time.monotonic(), self._answers)
            try:
                error = self._follow(follower, probe, on_ready)
            finally:
                probe.stop()
                self._child.stop()
                code = self._child.wait()
        return self._end(code, error, follower)

    def _follow(self, follower: Follower, probe: Probe, on_ready: Any) -> HybridctlError | None:
        """Until the last line. What went wrong, if it is not the server that ended by itself."""
        assert self._child is not None
        status = self.out.status(self._phases.words)
        if status:
            self._tell(status.start)
        error: HybridctlError | None = None
        trouble, raised = "", float("inf")
        try:
            while True:
                try:
                    line = follower.lines.get(timeout=0.2)
                except queue.Empty:
                    line = ""
                    if self._child.poll() is not None:
                        return error
                if line is None:
                    return error
                if line:
                    self._show(line, status is not None)
                    if aftermath.WORKER_RAISED in line:
                        raised = min(raised, time.monotonic())
                if follower.log.trouble != trouble:
                    trouble = follower.log.trouble
                    self._tell(
                        self.out.note, f"warning: the log is not written any more: {trouble}; the server goes on"
                    )
                if status and self.ready is None:
                    self._tell(status.update, f"{self._phases.words} · {self._phases.seconds:.0f} s")
                if error is not None or self._asked is not None or self.ready is not None:
                    continue
                error = self._against(probe, raised, follower)
                if error is not None:
                    self._child.stop()
                elif probe.ready is not None:
                    self.ready = probe.ready
                    self._child.serves()
                    if status:
                        self._tell(status.stop)
                    self._note_ready(self.ready.model)
                    for name, why in aftermath.lost_plugins(follower.transcript()).items():
                        self._tell(self.out.note, f"warning: vLLM goes on without the plugin {name}: {why}")
                    if on_ready:
                        on_ready(self.ready)
        finally:
            if status:
                self._tell(status.stop)

    def _against(self, probe: Probe, raised: float, follower: Follower) -> HybridctlError | None:
        """What speaks against a start. ``raised``: when a worker did, if one did."""
        if probe.ready is not None:
            # vLLM only logs a plugin that fails to import, also the one of POST /generate.
            lacks = not probe.ready.generate and self.launch.target.has_generate
            lacks = lacks and bool(aftermath.plugin_trouble(follower.transcript()))
            return ProofError("POST /generate is missing") if lacks else None
        if probe.error is not None:
            return probe.error
        if time.monotonic() - raised > RAISED_SECONDS:
            return HybridctlError("an exception in one worker, and vLLM waits for it")
        if self._phases.seconds > self._start_seconds:
            return HybridctlError(f"not ready after {self._start_seconds:g} s, while {self._phases.words}")
        return None

    def _note_ready(self, model: str) -> None:
        try:
            self.run.note(state="ready", model=model)
        except HybridctlError as error:  # a full disk: serve --status says less, and the server goes on
            self._tell(self.out.note, f"warning: {error}; the server goes on")

    @staticmethod
    def _tell(say: Callable[..., object], *words: str) -> None:
        """Say something to whoever watches. A watcher who is gone (a closed terminal, a full disk) is no reason to end a server."""
        with suppress(OSError):
            say(*words)

    def _show(self, line: str, terminal: bool) -> None:
        if self.ready is None and self._phases.take(line) and not terminal:
            self._tell(self.out.note, f"[{self._phases.seconds:5.1f} s] {self._phases.words}")
        # What vLLM prints while it ends (tracebacks of broken connections, lists of leaks) is no news.
        quiet = self._asked is not None
        shown = line if self._verbose else None if quiet else worth_showing(line, self.ready is not None)
        if shown is not None:
            self._tell(self.out.note, shown)

    def _answers(self) -> bool:
        """Whether it is our server that listens on the port; so it is taken to be where the system does not tell."""
        assert self._child is not None
        found = listening.listeners(self.launch.port)
        return not found or listening.holds([self._child.pid, *self._child.processes()], found)

    def _prove(self) -> Proof:
        """Wait a little for every process to have written its proof."""
        assert self._child is not None
        launch, deadline = self.launch, time.monotonic() + PROOF_SECONDS
        rules = launch.checkpoint.load.names if launch.checkpoint.load is not None else []
        alias = (launch.checkpoint.architecture, launch.alias) if launch.alias else None
        while True:
            proof = read_proof(self.run.proof)
            lines = missing(
                *(proof, self._child.pid, self._child.processes(), launch.tensor_parallel_size),
                routed=launch.routed,
                rules=rules,
                alias=alias,
            )
            if not lines:
                return proof
            if time.monotonic() > deadline:
                what = "the dispatcher is not injected: " if launch.routed else "the plugin has not done its work: "
                raise ProofError(what + "; ".join(lines))
            time.sleep(0.5)

    def _end(self, code: int, error: HybridctlError | None, follower: Follower) -> Ended:
        log = str(self._log)
        if error is not None:
            trouble = aftermath.plugin_trouble(follower.transcript()) if isinstance(error, ProofError) else ""
            after = aftermath.read(follower.transcript(), self.launch.line())
            said = trouble or after.error
            return Ended(
                EXIT_FAILURE, str(error) + (f". vLLM's log says why: {said}" if said else ""), after.finding, log
            )
        if self._asked is not None:
            return Ended(code if self.ready is not None else 128 + self._asked)
        needed = self.launch.plugin and self.ready is None
        if needed and (trouble := aftermath.plugin_trouble(follower.transcript())):
            # vLLM then stops at the overlay's architecture, which is not the cause.
            reason = f"vLLM ended with exit code {code}, for it could not load hybridctl's plugin: {trouble}"
            return Ended(code or EXIT_FAILURE, reason, None, log)
        after = aftermath.read(follower.transcript(), self.launch.line())
        when = "while serving" if self.ready is not None else f"while {self._phases.words}"
        folder = self.launch.checkpoint.folder
        missing_model = f"{folder} is gone" if folder is not None and not folder.is_dir() else ""
        why = missing_model or after.error or aftermath.of_signal(code)
        reason = f"vLLM ended by itself with exit code {code} {when}" + (f": {why}" if why else "")
        return Ended(code or EXIT_FAILURE, reason, after.finding, log)

    def ask(self, number: int = signal.SIGTERM) -> None:
        """End in order. Asked a second time, at once."""
        self._times_asked += 1
        if self._asked is None:
            self._asked = number
        if self._child is not None:
            if self._times_asked == 1:
                self._child.stop()
            else:
                self._child.hurry()

    @contextmanager
    def _signals(self) -> Iterator[None]:
        def handler(number: int, _: FrameType | None) -> None:
            self.ask(number)

        before = {number: signal.signal(number, handler) for number in SIGNALS}
        try:
            yield
        finally:
            for number, old in before.items():
                signal.signal(number, old)
