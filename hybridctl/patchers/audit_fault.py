"""What an audit found: one fault, with what proves it, why it matters and the next command."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any

_SHOWN = 8
_LEFT_TO_VLLM = {
    "index-lacks-tensor", "linear-prefix", "legacy-class", "layer-types-spelling", "missing-field", "ignore-list-split-names",
    "ignore-list-wrong",
}  # fmt: skip
"""Kinds whose harm depends on what reads the checkpoint, or that prepare itself puts right. All others spoil it for any reader."""


@dataclass(frozen=True, slots=True)
class Fault:
    """One thing that is wrong with a checkpoint.

    Attributes:
        id: stable name of the kind of fault, ``tensor-missing`` or the like.
        what: one line. Tensors are named by pattern: numbers of layers and experts are ``*``.
        evidence: exact names of tensors, files or fields.
        file: where it stands; empty where it is a matter of the whole.
        cause: why that stops or spoils serving.
        next: what to type or do next.
    """

    id: str
    what: str
    evidence: tuple[str, ...]
    file: str
    cause: str
    next: str

    def document(self) -> dict[str, Any]:
        return asdict(self)

    @property
    def certain(self) -> bool:
        """Whether it is a fault whatever vLLM says, or where there is none to ask."""
        return self.id not in _LEFT_TO_VLLM

    @property
    def shown(self) -> str:
        """The evidence on one line, cut where it is long."""
        more = len(self.evidence) - _SHOWN
        return ", ".join(self.evidence[:_SHOWN]) + (f" and {more} more" if more > 0 else "")
