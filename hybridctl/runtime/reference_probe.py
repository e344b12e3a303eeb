"""A server's answers held against the reference, and what its routing costs or saves in perplexity.

The reference needs torch and transformers; it runs in a process of its own, and where they are missing that is said.
"""

from __future__ import annotations

import gzip
import importlib.util
import json
import math
import random
import subprocess
import sys
import uuid
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from hybridctl.errors import HybridctlError
from hybridctl.runtime.http import Client

SCORE = "hybridctl.kernels.linear_attention.score"
TIE = 0.05
"""Nats between the two best tokens below which half precision may choose either."""


def available() -> str:
    """Why the reference can't run here; empty where it can."""
    missing = [name for name in ("torch", "transformers", "safetensors") if importlib.util.find_spec(name) is None]
    return f"{' and '.join(missing)} not installed in {sys.executable}" if missing else ""


def reference(
    folder: Path,
    sequences: Sequence[Sequence[int]],
    first: Sequence[int],
    configs: Sequence[Mapping[str, Any] | None],
    seconds: float = 1800.0,
) -> list[list[dict[str, list[Any]]]]:
    """The reference's rows for each configuration (see the module that scores).

    Raises:
        HybridctlError: it fails.
    """
    document = {
        "model": str(folder),
        "sequences": list(map(list, sequences)),
        "first": list(first),
        "configs": list(configs),
    }
    try:
        done = subprocess.run(
            [sys.executable, "-m", SCORE],
            input=json.dumps(document),
            capture_output=True,
            text=True,
            timeout=seconds,
            check=False,
        )
    except subprocess.TimeoutExpired as error:
        raise HybridctlError(f"the reference took longer than {seconds:g} s") from error
    if done.returncode != 0:
        last = (done.stderr.strip().splitlines() or ["no message"])[-1]
        raise HybridctlError(f"the reference fails: {last[:300]}")
    rows: list[list[dict[str, list[Any]]]] = json.loads(done.stdout)
    return rows


@dataclass(frozen=True)
class Agreement:
    """Greedy answers against the reference: tokens compared, those where the reference prefers another by more than a tie, the
    largest difference of a log-probability."""

    tokens: int
    distinct: int
    different: int
    worst: float


def greedy(
    client: Client, model: str, prompts: Sequence[Sequence[int]], tokens: int
) -> list[tuple[list[int], list[float]]]:
    """(token ids, their log-probabilities) of the server's greedy answer to each prompt."""
    out = []
    for each in prompts:
        asked = {
            "model": model,
            "prompt": list(each),
            "max_tokens": tokens,
            "temperature": 0,
            "logprobs": 1,
            "ignore_eos": True,
            "return_token_ids": True,
            "cache_salt": uuid.uuid4().hex,
        }
        reply = client.post("/v1/completions", asked, 600.0)
        if reply.status != 200:
            raise HybridctlError(f"a completion fails: {reply.problem}")
        choice = reply.json()["choices"][0]
        out.append(([int(t) for t in choice["token_ids"]], [float(p) for p in choice["logprobs"]["token_logprobs"]]))
    return out


def agree(client: Client, model: str, folder: Path, prompts: Sequence[Sequence[int]], tokens: int) -> Agreement:
    """Compare greedy answers with the reference, which reads the same tokens."""
    answers = greedy(client, model, prompts, tokens)
    sequences = [[*p, *ids] for p, (ids, _) in zip(prompts, answers, strict=True)]
    (rows,) = reference(folder, sequences, [len(p) for p in prompts], [None])
    different, worst, seen = 0, 0.0, set()
    for (ids, logprobs), row in zip(answers, rows, strict=True):
        seen |= set(ids)
        for chosen, best, gap in zip(ids, row["argmax"], row["gap"], strict=True):
            different += chosen != best and gap > TIE
        worst = max([worst, *(abs(a - b) for a, b in zip(logprobs, row["logprobs"], strict=True))])
    return Agreement(sum(len(ids) for ids, _ in answers), len(seen), different, worst)


def heldout(folder: Path, windows: int, begin: int = 256) -> list[list[int]]:
    """Windows of the demo's held-out text as token ids (one a byte), evenly chosen."""
    with gzip.open(folder / "heldout.json.gz", "rt", encoding="utf-8") as handle:
        rows = json.load(handle)["windows"]
    step = max(1, len(rows) // windows)
    return [[begin, *bytes.fromhex(row["text"])] for row in rows[step // 2 :: step][:windows]]


def served_losses(client: Client, model: str, sequences: Sequence[Sequence[int]], first: int) -> list[float]:
    """Nats a token of each sequence from position ``first`` on, by the server."""
    out = []
    for each in sequences:
        asked = {"model": model, "prompt": list(each), "max_tokens": 0, "echo": True, "logprobs": 1}
        reply = client.post("/v1/completions", asked, 600.0)
        if reply.status != 200:
            raise HybridctlError(f"scoring {len(each)} tokens fails: {reply.problem}")
        logprobs = reply.json()["choices"][0]["logprobs"]["token_logprobs"][first : len(each)]
        out.append(-sum(logprobs) / len(logprobs))
    return out


def wrong_routings(config: Mapping[str, Any], context: int) -> dict[str, dict[str, Any]]:
    """The same checkpoint routed otherwise, by thresholds."""
    inner = config.get("thresholds") or {}
    doubled = {name: None if value is None else 2 * int(value) for name, value in inner.items()}
    base = {**config, "routing_strategy": "sequence_length", "fallback_policy": "flash"}
    for name in ("compute_units", "default_unit"):
        base.pop(name, None)
    return {
        "all flash": {**base, "thresholds": {"flash": context, "linear": context}},
        "all linear": {**base, "thresholds": {"flash": 0, "linear": 0}},
        "thresholds doubled": {**config, "thresholds": doubled},
    }


def perplexity(losses: Sequence[float]) -> float:
    return math.exp(sum(losses) / len(losses))


def ratio(losses: Sequence[float], base: Sequence[float], draws: int = 2000) -> tuple[float, float, float]:
    """Perplexity as a multiple of another on the same windows, with its 95 % interval (bootstrap over windows)."""
    gaps = [a - b for a, b in zip(losses, base, strict=True)]
    chance = random.Random(0)
    means = sorted(sum(chance.choices(gaps, k=len(gaps))) / len(gaps) for _ in range(draws))
    low, high = means[int(0.025 * draws)], means[int(0.975 * draws) - 1]
    return math.exp(sum(gaps) / len(gaps)), math.exp(low), math.exp(high)
