"""The operator's own weights, and names that carry the article's ``linear_`` prefix."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any

import torch

from hybridctl.errors import UsageError
from hybridctl.model.name_patterns import by_pattern

PROJECTION, GATE = "linear_proj.weight", "linear_head_gate"
OWN = (PROJECTION, GATE)
PREFIX = "linear_"
_SHOWN = 12


class WeightError(UsageError):
    """A checkpoint whose tensors don't fit its ``hybrid_config``, or the rules for their names."""


def listing(names: Iterable[str]) -> str:
    """Names by pattern, layers and experts as ``*``: ``model.layers.*.mlp.up_proj.weight (28), …``."""
    rows = [f"{pattern} ({len(found)})" for pattern, found in by_pattern(names).items()]
    return ", ".join(rows[:_SHOWN]) + (f" and {len(rows) - _SHOWN} more patterns" if len(rows) > _SHOWN else "")


def rename(name: str, targets: frozenset[str], packed: Mapping[str, list[str]]) -> str:
    """A tensor's name without ``linear_`` before a component, where the model has that name and does not have this one.

    Args:
        targets: the model's parameter names.
        packed: vLLM's fused modules: {"qkv_proj": ["q_proj", "k_proj", "v_proj"], …}.
    """
    if _known(name, targets, packed) or name.endswith(OWN):
        return name
    plain = ".".join(part.removeprefix(PREFIX) for part in name.split("."))
    return plain if _known(plain, targets, packed) else name


def _known(name: str, targets: frozenset[str], packed: Mapping[str, list[str]]) -> bool:
    if name in targets:
        return True
    parts = name.split(".")
    fused = (
        ".".join([*parts[:-2], f, parts[-1]]) for f, members in packed.items() if parts[-2:-1] and parts[-2] in members
    )
    return any(f in targets for f in fused)


class OperatorWeights:
    """Takes the projections and gates out of a stream of weights and hands on the rest.

    Args:
        model: the built model; ``packed_modules_mapping`` is read where it has one.
        groups: the KV groups, numbered over all ranks, that this rank holds; ``by_name`` those of single tensors, where they are
            fewer or in another order.
        num_kv_heads: KV groups over all ranks; ``first_head`` the first query head within a group, where ranks share one.
        change: a last look at each tensor that is handed on.
    """

    def __init__(
        self,
        model: torch.nn.Module,
        groups: tuple[int, ...],
        *,
        by_name: Mapping[str, tuple[int, ...]] | None = None,
        num_kv_heads: int | None = None,
        first_head: int = 0,
        change: Callable[[str, torch.Tensor], torch.Tensor] = lambda _, tensor: tensor,
    ) -> None:
        parameters = dict(model.named_parameters())
        self.wanted = {name: p for name, p in parameters.items() if name.endswith(OWN)}
        self.targets = frozenset(parameters)
        self.packed: Any = getattr(model, "packed_modules_mapping", {})
        self.groups, self.by_name, self.num_kv_heads = groups, by_name or {}, num_kv_heads
        self.first_head, self.change = first_head, change
        self.loaded: set[str] = set()
        self.renamed: dict[str, str] = {}

    def take(self, weights: Iterable[tuple[str, torch.Tensor]]) -> Iterator[tuple[str, torch.Tensor]]:
        seen = set()
        for name, tensor in weights:
            if name.endswith(OWN):
                self._load(name, tensor)
                continue
            new = rename(name, self.targets, self.packed)
            if new != name:
                self.renamed[name] = new
            if new in seen:
                raise WeightError(f"the checkpoint has {new} twice, once as {PREFIX}…")
            seen.add(new)
            yield new, self.change(new, tensor)

    def _load(self, name: str, tensor: torch.Tensor) -> None:
        target = self.wanted.get(name)
        if target is None:
            what = (
                "linear_head_gate asks for no gate"
                if name.endswith(GATE)
                else "linear_feature_size asks for no projection"
            )
            raise WeightError(f"{name} is in the checkpoint, but hybrid_config.{what} there")
        groups = self.by_name.get(name, self.groups)
        part = self._gates(tensor, groups, target) if name.endswith(GATE) else _projections(tensor, groups)
        if part.shape != target.shape:
            want = "×".join(map(str, target.shape))
            raise WeightError(
                f"{name} has shape {list(tensor.shape)}; this rank needs {want} of KV groups {list(groups)}"
            )
        target.data.copy_(part)
        self.loaded.add(name)

    def _gates(self, tensor: torch.Tensor, groups: tuple[int, ...], target: torch.Tensor) -> torch.Tensor:
        """Logits [heads of ``groups`` on this rank] of logits [H]."""
        if tensor.dim() != 1 or not self.num_kv_heads or tensor.shape[0] % self.num_kv_heads:
            return tensor
        heads = target.shape[0] // len(groups)
        rows = tensor.view(self.num_kv_heads, -1)[list(groups)]
        return rows[:, self.first_head : self.first_head + heads].reshape(-1)

    def check(self) -> None:
        """Every projection and gate that the configuration asks for must have been in the checkpoint."""
        for kind, key in ((PROJECTION, "linear_feature_size"), (GATE, "linear_head_gate")):
            missing = [name for name in self.wanted if name.endswith(kind) and name not in self.loaded]
            if missing:
                raise WeightError(f"the checkpoint has no {listing(missing)}, which hybrid_config.{key} asks for")


def _projections(tensor: torch.Tensor, groups: tuple[int, ...]) -> torch.Tensor:
    return tensor[list(groups)] if tensor.dim() == 3 and max(groups) < tensor.shape[0] else tensor
