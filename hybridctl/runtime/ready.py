"""When a server is ready: it answers /health, it completes a prompt, and every process of it proves its injection."""

from __future__ import annotations

import json
import re
import threading
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from hybridctl.errors import HybridctlError
from hybridctl.runtime.http import Client, NoAnswer

# Titles that vLLM gives to the processes that hold an engine or a model.
_TITLE = re.compile(r"VLLM::(?:EngineCore|Worker)\w*")
_WITHOUT_ENGINE = re.compile(r"VLLM::\w*Coordinator")


class ProofError(HybridctlError):
    """Something that should have proved itself has not."""


@dataclass(frozen=True)
class Proof:
    """What the processes of a run wrote."""

    registered: Mapping[int, Mapping[str, Any]] = field(default_factory=dict)
    workers: Mapping[int, Mapping[str, Any]] = field(default_factory=dict)
    """By rank."""

    @property
    def layers(self) -> int:
        return len(self.workers[min(self.workers)]["layers"]) if self.workers else 0


def read_proof(folder: Path) -> Proof:
    """Read a run directory's proof. Raises ProofError for a file that can't be read."""
    registered: dict[int, Mapping[str, Any]] = {}
    workers: dict[int, Mapping[str, Any]] = {}
    for file in sorted(folder.glob("*.json")):
        try:
            document = json.loads(file.read_text(encoding="utf-8"))
            if file.name.startswith("registered-"):
                registered[int(document["pid"])] = document
            elif file.name.startswith("layers-"):
                workers[int(document["rank"])] = document
        except (OSError, ValueError, KeyError, TypeError) as error:
            raise ProofError(f"the proof {file} can't be read: {error}") from error
    return Proof(registered, workers)


def missing(proof: Proof, front: int, processes: Mapping[int, str], ranks: int) -> list[str]:
    """What the proof lacks, a line each.

    Args:
        front: pid of the API server.
        processes: living processes of the server by pid, with their titles.
        ranks: workers that there must be.
    """
    lines = []
    if front not in proof.registered:
        lines.append(f"the API server (pid {front}) has not loaded the plugin")
    for pid, title in processes.items():
        if (named := _TITLE.match(title)) and not _WITHOUT_ENGINE.match(title) and pid not in proof.registered:
            lines.append(f"{named[0]} (pid {pid}) has not loaded the plugin")
    for rank in range(ranks):
        worker = proof.workers.get(rank)
        if worker is None:
            lines.append(f"the worker of rank {rank} holds no routed model")
        elif not worker.get("layers"):
            lines.append(f"the worker of rank {rank} has no routed layer")
        elif int(worker["pid"]) not in processes:
            lines.append(f"the worker of rank {rank} (pid {worker['pid']}) is gone")
    return lines


@dataclass(frozen=True)
class Ready:
    """A server that works."""

    model: str
    completion: str
    seconds: float
    generate: bool
    proof: Proof | None


class Probe:
    """Waits in a thread of its own. ``ready`` or ``error`` is set at the end.

    Args:
        prove: gives the proof or raises; None where nothing is injected.
        ours: whether what answers at the address is the server that was started.
    """

    def __init__(
        self,
        client: Client,
        prove: Callable[[], Proof] | None,
        begun: float,
        ours: Callable[[], bool] = lambda: True,
    ) -> None:
        self.ready: Ready | None = None
        self.error: HybridctlError | None = None
        self._client, self._prove, self._begun, self._ours = client, prove, begun, ours
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run, name="probe", daemon=True)
        self._thread.start()

    def stop(self) -> None:
        self._stop.set()

    def _run(self) -> None:
        try:
            while not self._stop.wait(0.5):
                if self._healthy():
                    self.ready = self._check()
                    return
        except HybridctlError as error:
            self.error = error

    def _healthy(self) -> bool:
        try:
            return self._client.get("/health", 2.0).status == 200 and self._ours()
        except NoAnswer:
            return False

    def _check(self) -> Ready:
        model = first_model(self._client)
        body = {"model": model, "prompt": "Hello", "max_tokens": 8, "temperature": 0}
        try:
            reply = self._client.post("/v1/completions", body)
        except NoAnswer as silence:
            raise HybridctlError(f"/health is fine, but a completion gets no answer: {silence}") from silence
        if reply.status != 200:
            raise HybridctlError(f"/health is fine, but a completion fails: {reply.problem}")
        choices = reply.json().get("choices") or [{}]
        proof = self._prove() if self._prove else None
        generate = self._client.get("/generate", 5.0).status == 405  # there, but for POST
        return Ready(model, str(choices[0].get("text", "")), time.monotonic() - self._begun, generate, proof)


def first_model(client: Client) -> str:
    """The name of the model that a server serves. Raises HybridctlError where it does not say."""
    reply = client.get("/v1/models", 10.0)
    if reply.status != 200:
        raise HybridctlError(f"{client.url}/v1/models: {reply.problem}")
    rows = reply.json().get("data") or []
    if not rows:
        raise HybridctlError(f"{client.url} serves no model")
    return str(rows[0]["id"])
