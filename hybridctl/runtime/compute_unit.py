"""A compute unit: a kernel, the memory layout that it works on, and the condition under which it computes a token."""

from __future__ import annotations

from dataclasses import dataclass

from hybridctl.runtime.condition import Condition

FLASH, LINEAR, ENTROPY = "flash", "linear", "entropy"
PAGES, STATE = "pages", "state"

# The names of the article and ours.
KERNELS = {"flash": FLASH, "flash_attn": FLASH, "linear": LINEAR, "linear_attn": LINEAR}
LAYOUTS = {"pages": PAGES, "contiguous": PAGES, "state": STATE, "compressed": STATE}
LAYOUT_OF = {FLASH: PAGES, LINEAR: STATE}


@dataclass(frozen=True, slots=True)
class ComputeUnit:
    """One line of the routing table; of several whose condition holds, the first computes.

    Attributes:
        name: what messages call it.
        kernel: ``flash`` (softmax attention over K/V pages) or ``linear`` (attention through a running state).
        layout: ``pages`` or ``state``, the one that the kernel works on.
        condition: when it computes.
        generated: made from other fields (head shares, layer types), not written by the user.
    """

    name: str
    kernel: str
    layout: str
    condition: Condition
    generated: bool = False


def unit(name: str, kernel: str, condition: Condition, *, generated: bool = True) -> ComputeUnit:
    """A unit with the layout that its kernel has."""
    return ComputeUnit(name, kernel, LAYOUT_OF[kernel], condition, generated)
