"""Puts the KV groups of a checkpoint into the order of a layer's parts, so that no step has to gather them.

Rows of q, k and v and their biases, columns of o. A layout in which the rows of a group can't be told apart is refused by name.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import torch

from hybridctl.runtime.vllm_plugin.routing import RefusedError
from hybridctl.runtime.vllm_plugin.weights import GATE, PROJECTION, WeightError

INPUTS, OUTPUT = ("q_proj", "k_proj", "v_proj"), "o_proj"
FUSED = "qkv_proj"
NORMS = ("q_norm", "k_norm")  # one weight for all heads
HINT = "serve with --no-hybrid, or list linear_heads that stand first in each rank"


@dataclass
class Block:
    """The attention block of one layer.

    Attributes:
        order: KV groups over all ranks; in place i of the permuted tensors stands group ``order[i]``.
        wanted: tensors, without the block's name, that must come; ``seen`` those that did.
    """

    order: tuple[int, ...]
    wanted: frozenset[str]
    seen: set[str] = field(default_factory=set)


def block_of(parent: torch.nn.Module, name: str, head_size: int, order: tuple[int, ...]) -> Block:
    """What will be permuted in an attention block.

    Args:
        parent: the block, which holds the projections; ``name`` is its name in the model.
        order: as in :class:`Block`, not the identity.

    Raises:
        RefusedError: quantised projections, or parameters that can't be put in another order.
    """
    children = dict(parent.named_children())
    for child in (FUSED, OUTPUT):
        if child not in children:
            raise RefusedError(f"{name} has no {child}: its KV groups can't be put in another order", HINT)
        method = type(getattr(children[child], "quant_method", None)).__name__
        if method != "UnquantizedLinearMethod":
            raise RefusedError(
                f"{name}.{child} is quantised ({method}): its KV groups can't be put in another order", HINT
            )
    wanted = set()
    for full, parameter in parent.named_parameters():
        child, _, kind = full.partition(".")
        if child == FUSED and kind in ("weight", "bias"):
            wanted |= {f"{each}.{kind}" for each in INPUTS}
        elif child == OUTPUT and kind in ("weight", "bias"):
            wanted |= {full} if kind == "weight" else set()
        elif not (full in (PROJECTION, GATE) or (child in NORMS and parameter.numel() == head_size)):
            raise RefusedError(f"{name}.{full} is not known to hold its heads in any order", HINT)
    return Block(order, frozenset(wanted))


class Permutation:
    """Permutes the tensors of the blocks in a stream of weights.

    Args:
        blocks: by the block's name in the model.
    """

    def __init__(self, blocks: Mapping[str, Block]) -> None:
        self.blocks = blocks

    def take(self, name: str, tensor: torch.Tensor) -> torch.Tensor:
        """The tensor as the model must have it; the same one where it is not concerned."""
        head, _, kind = name.rpartition(".")
        owner, _, child = head.rpartition(".")
        block = self.blocks.get(owner)
        if block is None:
            return tensor
        if child == FUSED or kind not in ("weight", "bias"):
            raise WeightError(f"{name} is a fused or packed tensor: its KV groups can't be put in another order", HINT)
        if f"{child}.{kind}" not in block.wanted:
            return tensor
        block.seen.add(f"{child}.{kind}")
        return reorder(tensor, block.order, 1 if child == OUTPUT else 0, name)

    def check(self) -> None:
        """Every tensor of every block must have come under the name that was expected."""
        for owner, block in self.blocks.items():
            if missing := sorted(block.wanted - block.seen):
                raise WeightError(
                    f"the checkpoint has no {owner}.{missing[0]}: the KV groups of that layer can't be put in another order",
                    HINT,
                )
            block.seen.clear()


def reorder(tensor: torch.Tensor, order: tuple[int, ...], axis: int, name: str = "tensor") -> torch.Tensor:
    """The tensor with its KV groups along ``axis`` in another order."""
    size = tensor.shape[axis]
    if size % len(order):
        raise WeightError(f"{name} has {size} rows or columns, which {len(order)} KV groups don't divide")
    shape: list[Any] = [*tensor.shape[:axis], len(order), size // len(order), *tensor.shape[axis + 1 :]]
    index = torch.tensor(order, device=tensor.device)
    return tensor.reshape(shape).index_select(axis, index).reshape(tensor.shape)
