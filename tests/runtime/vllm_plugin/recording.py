"""The masks that a server used, recorded while it runs, and the comparison of its answers with them replayed in the reference."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

import torch
from vllm_harness import Answer, Difference, Engine, difference

BOUND = 1e-5  # of |score − threshold| where the reference's own mask differs, float32


class Recorder:
    """Of each request, layer and KV group: at which positions linear computed. Everything else was flash.

    Args:
        names: gives the request of each batch row of the step under way.
        layers, groups: of the model, over all ranks.
    """

    def __init__(self, names: Any, layers: int, groups: int) -> None:
        self.names, self.layers, self.groups = names, layers, groups
        self.masks: dict[str, torch.Tensor] = {}
        self.known: dict[str, int] = {}
        self.band = {"flash": [0] * layers, "linear": [0] * layers}

    def __call__(self, layer: Any, work: Any, mask: torch.Tensor | None) -> None:
        if work.plan is None:
            return
        routing = layer.routing
        groups = [routing.dispatcher.groups[g] for g in routing.groups]
        rows = self.names()
        for row, _, _, p0, p1 in work.plan.flash:
            self._set(rows[row], p0, p1, routing.layer, groups, False)
        for row, _, _, p0, p1 in work.plan.linear:
            self._set(rows[row], p0, p1, routing.layer, groups, True)
        at = 0
        for row, q0, q1, p0, p1 in work.plan.band:
            assert mask is not None
            self._set(rows[row], p0, p1, routing.layer, groups, mask[at : at + q1 - q0])
            at += q1 - q0
        if mask is not None:
            self.band["linear"][routing.layer] += int(mask.sum())
            self.band["flash"][routing.layer] += int((~mask).sum())

    def _set(self, request: str, p0: int, p1: int, layer: int, groups: list[int], value: Any) -> None:
        name = request.split("-")[0]  # vLLM adds digits of its own
        mask = self.masks.get(name)
        if mask is None or mask.shape[1] < p1:
            grown = torch.zeros(self.layers, max(1024, 2 * p1), self.groups, dtype=torch.bool)
            if mask is not None:
                grown[:, : mask.shape[1]] = mask
            mask = self.masks[name] = grown
        mask[layer, p0:p1, groups] = value
        self.known[name] = min(p0, self.known.get(name, p0))


@dataclass
class Replay:
    """Outcome of a comparison under the server's own masks.

    Attributes:
        found: answers against the reference with the masks replayed.
        decided: (position, layer, KV group) in the entropy band; ``differ`` where the reference alone would decide otherwise.
        margin: the largest |score − threshold| among those; infinite where it is not entropy that decides.
    """

    found: Difference
    decided: int = 0
    differ: int = 0
    margin: float = 0.0
    band: dict[str, list[int]] = field(default_factory=dict)


def _both(one: Callable[..., None], other: Callable[..., None]) -> Callable[..., None]:
    def both(*arguments: Any) -> None:
        one(*arguments)
        other(*arguments)

    return both


@contextmanager
def recorded(vllm: Engine, watch: Callable[..., None] | None = None) -> Iterator[Recorder]:
    """Record what an engine in this process does; ``watch`` sees it too."""
    from hybridctl.runtime.vllm_plugin import record

    runner = vllm.core.model_executor.driver_worker.worker.model_runner
    config = vllm.llm.llm_engine.vllm_config.model_config
    made = Recorder(
        lambda: runner.input_batch.req_ids, config.hf_text_config.num_hidden_layers, config.get_total_num_kv_heads()
    )
    assert record.hook is None, "a hook that an engine before this one left"
    record.hook = made if watch is None else _both(made, watch)
    try:
        yield made
    finally:
        record.hook = None


class Masked:
    """A reference that answers with the masks of a recording, and compares them with its own rule."""

    def __init__(self, reference: Any, recorder: Recorder, answers: Sequence[Answer]) -> None:
        self.reference, self.recorder = reference, recorder
        self.tokens = {each.request: [*each.prompt, *each.tokens] for each in answers}
        self.differ, self.margin, self.flip = 0, 0.0, False
        self.request = ""

    def mask(self, request: str, length: int) -> torch.Tensor:
        """[layers, length, KV groups]. What was taken from the cache, another request with the same tokens has computed."""
        mask = self.recorder.masks[request][:, :length].clone()
        missing, mine = self.recorder.known[request], self.tokens[request]
        while missing:
            others = (o for o, tokens in self.tokens.items() if o != request and tokens[:missing] == mine[:missing])
            best = min(others, key=lambda o: self.recorder.known[o])
            start = self.recorder.known[best]
            assert start < missing, f"nobody has computed positions before {missing} of {request}"
            mask[:, start:missing] = self.recorder.masks[best][:, start:missing]
            missing = start
        return mask

    def logits(self, tokens: Sequence[int]) -> Any:
        request = next(r for r, known in self.tokens.items() if known == list(tokens))
        mask = self.mask(request, len(tokens))
        mask[:, -1] = mask[:, -2]  # the last token is never computed
        out = self.reference.logits(tokens, kernels=list(mask))
        for plan in self.reference.layers:
            if plan.watch and plan.margins is not None and plan.own is not None:
                margins = plan.margins[(plan.own != plan.used).nonzero()[:, 0] < len(tokens) - 1]
                self.differ += len(margins)
                self.margin = max([self.margin, *margins.tolist()])
        return out


def replay(answers: Sequence[Answer], recorder: Recorder, reference: Any) -> Replay:
    """Answers against the reference under the recorded masks; the masks against the reference's own rule, where it has one."""
    masked = Masked(reference, recorder, answers)
    for plan in reference.layers:
        plan.watch = True
    try:
        found = difference(answers, masked)
    finally:
        for plan in reference.layers:
            plan.watch, plan.own, plan.margins = False, None, None
    decided = sum(map(sum, recorder.band.values()))
    return Replay(found, decided, masked.differ, masked.margin, recorder.band)


def assert_replays(answers: Sequence[Answer], recorder: Recorder, reference: Any) -> Replay:
    """The same answers under the same masks, and no other mask than the reference's but within rounding of the threshold."""
    done = replay(answers, recorder, reference)
    assert done.found.argmax == 0, done
    assert done.found.worst <= 1e-4, done
    assert done.margin <= BOUND, done
    return done
