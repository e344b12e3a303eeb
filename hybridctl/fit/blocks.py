"""The attention block that recurrent state forces on a hybrid model: one page must hold at least one layer's state.

Source: ``Platform._align_hybrid_block_size`` (vllm/platforms/interface.py), read in 0.30 to 0.33 and compared with what 0.30
and 0.32 compute (tests/data/fit).
"""

from __future__ import annotations

from dataclasses import dataclass
from math import lcm


@dataclass(frozen=True, slots=True)
class Backend:
    """What an attention backend asks of blocks.

    ``kernel``: the smallest block that its kernels take, in tokens; ``default``: the block when the user names none.
    """

    name: str
    kernel: int
    default: int
    block_outermost: bool = False
    """Pages of different sizes lie side by side in one block (Qwen4Exp's sparse layers ask for it)."""


CUDA = Backend("cuda", 16, 16)
"""FlashAttention, FlashInfer and Triton: all take multiples of 16."""
CPU = Backend("cpu", 32, 128)
QSA = Backend("qsa", 16, 16, block_outermost=True)
_MLA_ALIGNMENT = 128
"""MLA decode kernels want whole groups of kernel blocks."""


@dataclass(frozen=True, slots=True)
class Alignment:
    """The block of a hybrid model: tokens, bytes of one page, and what padding the state gets in it."""

    block: int
    page: int
    state: int

    @property
    def padding(self) -> float:
        """Share of the state that is added to fill the page: 0.01 is 1 %."""
        return (self.page - self.state) / self.state if self.state else 0.0


def align(
    state: int, token: int, backend: Backend = CUDA, block: int | None = None, latent: bool = False, chunk: int = 0
) -> Alignment:
    """The smallest block whose attention page holds a state page.

    Args:
        state: bytes of the largest state of a layer, one rank.
        token: bytes of one token in one attention layer, one rank.
        block: ``--block-size``; ``None``: the backend's own.
        latent: the attention is MLA.
        chunk: the scan's chunk in mode ``all``, which keeps a state at every block: blocks are whole chunks there; 0: another mode.

    Raises:
        ValueError: ``token`` is not positive.
    """
    if token <= 0:
        raise ValueError("an attention layer keeps at least one byte a token")
    size = block or backend.default
    step = max(backend.kernel, size, _MLA_ALIGNMENT if latent else 0)
    if chunk:
        needed = round_up(ceil_div(state, token), lcm(chunk, step))
    else:
        needed = round_up(step * ceil_div(state, step * token), backend.kernel)
    size = max(size, needed)
    return Alignment(size, size * token, state)


def ceil_div(a: int, b: int) -> int:
    return -(-a // b)


def round_up(a: int, b: int) -> int:
    return ceil_div(a, b) * b
