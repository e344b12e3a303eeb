"""From vLLM's configuration to the dispatcher of a rank, and what stops a start."""

from __future__ import annotations

import sys
from typing import Any

from hybridctl.errors import UsageError
from hybridctl.runtime.compute_unit import FLASH
from hybridctl.runtime.dispatcher import NEEDED_BY_VALUE, HybridAttentionDispatcher
from hybridctl.runtime.hybrid_config import ModelShape, parse

# Of dispatcher.FEATURES, what this runtime executes beyond one route by position.
FEATURES = frozenset({"band", "heads", "layers", "gate", "prompt_length", "uniform", "return"})


class RefusedError(UsageError):
    """A configuration that the runtime does not serve."""


def make_dispatcher(vllm_config: Any, tp_rank: int = 0) -> HybridAttentionDispatcher:
    """The dispatcher of one tensor-parallel rank, from ``hybrid_config`` in the checkpoint's config.json.

    Raises:
        UsageError: no ``hybrid_config``, one that is wrong, or groups that don't divide among the ranks.
    """
    model = vllm_config.model_config
    document = getattr(model.hf_config, "hybrid_config", None)
    if document is None:
        raise RefusedError(f"{model.architecture}: config.json has no hybrid_config", "hybridctl prepare writes one")
    layers, groups = model.hf_text_config.num_hidden_layers, model.get_total_num_kv_heads()
    kinds = getattr(model.hf_text_config, "layer_types", None) or ()
    routable = frozenset(i for i in range(layers) if i >= len(kinds) or kinds[i] != "linear_attention")
    config = parse(document, ModelShape(layers, groups, model.get_head_size(), routable))
    return HybridAttentionDispatcher(config, layers, groups, tp_rank, vllm_config.parallel_config.tensor_parallel_size)


def not_executed(dispatcher: HybridAttentionDispatcher) -> list[str]:
    """What of a routing this runtime does not execute yet, a line each. ``prepare``, ``serve`` and the plugin all ask here."""
    return dispatcher.unsupported(FEATURES)


def refuse(vllm_config: Any, dispatcher: HybridAttentionDispatcher) -> None:
    """Raise :class:`RefusedError`, a line for each thing that stands against serving."""
    lines = [*not_executed(dispatcher), *dispatcher.unreachable(vllm_config.model_config.max_model_len)]
    parallel, cache = vllm_config.parallel_config, vllm_config.cache_config
    if vllm_config.speculative_config is not None:
        lines.append("speculative decoding: a rejected token can't be taken out of a linear state")
    if parallel.pipeline_parallel_size > 1:
        lines.append(f"pipeline parallelism ({parallel.pipeline_parallel_size} stages): not tested with routed layers")
    if parallel.decode_context_parallel_size > 1 or parallel.prefill_context_parallel_size > 1:
        lines.append("context parallelism: a linear state is not split over positions")
    if vllm_config.kv_transfer_config is not None:
        lines.append("K/V connectors and offload: they would move pages without the linear state")
    if parallel.enable_dbo or parallel.use_ubatching:
        lines.append("dual-batch overlap: half batches don't carry the plan of a step")
    if cache.kv_sharing_fast_prefill:
        lines.append("K/V shared between layers: a state absorbs the pages of its own layer")
    if cache.cache_dtype not in ("auto", "float16", "bfloat16", "float32"):
        lines.append(f"--kv-cache-dtype {cache.cache_dtype}: absorbing quantised pages is not tested")
    if cache.mamba_cache_mode == "all":
        lines.append("--mamba-cache-mode all: states are kept at block ends only (align)")
    if dispatcher.by_value:
        on = vllm_config.scheduler_config.enable_chunked_prefill, cache.enable_prefix_caching
        lines += [
            f"{dispatcher.rule_by_value} with {what}: {why} ({flag})"
            for (flag, (what, why)), given in zip(NEEDED_BY_VALUE.items(), on, strict=True)
            if given
        ]
    if any(made != sorted(made) for made in map(dispatcher.permutation, dispatcher.layers)):
        # The rows of the projections stand in another order than in the checkpoint.
        if vllm_config.lora_config is not None:
            lines.append("LoRA adapters with KV groups of two kinds: their rows are in the checkpoint's order")
        if vllm_config.load_config.load_format == "sharded_state":
            lines.append("--load-format sharded_state with KV groups of two kinds: its rows are not put in order")
    if lines:
        raise RefusedError("; ".join(lines), "serve with --no-hybrid")


def is_routed(dispatcher: HybridAttentionDispatcher, layer: int) -> bool:
    """Whether a layer can go linear in some KV group; one that can't stays as vLLM has it."""
    return bool(dispatcher.linear_groups(layer))


def state_groups(dispatcher: HybridAttentionDispatcher) -> int:
    """KV groups of a state: the most that a part of a layer has, so that all states have one shape and stay one cache group."""
    rows = ([dispatcher.route(layer, g) for g in dispatcher.linear_groups(layer)] for layer in dispatcher.layers)
    return max((row.count(route) for row in rows for route in row), default=0)


def first_linear(dispatcher: HybridAttentionDispatcher) -> int:
    """The first position at which a layer may need its state. One for all layers, so that their states stay one cache group."""
    return 0 if dispatcher.by_value else min(p.state_start for p in dispatcher.routes if p.state_start is not None)


def first_cut(dispatcher: HybridAttentionDispatcher) -> int:
    """Up to this many tokens a request is flash in every layer, and enters no state."""
    if dispatcher.by_value:
        return 0
    first = [p.ranges[0] for p in dispatcher.routes]
    return min(0 if r.kernel != FLASH else sys.maxsize if r.end is None else r.end for r in first)


def state_sizes(dispatcher: HybridAttentionDispatcher, head_size: int) -> tuple[int, int]:
    """(feature size F, value size D_v) of a state."""
    config = dispatcher.config
    return config.feature_size or head_size, config.value_size or head_size
