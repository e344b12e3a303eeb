"""Renames the tensors of a checkpoint on their way into a model, through vLLM's own WeightsMapper, and counts them."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import torch
from vllm.model_executor.models.utils import WeightsMapper

from hybridctl.model.inventory import read_folder
from hybridctl.model.renaming import pattern
from hybridctl.overlays import NameRule
from hybridctl.runtime.vllm_plugin.weights import WeightError, listing

EXPERTS = {"gate_proj", "up_proj", "down_proj", "gate_up_proj", "w1", "w2", "w3"}
"""What checkpoints call the parts of an expert; vLLM keeps all experts of a layer in two parameters."""


def mapper(rule: NameRule) -> WeightsMapper:
    """A rule in vLLM's own form."""
    if rule.kind == "prefix":
        return WeightsMapper(orig_to_new_prefix={rule.old: rule.new})
    if rule.kind == "suffix":
        return WeightsMapper(orig_to_new_suffix={rule.old: rule.new})
    return WeightsMapper(orig_to_new_regex={re.compile(pattern(rule)): rule.new.replace("\\", r"\\")})


class Renaming:
    """Renames a stream of tensors and counts what each rule did.

    Args:
        model: the model that takes them. A component that it has is never renamed, and none is renamed into one that it lacks.
    """

    def __init__(self, rules: Sequence[NameRule], model: torch.nn.Module) -> None:
        self.rules = [(rule, mapper(rule)) for rule in rules]
        self.counts = dict.fromkeys(range(len(rules)), 0)
        self.examples: dict[int, tuple[str, str]] = {}
        own = components(model)
        for rule in rules:
            if rule.kind == "component" and rule.old in own:
                raise WeightError(f"names: {rule.shown}: {type(model).__name__} has {rule.old} itself, so it stays")
            if rule.kind == "component" and rule.new not in own:
                raise WeightError(f"names: {rule.shown}: {type(model).__name__} has no {rule.new}")

    def take(self, weights: Iterable[tuple[str, torch.Tensor]]) -> Iterator[tuple[str, torch.Tensor]]:
        """The tensors under their new names.

        Raises:
            WeightError: two of them get one name.
        """
        seen: set[str] = set()
        for first, tensor in weights:
            name = first
            for i, (_, mapped) in enumerate(self.rules):
                (new,) = mapped.apply_list([name])
                if new != name:
                    self.counts[i] += 1
                    self.examples.setdefault(i, (name, new))
                    name = new
            if name in seen:
                raise WeightError(f"the checkpoint has {name} twice, once as {first}")
            seen.add(name)
            yield name, tensor

    def check(self) -> None:
        """Raise :class:`WeightError` for a rule that has matched nothing."""
        idle = [rule.shown for i, (rule, _) in enumerate(self.rules) if not self.counts[i]]
        if idle:
            raise WeightError(
                f"the rule for names {idle[0]} matches no tensor of the checkpoint; it was changed since it was prepared",
                "hybridctl prepare MODEL again",
            )

    def document(self) -> list[dict[str, Any]]:
        """For the proof: each rule with what it did."""
        return [
            {**rule.model_dump(mode="json"), "tensors": self.counts[i], "example": list(self.examples.get(i, ()))}
            for i, (rule, _) in enumerate(self.rules)
        ]


def components(model: torch.nn.Module) -> set[str]:
    """Every component of a name that a model takes: of its parameters and buffers, of the parts of fused layers, of what it renames
    itself, and, where it has experts, of theirs."""
    names = [name for name, _ in model.named_parameters()] + [name for name, _ in model.named_buffers()]
    for module in model.modules():
        for fused, parts in (getattr(module, "packed_modules_mapping", None) or {}).items():
            names += [fused, *parts]
        own = getattr(module, "hf_to_vllm_mapper", None)
        tables = (table for table in vars(own).values() if isinstance(table, Mapping)) if own is not None else ()
        names += [key for table in tables for key in table if isinstance(key, str)]
    found = {part for name in names for part in name.split(".") if part}
    return found | EXPERTS if "experts" in found else found


def unexpected(folder: str, rules: Sequence[NameRule], model: torch.nn.Module) -> str:
    """Tensors of a folder whose names the model has nowhere, by pattern; empty where there is none, or no folder."""
    found = read_folder(Path(folder)) if Path(folder).is_dir() else None
    own, odd = components(model), []
    maps = [mapper(rule) for rule in rules]
    if (renames := getattr(model, "hf_to_vllm_mapper", None)) is not None:
        maps.append(renames)
    for tensor in found.tensors if found else ():
        left = [tensor.name]
        for each in maps:
            left = each.apply_list(left)
        if any(not part.isdigit() and part not in own for name in left for part in name.split(".")):
            odd.append(tensor.name)
    return listing(odd)


def empty(model: torch.nn.Module, loaded: object) -> list[str]:
    """Parameters that no tensor was loaded into, as far as the model's loader tells."""
    if not isinstance(loaded, set):
        return []
    return [name for name, _ in model.named_parameters() if name not in loaded]
