"""An engine of the installed vLLM inside the test process, and the comparison of its answers with the reference."""

from __future__ import annotations

import gc
import random
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch

TOLERANCE = 1e-4  # of log-probabilities, float32 against float32
EOS = 0


@dataclass
class Answer:
    """One finished request: what went in, what came out, the log-probability of each token, tokens taken from the cache."""

    prompt: list[int]
    tokens: list[int]
    logprobs: list[float]
    cached: int = 0
    request: str = ""


@dataclass
class Difference:
    """Of generated tokens: how many are not the reference's argmax, how many are wrong in that way or beyond the tolerance."""

    tokens: int
    distinct: int
    argmax: int
    mismatches: int
    worst: float


class Engine:
    """vLLM's LLM with access to what lies behind it."""

    def __init__(self, model: Path, **settings: Any) -> None:
        from vllm import LLM

        base = {
            "dtype": "float32",
            "max_model_len": 512,
            "enforce_eager": True,
            "max_num_seqs": 16,
            "max_num_batched_tokens": 2048,
            "enable_prefix_caching": False,
            "block_size": 32,
            "seed": 0,
            "kv_cache_memory_bytes": 1 << 26,
            "disable_log_stats": False,
        }
        self.llm = LLM(str(model), **{**base, **settings})
        self.core = self.llm.llm_engine.engine_core.engine_core
        self.scheduler = self.core.scheduler
        self.pool = self.scheduler.kv_cache_manager.block_pool
        self.groups = self.scheduler.kv_cache_config.kv_cache_groups
        context = self.llm.llm_engine.vllm_config.compilation_config.static_forward_context
        self.layers = {name: layer for name, layer in context.items() if hasattr(layer, "kv_cache")}
        self.failed = False

    def poison(self) -> None:
        """NaN in every page and every state: all are free, and nothing may read what it has not written."""
        for layer in self.layers.values():
            tensors = layer.kv_cache if isinstance(layer.kv_cache, tuple) else (layer.kv_cache,)
            for tensor in tensors:
                tensor.fill_(float("nan"))

    def poison_free_blocks(self) -> int:
        """NaN in all blocks that nobody holds and no cached prefix needs, and in the null block; how many."""
        free = [b.block_id for b in self.pool.blocks if b.is_null or (b.ref_cnt == 0 and b.block_hash is None)]
        for layer in self.layers.values():
            for tensor in layer.kv_cache if isinstance(layer.kv_cache, tuple) else (layer.kv_cache,):
                tensor[free] = float("nan")
        return len(free)

    def generate(self, prompts: Sequence[Sequence[int]], tokens: int = 24) -> list[Answer]:
        assert not self.failed, "a step of this engine failed: its requests would wait for ever"
        params = greedy(tokens)
        self.failed = True
        done = self.llm.generate([{"prompt_token_ids": list(p)} for p in prompts], params, use_tqdm=False)
        self.failed = False
        return [answer(each) for each in done]

    def run(self, prompts: Sequence[Sequence[int]], tokens: int, after: Callable[[int], object]) -> list[Answer]:
        """Step by step, calling ``after`` with the number of each step; requests are called r0, r1, …"""
        front, done, steps = self.llm.llm_engine, [], 0
        for i, prompt in enumerate(prompts):
            front.add_request(f"r{i}", {"prompt_token_ids": list(prompt)}, greedy(tokens))
        while front.has_unfinished_requests():
            done += [answer(each) for each in front.step() if each.finished]
            steps += 1
            assert steps < 5000, "nothing moves any more"
            after(steps)
        return done

    def managers(self) -> list[Any]:
        return list(self.scheduler.kv_cache_manager.coordinator.single_type_managers)


def greedy(tokens: int) -> Any:
    from vllm import SamplingParams

    return SamplingParams(max_tokens=tokens, temperature=0, ignore_eos=True, logprobs=0)


def answer(output: Any) -> Answer:
    first = output.outputs[0]
    tokens = list(first.token_ids)
    logprobs = [d[t].logprob for t, d in zip(tokens, first.logprobs, strict=True)]
    return Answer(list(output.prompt_token_ids), tokens, logprobs, output.num_cached_tokens or 0, output.request_id)


@contextmanager
def engine(model: Path, *, poison: bool = True, **settings: Any) -> Iterator[Engine]:
    """An engine for one test. Its memory starts full of NaN."""
    from vllm.distributed import cleanup_dist_env_and_memory

    made = Engine(model, **settings)
    if poison:
        made.poison()
    try:
        yield made
    finally:
        del made.llm, made.core, made.scheduler, made.pool, made.layers
        gc.collect()
        cleanup_dist_env_and_memory()


def difference(answers: Sequence[Answer], reference: Any) -> Difference:
    """Answers against the reference's logits over the same tokens."""
    tokens = argmax = mismatches = 0
    worst, distinct = 0.0, set()
    for each in answers:
        logits = reference.logits(each.prompt + each.tokens)[len(each.prompt) - 1 : -1]
        logprobs = logits.float().log_softmax(-1)
        got = torch.tensor(each.tokens)
        wrong = logprobs.argmax(-1) != got
        away = (logprobs.gather(1, got[:, None])[:, 0] - torch.tensor(each.logprobs)).abs().nan_to_num(1e9)
        argmax += int(wrong.sum())
        mismatches += int((wrong | (away > TOLERANCE)).sum())
        worst = max(worst, float(away.max()))
        tokens += len(each.tokens)
        distinct |= set(each.tokens)
    return Difference(tokens, len(distinct), argmax, mismatches, worst)


def assert_same(answers: Sequence[Answer], reference: Any) -> Difference:
    found = difference(answers, reference)
    assert found.argmax == 0, found
    assert found.worst <= TOLERANCE, found
    return found


def count_preemptions(vllm: Engine) -> list[int]:
    """Grows by one with each preemption."""
    seen: list[int] = []
    original = vllm.scheduler._preempt_request

    def counting(*args: Any, **kwargs: Any) -> Any:
        seen.append(1)
        return original(*args, **kwargs)

    vllm.scheduler._preempt_request = counting
    return seen


def prompts_of(lengths: Sequence[int], seed: int = 1, start: Sequence[int] = ()) -> list[list[int]]:
    """Random prompts of these lengths, each beginning with ``start``."""
    rnd = random.Random(seed)
    return [[*start, *(rnd.randrange(3, 512) for _ in range(n - len(start)))] for n in lengths]
