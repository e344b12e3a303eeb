"""The one JSON document of ``hybridctl fit --json``: every figure with its unit in its name. Bytes are whole numbers."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from hybridctl.fit.advice import Advised, Change
from hybridctl.fit.estimate import Estimate
from hybridctl.fit.limits import AtContext, Gain, Sequences, least_budget
from hybridctl.fit.routing import Routing
from hybridctl.fit.rules import SOURCES
from hybridctl.fit.source import Found

SCHEMA_VERSION = 1


@dataclass(frozen=True, slots=True)
class Answer:
    """All that the command has to say."""

    found: Found
    estimate: Estimate
    summary: str
    flags: list[Advised]
    command: str
    contexts: list[AtContext]
    sequences: Sequences | None
    gain: Gain | None
    changes: list[Change]
    routing: Routing | None
    sizes: list[int]
    notes: list[str]


def document(answer: Answer) -> dict[str, Any]:
    """The document."""
    e = answer.estimate
    return {
        "schema_version": SCHEMA_VERSION,
        "model": _model(answer.found),
        "vllm": {
            "version": e.rules.version,
            "measured": e.rules.measured,
            "known": e.rules.known,
            "source": list(SOURCES),
        },
        "gpu": {
            "name": e.memory.name,
            "memory_bytes": {"low": e.memory.low, "high": e.memory.high},
            "gpu_memory_utilization": e.utilization,
        },
        "launch": _launch(e),
        "verdict": e.verdict,
        "summary": answer.summary,
        "why": list(e.why),
        "memory": _memory(e),
        "cache": _cache(answer),
        "contexts": [
            {"tokens": c.tokens, "blocks": c.blocks, "gib": round(c.gib, 4), "concurrency": c.concurrency}
            for c in answer.contexts
        ],
        "max_num_seqs": None
        if answer.sequences is None
        else {"start": answer.sequences.start, "short_requests": answer.sequences.short, "safe": answer.sequences.safe},
        "fp8_kv": None
        if answer.gain is None
        else {
            "block_size": answer.gain.block_size,
            "concurrency": answer.gain.concurrency,
            "factor": answer.gain.factor,
        },
        "tensor_parallel_sizes": answer.sizes,
        "flags": [{"flag": f.flag, "reason": f.reason} for f in answer.flags],
        "command": answer.command,
        "changes": [{"text": c.text, "verdict": c.answer.verdict} for c in answer.changes],
        "routing": _routing(answer.routing, e.flags.max_model_len),
        "notes": answer.notes,
    }


def _model(found: Found) -> dict[str, Any]:
    subject = found.subject
    inventory = subject.inventory
    return {
        "name": subject.name,
        "architectures": subject.config.architectures,
        "config": found.config_from,
        "layers_from": subject.plan.read_from,
        "layers": [{"kind": layer.kind, "moe": layer.moe} for layer in subject.plan.layers],
        "quantisation": subject.quant,
        "weights": None
        if inventory is None
        else {
            "files": inventory.files,
            "bytes": inventory.bytes,
            "by_dtype": inventory.by_dtype,
            "by_part": inventory.by_part,
        },
    }


def _launch(e: Estimate) -> dict[str, Any]:
    f = e.flags
    return {
        "max_model_len": f.max_model_len,
        "max_num_seqs": f.max_num_seqs,
        "max_num_batched_tokens": f.max_num_batched_tokens,
        "tensor_parallel_size": e.ranks.tensor,
        "data_parallel_size": e.ranks.data,
        "expert_parallel": e.ranks.expert_parallel,
        "kv_cache_dtype": f.kv_cache_dtype,
        "mamba_ssm_cache_dtype": f.mamba_ssm_cache_dtype,
        "num_speculative_tokens": f.num_speculative_tokens,
        "prefix_caching": f.enable_prefix_caching,
    }


def _memory(e: Estimate) -> dict[str, Any] | None:
    if e.weights is None or e.overhead is None:
        return None
    beside = e.overhead
    return {
        "weights_bytes": e.weights.gpu,
        "weights_by_part": dict(e.weights.parts),
        "weights_from": e.weights.source,
        "weights_error": e.weights.error,
        "host_bytes": e.weights.host,
        "checkpoint_bytes": e.weights.whole,
        "activations_bytes": {"low": beside.activations.low, "high": beside.activations.high},
        "graphs_bytes": {"low": beside.graphs.low, "high": beside.graphs.high},
        "driver_bytes": {"low": beside.driver.low, "high": beside.driver.high},
        "pool_bytes": {"low": e.pool.low, "high": e.pool.high, "planned": e.planned},
    }


def _cache(answer: Answer) -> dict[str, Any] | None:
    e = answer.estimate
    made = e.caches
    if made is None:
        return None
    budget, why = least_budget(made)
    return {
        "mamba_cache_mode": made.mode,
        "block_size": made.block_size,
        "page_bytes": made.alignment.page if made.alignment else None,
        "state_page_bytes": made.alignment.state if made.alignment else None,
        "state_padding": made.alignment.padding if made.alignment else None,
        "kv_bytes_a_token": made.token_bytes,
        "state_bytes": made.state_bytes,
        "state_sets": made.state_sets,
        "block_bytes": made.grouping.block_bytes,
        "idle_share": made.idle,
        "groups": [
            {
                "kinds": list(dict.fromkeys(s.kind for s in g.specs)),
                "layers": len(g.specs),
                "block_size": g.first.block,
                "page_bytes": sorted({s.page for s in g.specs}),
                "blocks_a_request": g.blocks(made.flags.max_model_len, made.launch),
            }
            for g in made.grouping.groups
        ],
        "blocks_a_request": made.grouping.blocks(made.flags.max_model_len, made.launch),
        "request_bytes": made.need(made.flags.max_model_len),
        "blocks": {
            "low": made.blocks(max(0, e.pool.low)),
            "high": made.blocks(max(0, e.pool.high)),
            "planned": made.blocks(e.planned),
        },
        "logged_tokens": made.tokens(e.planned),
        "concurrency": made.concurrency(e.planned),
        "least_max_num_batched_tokens": {"tokens": budget, "reason": why},
    }


def _routing(made: Routing | None, length: int) -> dict[str, Any] | None:
    if made is None:
        return None
    return {
        "linear_heads": made.linear_heads,
        "flash_heads": made.flash_heads,
        "pages_end": made.pages_end,
        "state_bytes": made.state_bytes,
        "live_bytes": made.live(length),
        "flash_only_bytes": made.flash_only(length),
        "live_share": made.ratio(length),
        "padding": made.padding,
        "block_factor": made.block_factor,
    }
