"""Greedy answers of a server, and how well they agree with what something else says of the same tokens."""

from __future__ import annotations

import uuid
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from hybridctl.errors import HybridctlError
from hybridctl.runtime.http import Client

TIE = 0.05
"""Nats between two tokens below which half precision may choose either."""


@dataclass(frozen=True)
class Answer:
    """A greedy answer: the prompt's token ids, the ids that follow, their log-probabilities, and the text."""

    prompt: tuple[int, ...]
    ids: tuple[int, ...]
    logprobs: tuple[float, ...]
    text: str = ""

    @property
    def whole(self) -> list[int]:
        return [*self.prompt, *self.ids]


@dataclass(frozen=True)
class Agreement:
    """Answers beside another opinion: tokens compared, distinct ones, those where the other prefers another by more than a tie, the
    largest difference of a log-probability."""

    tokens: int
    distinct: int
    different: int
    worst: float


def greedy(client: Client, model: str, prompts: Sequence[Sequence[int]], tokens: int) -> list[Answer]:
    """The server's greedy answer of so many tokens to each prompt. Salts keep the prompts out of the prefix cache."""
    return [_greedy(client, model, list(prompt), tokens) for prompt in prompts]


def _greedy(client: Client, model: str, prompt: list[int], tokens: int) -> Answer:
    asked = {
        "model": model,
        "prompt": prompt,
        "max_tokens": tokens,
        "temperature": 0,
        "logprobs": 1,
        "ignore_eos": True,
        "return_token_ids": True,
        "cache_salt": uuid.uuid4().hex,
    }
    choice = _completion(client, asked)
    ids = tuple(int(t) for t in choice["token_ids"])
    return Answer(tuple(prompt), ids, tuple(map(float, choice["logprobs"]["token_logprobs"])), str(choice["text"]))


def scored(client: Client, model: str, tokens: Sequence[int], first: int) -> dict[str, list[Any]]:
    """What a server says of tokens that are given, from index ``first`` on: ``logprobs`` of them, ``argmax`` (the id that it would
    have chosen in the place of each) and ``gap`` (nats between the two)."""
    asked = {
        "model": model,
        "prompt": list(tokens),
        "max_tokens": 0,
        "echo": True,
        "logprobs": 1,
        "return_tokens_as_token_ids": True,
    }
    told = _completion(client, asked)["logprobs"]
    logprobs = [float(p) for p in told["token_logprobs"][first : len(tokens)]]
    row: dict[str, list[Any]] = {"logprobs": logprobs, "argmax": [], "gap": []}
    for own, best in zip(logprobs, told["top_logprobs"][first : len(tokens)], strict=True):
        name = max(best, key=best.__getitem__)
        row["argmax"].append(int(name.removeprefix("token_id:")))
        row["gap"].append(float(best[name]) - own)
    return row


def losses(client: Client, model: str, tokens: Sequence[int]) -> list[float]:
    """Nats of each token but the first. Index p: what position p, which has seen p + 1 tokens, says of the next one."""
    asked = {"model": model, "prompt": list(tokens), "max_tokens": 0, "echo": True, "logprobs": 1}
    return [-float(p) for p in _completion(client, asked)["logprobs"]["token_logprobs"][1 : len(tokens)]]


def _completion(client: Client, asked: Mapping[str, Any]) -> Mapping[str, Any]:
    reply = client.post("/v1/completions", asked, 600.0)
    if reply.status != 200:
        raise HybridctlError(f"a completion after {len(asked['prompt'])} tokens fails: {reply.problem}")
    choice: Mapping[str, Any] = reply.json()["choices"][0]
    return choice


def compare(
    answers: Sequence[Answer], rows: Sequence[Mapping[str, Sequence[Any]]], start: int = 0, end: int | None = None
) -> Agreement:
    """Answers beside another opinion of their tokens.

    Args:
        rows: one an answer, of its tokens: ``logprobs``, ``argmax``, ``gap`` (see :func:`scored`).
        start: only tokens that positions from here on compute, up to ``end`` (not included).
    """
    different, worst, seen, count = 0, 0.0, set(), 0
    for answer, row in zip(answers, rows, strict=True):
        each = zip(answer.ids, answer.logprobs, row["argmax"], row["gap"], row["logprobs"], strict=True)
        for position, (chosen, own, best, gap, other) in enumerate(each, len(answer.prompt) - 1):
            if position < start or (end is not None and position >= end):
                continue
            count += 1
            seen.add(chosen)
            different += chosen != best and gap > TIE
            worst = max(worst, abs(own - other))
    return Agreement(count, len(seen), different, worst)
