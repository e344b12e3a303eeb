"""The caches of a model under given flags: block size, pages, groups, and how many requests a pool of bytes serves."""

from __future__ import annotations

from dataclasses import dataclass

from hybridctl.fit.blocks import CUDA, QSA, Alignment, Backend, align, ceil_div, round_up
from hybridctl.fit.groups import Grouping, group_layers
from hybridctl.fit.rules import Rules
from hybridctl.fit.specs import Launch, Spec
from hybridctl.model.plan import Attention, LayerPlan
from hybridctl.model.states import DTYPE_BYTES

QUANTISED = ("fp8", "fp8_e4m3", "fp8_e5m2", "fp8_inc")


@dataclass(frozen=True, slots=True)
class Flags:
    """The flags of a launch that decide the caches, under vLLM's own names."""

    max_model_len: int
    max_num_batched_tokens: int
    max_num_seqs: int = 256
    tensor_parallel_size: int = 1
    block_size: int | None = None
    kv_cache_dtype: str = "auto"
    mamba_ssm_cache_dtype: str = "auto"
    mamba_cache_mode: str | None = None
    enable_prefix_caching: bool = True
    num_speculative_tokens: int = 0
    draft_layers: int = 0
    """Attention layers of the drafter (MTP): each keeps keys and values like one of the model's own."""
    async_scheduling: bool = True
    mamba_block_size: int | None = None


@dataclass(frozen=True, slots=True)
class Caches:
    """What a model's caches are under given flags, on one rank."""

    flags: Flags
    mode: str
    """mamba_cache_mode as vLLM settles it: none, align or all."""
    alignment: Alignment | None
    """``None`` for a model without recurrent state."""
    block_size: int
    """Tokens of an attention block."""
    grouping: Grouping
    launch: Launch
    token_bytes: int
    """Bytes that one more token takes, over all layers that keep every token."""
    state_bytes: int
    """Bytes of one state of a sequence, over all layers, without padding."""

    def need(self, length: int) -> int:
        """Bytes of the pool that one request of that length may hold, whole blocks, over all groups."""
        return self.grouping.blocks(length, self.launch) * self.grouping.block_bytes

    @property
    def idle(self) -> float:
        """Share of a request of the maximum length that is padding."""
        return self.grouping.idle(self.flags.max_model_len, self.launch)

    def blocks(self, pool: int) -> int:
        """Blocks that a pool of bytes is cut into. One of them is never handed out (the null block)."""
        return pool // self.grouping.block_bytes

    def fits(self, pool: int) -> bool:
        """Whether vLLM starts: one request of the maximum length beside the null block."""
        return self.need(self.flags.max_model_len) <= pool - self.grouping.block_bytes

    def concurrency(self, pool: int, length: int | None = None) -> float:
        """Requests of that length (default: the maximum) that the pool serves at once, as vLLM counts them."""
        return self.blocks(pool) / self.grouping.blocks(length or self.flags.max_model_len, self.launch)

    def tokens(self, pool: int) -> int:
        """The figure of vLLM's line "GPU KV cache size: N tokens": concurrency x max_model_len, not a number of slots."""
        return int(self.concurrency(pool) * self.flags.max_model_len)

    def longest(self, pool: int, limit: int | None = None) -> int:
        """The longest request that fits, 0 when not even one token does (vLLM's "estimated maximum model length")."""
        low, high = 0, limit or self.flags.max_model_len
        while low < high:
            middle = (low + high + 1) // 2
            if self.need(middle) <= pool - self.grouping.block_bytes:
                low = middle
            else:
                high = middle - 1
        return low

    @property
    def state_sets(self) -> int:
        """States that one request may hold at once."""
        return max(
            (g.blocks(self.flags.max_model_len, self.launch) for g in self.grouping.groups if g.first.kind == "state"),
            default=0,
        )


def caches(plan: LayerPlan, flags: Flags, rules: Rules, backend: Backend | None = None) -> Caches:
    """Work out the caches of a plan.

    Args:
        plan: complete (``plan.missing`` is empty).
        backend: the attention backend; by default CUDA's, or the one that sparse layers bring.

    Raises:
        NotDivisible: heads do not divide by the ranks.
        PagesDiffer: vLLM can't bring the page sizes together.
        ValueError: a model without any cache.
    """
    if backend is None:
        backend = QSA if plan.indexer else CUDA
    mode = _mode(plan, flags, rules)
    tokens = {kind: _token_bytes(plan.attention[kind], flags, plan.dtype) for kind in plan.attention}
    states = _state_bytes(plan, flags)
    alignment = _alignment(plan, flags, backend, mode, tokens, states)
    block = alignment.block if alignment else flags.block_size or backend.default
    state_block = block if mode != "none" else flags.mamba_block_size or flags.max_model_len
    specs = _specs(plan, flags, rules, block, state_block, alignment.page if alignment else None, tokens, states)
    if not specs:
        raise ValueError("this model keeps nothing of a sequence")
    in_flight = flags.max_num_batched_tokens * (2 if flags.async_scheduling else 1)
    every = sum(tokens[kind] * plan.count(kind) for kind in tokens if plan.attention[kind].window is None)
    drafts = flags.draft_layers * tokens.get("full", tokens.get("sparse", 0))
    return Caches(
        flags,
        mode,
        alignment,
        block,
        group_layers(specs, backend.block_outermost),
        Launch(in_flight, mode),
        every + drafts + _index_bytes(plan, flags),
        sum(states[kind] * (1 if kind == "ple" else plan.count(kind)) for kind in states),
    )


