"""From an answer to a launch line: the fewest flags, each with its reason, and what to change when it does not fit."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from types import MappingProxyType
from typing import TypeAlias

from hybridctl.fit.caches import QUANTISED
from hybridctl.fit.estimate import Estimate, Question, Subject, estimate
from hybridctl.fit.limits import sequences
from hybridctl.fit.parallel import sizes_that_divide
from hybridctl.fit.rules import batch_defaults

Published: TypeAlias = "Mapping[str, int | None]"
NONE: Published = MappingProxyType({})
_STEP = 1024
_LEAST_CONTEXT = 4096


@dataclass(frozen=True, slots=True)
class Advised:
    """A flag and why it is needed."""

    flag: str
    reason: str


@dataclass(frozen=True, slots=True)
class Change:
    """One thing to change, and the answer with it."""

    text: str
    asked: Question
    answer: Estimate


def needed_flags(answer: Estimate, asked: Question, length_given: bool) -> list[Advised]:
    """The flags without which vLLM would not start like this. Those that equal vLLM's own defaults are left out."""
    flags, made = answer.flags, answer.caches
    found: list[Advised] = []
    if asked.ranks.tensor > 1:
        found.append(
            Advised(f"--tensor-parallel-size {asked.ranks.tensor}", "the weights are spread over so many GPUs")
        )
    if asked.ranks.data > 1:
        found.append(Advised(f"--data-parallel-size {asked.ranks.data}", "as asked"))
    if asked.ranks.expert_parallel:
        found.append(Advised("--enable-expert-parallel", "each rank holds whole experts"))
    if length_given:
        found.append(Advised(f"--max-model-len {flags.max_model_len}", "the longest request that must be served"))
    if flags.kv_cache_dtype != "auto":
        found.append(Advised(f"--kv-cache-dtype {flags.kv_cache_dtype}", "keys and values take half the room"))
    if flags.mamba_ssm_cache_dtype != "auto":
        found.append(
            Advised(
                f"--mamba-ssm-cache-dtype {flags.mamba_ssm_cache_dtype}", "as asked: the width of the recurrent state"
            )
        )
    if flags.num_speculative_tokens:
        config = f'{{"method":"mtp","num_speculative_tokens":{flags.num_speculative_tokens}}}'
        found.append(Advised(f"--speculative-config '{config}'", "drafts with the checkpoint's own head"))
    if answer.utilization != answer.rules.utilization:
        found.append(Advised(f"--gpu-memory-utilization {answer.utilization:g}", "as asked"))
    if not flags.enable_prefix_caching:
        found.append(Advised("--no-enable-prefix-caching", "one state a request instead of two and more"))
    if flags.block_size:
        found.append(Advised(f"--block-size {flags.block_size}", "as asked"))
    tokens, seqs = batch_defaults(asked.memory.high / 2**30, asked.memory.name)
    if flags.max_num_batched_tokens != tokens:
        found.append(
            Advised(
                f"--max-num-batched-tokens {flags.max_num_batched_tokens}", "the prefill budget that was counted with"
            )
        )
    if made is not None and answer.planned:
        safe = sequences(made, max(answer.pool.low, 0) or answer.planned)
        most = min(flags.max_num_seqs, safe.start) if safe.start else flags.max_num_seqs
        if most != seqs:
            reason = (
                f"each sequence needs a state block, and the pool may hold no more than {safe.start}"
                if safe.start and safe.start < flags.max_num_seqs
                else "the number of sequences that was counted with"
            )
            found.append(Advised(f"--max-num-seqs {most}", reason))
    return found


def command(subject: Subject, flags: list[Advised]) -> str:
    """The launch line."""
    return " ".join(["vllm serve", subject.name, *(f.flag for f in flags)])


def changes_that_fit(subject: Subject, asked: Question, published: Published = NONE, limit: int = 3) -> list[Change]:
    """The smallest changes under which the model fits, most gentle first.

    Args:
        published: quantisations in which this model can be had, smaller ones last, with bytes where a recipe states them.
    """
    found: list[Change] = []
    for text, other, changed in _changes(subject, asked, published):
        if any(text.startswith(f"{done.text} and ") for done in found):
            continue
        answer = estimate(other, changed)
        if answer.verdict == "fits":
            found.append(Change(text, changed, answer))
            if len(found) == limit:
                break
    return found


def _changes(subject: Subject, asked: Question, published: Published) -> Iterator[tuple[str, Subject, Question]]:
    for text, changed in [*_gentle(asked), *_shorter(subject, asked)]:
        yield text, subject, changed
    for text, changed in _more_gpus(subject, asked):
        yield text, subject, changed
        for also, gentler in _gentle(changed):
            yield f"{text} and {also}", subject, gentler
    for quant, size in published.items():
        if not any(q.startswith(quant) for q in subject.quant):
            smaller = replace(subject, inventory=None, quant=[quant], size=size)
            yield f"the {quant} checkpoint", smaller, asked
            for text, changed in [*_gentle(asked), *_more_gpus(smaller, asked)]:
                yield f"the {quant} checkpoint and {text}", smaller, changed


def _gentle(asked: Question) -> list[tuple[str, Question]]:
    """What costs least: fewer sequences and tokens a step leave more for the caches, fp8 makes each cached token smaller."""
    flags, found = asked.flags, []
    fewer = {"max_num_seqs": 16, "max_num_batched_tokens": min(2048, flags.max_num_batched_tokens)}
    if flags.max_num_seqs > 16:
        text = "fewer sequences a step (--max-num-seqs 16 --max-num-batched-tokens 2048)"
        found.append((text, _flags(asked, **fewer)))
    if flags.kv_cache_dtype not in QUANTISED:
        narrow = _flags(asked, kv_cache_dtype="fp8")
        found.append(("fp8 keys and values (--kv-cache-dtype fp8)", narrow))
    return found


def _shorter(subject: Subject, asked: Question) -> list[tuple[str, Question]]:
    answer = estimate(subject, asked)
    if answer.caches is None or answer.pool.low <= 0:
        return []
    longest = answer.caches.longest(answer.pool.low) // _STEP * _STEP
    if longest < min(_LEAST_CONTEXT, asked.flags.max_model_len) or longest >= asked.flags.max_model_len:
        return []
    return [(f"a shorter context (--max-model-len {longest})", _flags(asked, max_model_len=longest))]


def _more_gpus(subject: Subject, asked: Question) -> list[tuple[str, Question]]:
    sizes = sizes_that_divide(subject.config, subject.plan, subject.quant, asked.ranks.expert_parallel)
    return [
        (
            f"{n} such GPUs (--tensor-parallel-size {n})",
            replace(_flags(asked, tensor_parallel_size=n), ranks=replace(asked.ranks, tensor=n)),
        )
        for n in sizes
        if asked.ranks.tensor < n <= 8
    ]


def _flags(asked: Question, **changes: object) -> Question:
    return replace(asked, flags=replace(asked.flags, **changes))  # type: ignore[arg-type]
