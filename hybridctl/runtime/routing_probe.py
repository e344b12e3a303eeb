"""Which kernel computed what, seen from outside: prompts of known lengths, and the counters on /metrics before and after."""

from __future__ import annotations

import itertools
import re
import time
import uuid
from collections.abc import Sequence
from dataclasses import dataclass

from hybridctl.errors import HybridctlError
from hybridctl.runtime.compute_unit import ENTROPY
from hybridctl.runtime.dispatcher import HybridAttentionDispatcher
from hybridctl.runtime.http import Client

PROMPT = '''def fibonacci(n):
    """Return the n-th Fibonacci number."""
'''
"""A Fibonacci prompt in hybridctl's own wording."""
FIBONACCI = f"{PROMPT}    if n < 2:\n        return n\n    return fibonacci(n - 1) + fibonacci(n - 2)\n\n"
"""Long prompts repeat this."""
_COUNTER = re.compile(r'^hybridctl_kernel_tokens_total\{[^}\n]*kernel="(\w+)"[^}\n]*\} (\S+)$', re.MULTILINE)
SETTLE = 5.0


@dataclass(frozen=True)
class Row:
    """One prompt.

    Attributes:
        length: its tokens.
        place: where its last token stands: ``below``, ``between`` or ``above`` the thresholds; empty where there are none.
        last: what computed its last token: ``flash``, ``linear``, ``both`` (in different layers), or ``?`` where counts don't say.
        shares: tokens × layers by kernel, as counted.
        expected: the same, as configured; None where entropy decides.
        expected_last: as ``last``; None where entropy decides.
    """

    length: int
    place: str
    last: str
    shares: dict[str, int]
    expected: dict[str, int] | None
    expected_last: str | None

    @property
    def right(self) -> bool:
        return self.expected is None or (self.shares == self.expected and self.last == self.expected_last)


def counts(client: Client) -> dict[str, float]:
    """Tokens × layers by kernel since the start; a part of a layer's KV groups counts as that part.

    Raises:
        HybridctlError: the server has no such counters.
    """
    reply = client.get("/metrics", 20.0)
    found = {kernel: float(value) for kernel, value in _COUNTER.findall(reply.text)}
    if reply.status != 200 or not found:
        raise HybridctlError(
            f"{client.url}/metrics has no hybridctl_kernel_tokens_total: no routed model is served there",
            "hybridctl serve --demo",
        )
    return {kernel: found.get(kernel, 0) for kernel in ("flash", "linear")}


def tokens_of(client: Client, model: str, text: str) -> list[int]:
    """Token ids of a text, by the server's own tokenizer."""
    reply = client.post("/tokenize", {"model": model, "prompt": text})
    if reply.status != 200:
        raise HybridctlError(f"{client.url}/tokenize: {reply.problem}")
    return [int(t) for t in reply.json()["tokens"]]


def prompt(client: Client, model: str, length: int) -> list[int]:
    """A prompt of exactly so many tokens."""
    once = tokens_of(client, model, FIBONACCI)
    tokens = tokens_of(client, model, FIBONACCI * (length // max(1, len(once) - 2) + 2))
    if len(tokens) < length:
        raise HybridctlError(f"the tokenizer made {len(tokens)} tokens where {length} are needed")
    return tokens[:length]


def routes(client: Client) -> bool:
    """Whether a server has a dispatcher that counts."""
    return bool(_COUNTER.search(client.get("/metrics", 20.0).text))


def lengths(dispatcher: HybridAttentionDispatcher, marks: Sequence[int], longest: int) -> list[int]:
    """Prompt lengths below, between and above the thresholds, and on both sides of each change of kernel.

    Args:
        marks: thresholds as configured.
        longest: the longest prompt that the server takes.
    """
    changes = {start for route in dispatcher.routes for start in route.starts if start}
    points = sorted({m for m in (*marks, *changes) if m > 0})
    wanted = {max(2, points[0] // 2)} if points else {64}
    wanted |= {(a + b) // 2 for a, b in itertools.pairwise(points)}
    wanted |= {points[-1] * 3 // 2} if points else set()
    wanted |= {n for change in changes for n in (change, change + 1)}
    return sorted(n for n in wanted if 2 <= n <= longest)


def place(length: int, marks: Sequence[int]) -> str:
    """Where the last token of a prompt stands among the thresholds."""
    points = [m for m in marks if m > 0]
    if not points:
        return ""
    return "below" if length - 1 < min(points) else "above" if length - 1 >= max(points) else "between"


def measure(
    client: Client, model: str, dispatcher: HybridAttentionDispatcher, wanted: Sequence[int], marks: Sequence[int]
) -> list[Row]:
    """One row a length. The last token's kernel is the difference between a prompt and the same without its last token.

    Nothing else may use the server meanwhile; salts keep the prompts out of the prefix cache.

    Args:
        marks: thresholds as configured.
    """
    tokens = prompt(client, model, max(wanted))
    rows = []
    for length in wanted:
        shorter = _run(client, model, tokens[: length - 1], len(counted(dispatcher)))
        whole = _run(client, model, tokens[:length], len(counted(dispatcher)))
        rest = {kernel for kernel in whole if whole[kernel] > shorter[kernel]}
        last = rest.pop() if len(rest) == 1 else "both" if rest else "?"
        expected = expect(dispatcher, length)
        before = expect(dispatcher, length - 1)
        told: str | None = None
        if expected is not None and before is not None:
            kinds = [kernel for kernel in expected if expected[kernel] > before[kernel]]
            told = kinds[0] if len(kinds) == 1 else "both"
        rows.append(Row(length, place(length, marks), last, whole, expected, told))
    return rows


def _run(client: Client, model: str, tokens: Sequence[int], layers: int) -> dict[str, int]:
    before = counts(client)
    asked = {"model": model, "prompt": list(tokens), "max_tokens": 1, "temperature": 0, "cache_salt": uuid.uuid4().hex}
    reply = client.post("/v1/completions", asked, 600.0)
    if reply.status != 200:
        raise HybridctlError(f"a prompt of {len(tokens)} tokens fails: {reply.problem}")
    deadline = time.monotonic() + SETTLE
    while True:  # on a GPU the counts lag a few steps
        now = counts(client)
        found = {kernel: round(now[kernel] - before[kernel]) for kernel in now}
        if sum(found.values()) >= len(tokens) * layers or time.monotonic() > deadline:
            return found
        time.sleep(0.2)


def expect(dispatcher: HybridAttentionDispatcher, length: int) -> dict[str, int] | None:
    """Tokens × layers by kernel for a prompt, as configured. None where entropy decides, or another thing than the position."""
    if dispatcher.by_value:
        return None
    out = {"flash": 0, "linear": 0}
    for layer in counted(dispatcher):
        for head in dispatcher.groups:
            for piece in dispatcher.table.at(layer, head).ranges:
                size = min(length, length if piece.end is None else piece.end) - piece.start
                if size > 0 and piece.kernel == ENTROPY:
                    return None
                if size > 0:
                    out[piece.kernel] += size
    return {kernel: round(tokens / len(dispatcher.groups)) for kernel, tokens in out.items()}


def counted(dispatcher: HybridAttentionDispatcher) -> list[int]:
    """The layers whose tokens are counted: those that can go linear."""
    return [layer for layer in dispatcher.layers if dispatcher.linear_groups(layer)]
