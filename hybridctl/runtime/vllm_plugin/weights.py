"""The operator's own weights, and names that carry the article's ``linear_`` prefix."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Any

import torch

from hybridctl.errors import UsageError
from hybridctl.model.name_patterns import by_pattern

PROJECTION = "linear_proj.weight"
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
    if _known(name, targets, packed) or name.endswith(PROJECTION):
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
    """Takes the projections out of a stream of weights and hands on the rest.

    Args:
        model: the built model; ``packed_modules_mapping`` is read where it has one.
        groups: the KV groups, numbered over all ranks, that this rank holds.
    """

    def __init__(self, model: torch.nn.Module, groups: tuple[int, ...]) -> None:
        parameters = dict(model.named_parameters())
        self.wanted = {name: p for name, p in parameters.items() if name.endswith(PROJECTION)}
        self.targets = frozenset(parameters)
        self.packed: Any = getattr(model, "packed_modules_mapping", {})
        self.groups = groups
        self.loaded: set[str] = set()
        self.renamed: dict[str, str] = {}

    def take(self, weights: Iterable[tuple[str, torch.Tensor]]) -> Iterator[tuple[str, torch.Tensor]]:
        seen = set()
        for name, tensor in weights:
            if name.endswith(PROJECTION):
                self._load(name, tensor)
                continue
            new = rename(name, self.targets, self.packed)
            if new != name:
                self.renamed[name] = new
            if new in seen:
                raise WeightError(f"the checkpoint has {new} twice, once as {PREFIX}…")
            seen.add(new)
            yield new, tensor

    def _load(self, name: str, tensor: torch.Tensor) -> None:
        target = self.wanted.get(name)
        if target is None:
            raise WeightError(
                f"{name} is in the checkpoint, but hybrid_config.linear_feature_size asks for no projection there"
            )
        part = tensor[list(self.groups)] if tensor.dim() == 3 and max(self.groups) < tensor.shape[0] else tensor
        if part.shape != target.shape:
            want = "×".join(map(str, target.shape))
            raise WeightError(
                f"{name} has shape {list(tensor.shape)}; this rank needs {want} of KV groups {list(self.groups)}"
            )
        target.data.copy_(part)
        self.loaded.add(name)

    def check(self) -> None:
        """Every projection that the configuration asks for must have been in the checkpoint."""
        missing = [name for name in self.wanted if name not in self.loaded]
        if missing:
            raise WeightError(
                f"the checkpoint has no {listing(missing)}, which hybrid_config.linear_feature_size asks for"
            )
