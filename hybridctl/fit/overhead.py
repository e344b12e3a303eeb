"""What a GPU holds beside weights and caches, as a range: vLLM measures it in a profile run, and it depends on kernels.

From below: what a forward pass of ``max_num_batched_tokens`` can't do without. From above: buffers that are alive together in the
eager paths, the sampler's sort, captured graphs and the driver's own share. The range is stated with every answer; it was
not fitted to one machine.
"""

from __future__ import annotations

from dataclasses import dataclass

from hybridctl.fit.caches import Flags
from hybridctl.fit.weights import Ranks
from hybridctl.model.config import ModelConfig
from hybridctl.model.plan import LayerPlan

GIB = 2**30


@dataclass(frozen=True, slots=True)
class Range:
    """Bytes, from below and from above."""

    low: int
    high: int

    def __add__(self, other: Range) -> Range:
        return Range(self.low + other.low, self.high + other.high)


NOTHING = Range(0, 0)


@dataclass(frozen=True, slots=True)
class Overhead:
    """The parts of the overhead of one GPU."""

    activations: Range
    graphs: Range
    driver: Range

    @property
    def total(self) -> Range:
        return self.activations + self.graphs + self.driver


def overhead(config: ModelConfig, plan: LayerPlan, flags: Flags, ranks: Ranks, eager: bool = False) -> Overhead:
    """The overhead of a launch on one GPU.

    Args:
        eager: ``--enforce-eager``: no graphs.
    """
    graphs = NOTHING if eager else Range(GIB // 8, int(1.5 * GIB))
    # The context of the driver and the libraries' own buffers; NCCL's channels with more ranks.
    driver = Range(GIB * 4 // 10, GIB * 12 // 10) if ranks.world == 1 else Range(GIB * 7 // 10, GIB * 24 // 10)
    return Overhead(_activations(config, plan, flags, ranks) + _logits(config, flags, ranks), graphs, driver)


def _activations(config: ModelConfig, plan: LayerPlan, flags: Flags, ranks: Ranks) -> Range:
    """Hidden states and the widest layer's buffers, in 16 bits."""
    tokens, hidden = flags.max_num_batched_tokens, config.hidden_size or 0
    streams = config.text.get("hc_count")
    hidden *= streams if isinstance(streams, int) and 1 < streams < 16 else 1
    tensor = ranks.tensor
    dense = 3 * (config.intermediate_size or 0) / tensor
    width = (config.moe_intermediate_size or config.intermediate_size or 0) / (1 if ranks.expert_parallel else tensor)
    chosen = (config.num_experts_per_tok or 0) if config.moe else 0
    experts = chosen * (3 * width + 2 * (config.hidden_size or 0))
    heads = (config.num_attention_heads or 0) * (config.head_dim or 0) / tensor
    states = max((s.heads * s.head_numbers / tensor for s in plan.states.values()), default=0)
    scan = tokens / 64 * states * 2  # a state for every chunk of 64 tokens, while a prefill is scanned
    low = tokens * 2 * (2 * hidden + max(dense, experts / 2))
    high = tokens * 2 * (8 * hidden + dense + experts + 6 * heads) + 2 * scan
    return Range(int(low), int(high))


def _logits(config: ModelConfig, flags: Flags, ranks: Ranks) -> Range:
    """The sampler's profile run takes a row of logits for each sequence, and one more with drafts: float32, sorted from above."""
    rows = min(flags.max_num_seqs, flags.max_num_batched_tokens) * (2 if flags.num_speculative_tokens else 1)
    numbers = rows * (config.vocab_size or 0)
    return Range(numbers * 6, numbers * 22)
