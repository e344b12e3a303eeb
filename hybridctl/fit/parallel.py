"""Which tensor-parallel sizes a model takes: heads, channels, widths and quantisation blocks that must divide."""

from __future__ import annotations

from hybridctl.fit.weights import Ranks
from hybridctl.model.config import ModelConfig
from hybridctl.model.plan import LayerPlan
from hybridctl.model.states import NotDivisible

SIZES = (1, 2, 4, 8, 16)
TILE = 32
"""Edge of the tile that vLLM's Triton expert kernel falls back to where a rank's share does not hold whole FP8 blocks."""


def kv_heads_fit(heads: int, ranks: int) -> bool:
    """KV heads are shared out evenly, or repeated evenly."""
    return heads % ranks == 0 or ranks % heads == 0


def expert_share(width: int, pieces: int, block: int) -> str:
    """What becomes of one expert's width cut into pieces: "whole" blocks, "retiled" by Triton's kernel, or "refused"."""
    share, rest = divmod(width, pieces)
    if rest == 0 and share % (block or 1) == 0:
        return "whole"
    return "refused" if rest or share % TILE else "retiled"


def problems(config: ModelConfig, plan: LayerPlan, ranks: Ranks, quant: list[str]) -> list[str]:
    """Why vLLM refuses this layout, one line each; empty when nothing speaks against it."""
    tensor, found = ranks.tensor, []
    heads = config.num_attention_heads
    if heads and heads % tensor:
        found.append(f"{heads} attention heads do not divide by {tensor} ranks")
    for attention in plan.attention.values():
        if not attention.latent and not kv_heads_fit(attention.kv_heads, tensor):
            found.append(f"{attention.kv_heads} KV heads do not divide by {tensor} ranks, nor {tensor} by them")
    for shape in plan.states.values():
        try:
            shape.bytes(tensor, 0, plan.dtype)
        except NotDivisible as error:
            found.append(str(error))
    if _experts(config, ranks, quant) == "refused":
        found.append(f"{_cut(config, ranks, quant)}: refused; give each rank whole experts (--enable-expert-parallel)")
    return list(dict.fromkeys(found))


def cautions(config: ModelConfig, ranks: Ranks, quant: list[str]) -> list[str]:
    """What works with one kernel and not with others."""
    if _experts(config, ranks, quant) != "retiled":
        return []
    return [
        f"{_cut(config, ranks, quant)}: only the Triton kernel takes that; --enable-expert-parallel keeps experts whole"
    ]


def _experts(config: ModelConfig, ranks: Ranks, quant: list[str]) -> str:
    width = config.moe_intermediate_size
    if not config.moe or not width:
        return "whole"
    return expert_share(width, _pieces(ranks), _block(config, quant))


def _pieces(ranks: Ranks) -> int:
    """Into how many pieces an expert is cut: without expert parallelism the data-parallel ranks share it too."""
    return 1 if ranks.expert_parallel else ranks.world


def _block(config: ModelConfig, quant: list[str]) -> int:
    return config.weight_block_size[0] if config.weight_block_size else 128 if "fp8-block" in quant else 1


def _cut(config: ModelConfig, ranks: Ranks, quant: list[str]) -> str:
    block = _block(config, quant)
    of = f" cuts an FP8 block of {block}" if block > 1 else " is not even"
    return f"an expert's share of {config.moe_intermediate_size}/{_pieces(ranks)}{of}"


def sizes_that_divide(
    config: ModelConfig, plan: LayerPlan, quant: list[str], expert_parallel: bool = False
) -> list[int]:
    """The usual tensor-parallel sizes that nothing speaks against."""
    return [n for n in SIZES if not problems(config, plan, Ranks(n, 1, expert_parallel), quant)]
