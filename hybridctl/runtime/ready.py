"""When a server is ready: it answers /health, it completes a prompt, and every process of it proves its injection."""

from __future__ import annotations

import json
import re
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from hybridctl.errors import HybridctlError
from hybridctl.overlays import NameRule
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
    names: Mapping[int, Mapping[str, Any]] = field(default_factory=dict)
    """By rank, where tensors were renamed."""

    @property
    def layers(self) -> int:
        return len(self.workers[min(self.workers)]["layers"]) if self.workers else 0


def read_proof(folder: Path) -> Proof:
    """Read a run directory's proof. Raises ProofError for a file that can't be read."""
    registered: dict[int, Mapping[str, Any]] = {}
    workers: dict[int, Mapping[str, Any]] = {}
    names: dict[int, Mapping[str, Any]] = {}
    for file in sorted(folder.glob("*.json")):
        try:
            document = json.loads(file.read_text(encoding="utf-8"))
            if file.name.startswith("registered-"):
                registered[int(document["pid"])] = document
            elif file.name.startswith("layers-"):
                workers[int(document["rank"])] = document
            elif file.name.startswith("names-"):
                names[int(document["rank"])] = document
        except (OSError, ValueError, KeyError, TypeError) as error:
            raise ProofError(f"the proof {file} can't be read: {error}") from error
    return Proof(registered, workers, names)


def missing(
    proof: Proof,
    front: int,
    processes: Mapping[int, str],
    ranks: int,
    *,
    routed: bool = True,
    rules: Sequence[NameRule] = (),
    alias: tuple[str, str] | None = None,
) -> list[str]:
    """What the proof lacks, a line each.

    Args:
        front: pid of the API server.
        processes: living processes of the server by pid, with their titles.
        ranks: workers that there must be.
        routed: whether each worker must hold routed layers.
        rules: those for names that each worker must have applied, each to some tensor.
        alias: a legacy class name that each process must know, and its class.
    """
    lines = []
    if front not in proof.registered:
        lines.append(f"the API server (pid {front}) has not loaded the plugin")
    for pid, title in processes.items():
        if (named := _TITLE.match(title)) and not _WITHOUT_ENGINE.match(title) and pid not in proof.registered:
            lines.append(f"{named[0]} (pid {pid}) has not loaded the plugin")
    if alias is not None:
        strange = [pid for pid, told in proof.registered.items() if told.get("aliases", {}).get(alias[0]) != alias[1]]
        lines += [f"process {pid} has not registered {alias[0]} as {alias[1]}" for pid in strange]
    for rank in range(ranks):
        if routed:
            lines += _unproved(proof.workers.get(rank), rank, processes, "holds no routed model")
            if rank in proof.workers and not proof.workers[rank].get("layers"):
                lines.append(f"the worker of rank {rank} has no routed layer")
        if rules:
            lines += _unproved(proof.names.get(rank), rank, processes, "has not renamed a tensor")
            lines += _idle(proof.names.get(rank), rank, rules)
    return lines


def _unproved(worker: Mapping[str, Any] | None, rank: int, processes: Mapping[int, str], lack: str) -> list[str]:
    if worker is None:
        return [f"the worker of rank {rank} {lack}"]
    if int(worker["pid"]) not in processes:
        return [f"the worker of rank {rank} (pid {worker['pid']}) is gone"]
    return []


def _idle(worker: Mapping[str, Any] | None, rank: int, rules: Sequence[NameRule]) -> list[str]:
    if worker is None:
        return []
    done = {(row["kind"], row["old"], row["new"]): int(row["tensors"]) for row in worker.get("rules", ())}
    idle = (rule for rule in rules if not done.get((rule.kind, rule.old, rule.new)))
    return [f"the worker of rank {rank} has not applied the rule for names {rule.shown}" for rule in idle]


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