def _mode(plan: LayerPlan, flags: Flags, rules: Rules) -> str:
    if not flags.enable_prefix_caching:
        return "none"
    asked = flags.mamba_cache_mode or "align"
    if asked == "all" and rules.all_mode and _keeps_all(plan):
        return "all"
    return "align"


def _keeps_all(plan: LayerPlan) -> bool:
    return any(kind in plan.states for kind in ("mamba1", "mamba2"))


def _token_bytes(attention: Attention, flags: Flags, dtype: str) -> int:
    width = DTYPE_BYTES.get(dtype if flags.kv_cache_dtype == "auto" else flags.kv_cache_dtype, 2)
    return attention.numbers_a_token(flags.tensor_parallel_size) * width


def _state_bytes(plan: LayerPlan, flags: Flags) -> dict[str, int]:
    return {
        kind: sum(
            shape.bytes(
                flags.tensor_parallel_size, flags.num_speculative_tokens, plan.dtype, flags.mamba_ssm_cache_dtype
            )
        )
        for kind, shape in plan.states.items()
    }


def _alignment(
    plan: LayerPlan, flags: Flags, backend: Backend, mode: str, tokens: dict[str, int], states: dict[str, int]
) -> Alignment | None:
    """Only where states and attention share the pool, which vLLM calls a hybrid model."""
    kind = next((k for k in ("full", "sparse", "sliding") if k in tokens), None)
    if not states or kind is None:
        return None
    latent = plan.attention[kind].latent
    chunk = (flags.mamba_block_size or plan.chunk) if mode == "all" else 0
    return align(max(states.values()), tokens[kind], backend, flags.block_size, latent, chunk)


def _specs(
    plan: LayerPlan,
    flags: Flags,
    rules: Rules,
    block: int,
    state_block: int,
    page: int | None,
    tokens: dict[str, int],
    states: dict[str, int],
) -> list[Spec]:
    drafts = flags.num_speculative_tokens
    made: dict[str, list[Spec]] = {}
    for kind, attention in plan.attention.items():
        size = block * tokens[kind]
        if kind == "sliding":
            way = "chunked" if attention.chunked else "sliding"
            made[kind] = [Spec(way, block, size, size, window=attention.window or 0, label=kind)]
        else:
            made[kind] = [Spec("mla" if attention.latent else "full", block, size, size, label=f"{kind} {size}")]
        if kind == "sparse" and plan.indexer:
            made[kind] += _side_caches(plan, flags, block)
    for kind, size in states.items():
        full = size if page is None or page == size else page
        made[kind] = [
            Spec(
                "state", state_block, size, full, drafts=drafts, checkpoints=int(rules.checkpoints and kind == "mamba2"),
                replicated=kind == "ple", label=kind,
            )
        ]  # fmt: skip
    own = plan.layers[: len(plan.layers) - plan.shared]
    specs = [spec for layer in own for part in layer.parts for spec in made.get(part, [])]
    if "ple" in made:
        specs += made["ple"]
    draft = made.get("full") or made.get("sparse") or made.get("sliding") or []
    return specs + draft * flags.draft_layers


def _side_caches(plan: LayerPlan, flags: Flags, block: int) -> list[Spec]:
    """The two caches of a QSA indexer: a ring of raw bfloat16 keys, and a compressed key for every group of tokens."""
    index = plan.indexer
    if index is None:
        return []
    ring = round_up(index.ratio + flags.num_speculative_tokens, index.ratio)
    width = round_up(index.head_size, 4) + 12 if index.positions else index.head_size
    raw, packed = ring * width * 2, block // index.ratio * index.head_size * _index_width(flags)
    return [
        Spec("ring", ring, raw, raw, label="raw keys"),
        Spec("mla", block, packed, packed, label="compressed keys", divisor=index.ratio),
    ]


def _index_width(flags: Flags) -> int:
    """The compressed keys stay bfloat16 unless ``indexer_kv_dtype`` says fp8, which no flag of ours does."""
    return 2


def _index_bytes(plan: LayerPlan, flags: Flags) -> int:
    index = plan.indexer
    if index is None:
        return 0
    layers = plan.count("sparse") + flags.draft_layers
    return ceil_div(index.head_size * _index_width(flags), index.ratio) * layers
