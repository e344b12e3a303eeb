"""The audit of a checkpoint before any weight is read: from its files alone, and with vLLM's own model on the meta device."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from itertools import combinations
from pathlib import Path
from typing import Any

from hybridctl.model.config import read_config
from hybridctl.model.headers import Tensor
from hybridctl.model.inventory import Inventory
from hybridctl.model.renaming import candidates, renamed
from hybridctl.overlays import NameRule
from hybridctl.patchers.audit_config import audit_config, audit_parallel
from hybridctl.patchers.audit_fault import Fault
from hybridctl.patchers.audit_files import audit_files
from hybridctl.patchers.audit_model import audit_models
from hybridctl.patchers.audit_names import audit_names
from hybridctl.patchers.audit_quant import audit_quant
from hybridctl.patchers.config import Versions
from hybridctl.runtime.overlay_min import PREFIX

CONFIG = "config.json"
OTHER_QUANT_FILES = ("hf_quant_config.json", "quantize_config.json", "quant_config.json")
"""Where vLLM reads a quantisation that config.json does not tell of."""
MAX_GROUPS = 3
"""Rows of names that are tried together: two to the power of it lists of tensors."""
_PARTIAL = {"shard-missing", "shard-damaged", "shard-truncated", "lfs-pointer", "index-unreadable", "index-leads-out"}


@dataclass(frozen=True, slots=True)
class Audit:
    """What was looked at and found. ``unknown``: why vLLM's own model was not asked; empty when it was."""

    faults: tuple[Fault, ...]
    unknown: str
    tensors: int
    model_class: str = ""

    @property
    def stops(self) -> bool:
        """Whether the checkpoint is refused: any fault where a vLLM was asked, else one that is certain from the files alone."""
        return bool(self.faults) if self.model_class else any(fault.certain for fault in self.faults)

    @property
    def summary(self) -> str:
        asked = f"names and shapes asked of vLLM's {self.model_class}" if self.model_class and not self.unknown else ""
        how = asked or (
            f"from files alone, vLLM's own model was not asked ({self.unknown}): "
            "not judged are tensors that all layers lack, that no model takes, or whose shape is wrong in all layers"
        )
        count = f"{len(self.faults)} fault" + "s" * (len(self.faults) != 1) if self.faults else "nothing found"
        return f"{count}; {self.tensors} tensors, {how}"

    def document(self) -> dict[str, Any]:
        faults = [fault.document() for fault in self.faults]
        return {"faults": faults, "unknown": self.unknown, "tensors": self.tensors, "model_class": self.model_class}


def audit_prepared(
    config: str,
    inventory: Inventory,
    versions: Versions,
    model: str,
    tensor_parallel: int = 1,
    *,
    folder: Path | None = None,
    other_quant_file: bool = False,
    python: str | None = None,
    environ: Mapping[str, str] | None = None,
) -> tuple[Audit, tuple[NameRule, ...]]:
    """Audit what ``hybridctl prepare`` is about to make, before anything is downloaded.

    Where the names of tensors speak for it, vLLM is asked with renamed ones: the fewest rules that leave the fewest faults.

    Args:
        config: the text of config.json as it will be written.
        folder: where the checkpoint lies, if it is here.
        python: the interpreter whose vLLM is asked; ``None`` asks none.
        environ: for that vLLM, as in :func:`hybridctl.patchers.audit_model.audit_model`.

    Returns:
        What was found, and the rules that it was found under.

    Raises:
        BadJsonError: config.json is no configuration.
        OSError: the folder can't be read.
    """
    own = audit_files(folder)[0] if folder else []
    whole = not any(fault.id in _PARTIAL for fault in own)
    architecture = next(iter(read_config(config).architectures), "").removeprefix(PREFIX)
    found = candidates((t.name for t in inventory.tensors), architecture)

    def tried(choices: list[tuple[NameRule, ...]]) -> list[tuple[Audit, tuple[NameRule, ...]]]:
        lists = [[replace(t, name=renamed(t.name, rules)) for t in inventory.tensors] for rules in choices]
        known = [
            own
            + audit_headers(
                config, rows, versions, model, tensor_parallel, other_quant_file=other_quant_file, whole=whole
            )
            for rows in lists
        ]
        if python is None:
            none = "there is none of this release here"
            return [(Audit(tuple(f), none, len(inventory.tensors)), r) for f, r in zip(known, choices, strict=True)]
        asked = audit_models(config, lists, python, folder=folder, known=known, environ=environ)
        return [
            (Audit((*faults, *said.faults), said.unknown, len(inventory.tensors), said.model_class), rules)
            for faults, said, rules in zip(known, asked, choices, strict=True)
        ]

    sure = tuple(rule for candidate in found if candidate.by_name for rule in candidate.rules)
    first = tried([sure])[0]
    if python is None or first[0].unknown or not first[0].faults or not found:
        return first
    groups = [candidate.rules for candidate in found][:MAX_GROUPS]
    subsets = [sum(chosen, ()) for n in range(len(groups) + 1) for chosen in combinations(groups, n)]
    others = tried([s for s in subsets if s != sure])
    answered = [row for row in others if not row[0].unknown]
    return min([first, *answered], key=lambda row: (sum(len(f.evidence) for f in row[0].faults), len(row[1])))


def told_of_files(folder: Path) -> str:
    """The faults of a folder's files on one line, by name; empty where there are none. For a folder that can't be read further."""
    faults = audit_files(folder)[0]
    if not (folder / CONFIG).is_file():
        faults.append(_no_config())
    return "; ".join(f"{fault.id}: {fault.what}" for fault in faults)


def _no_config() -> Fault:
    return Fault(
        "config-missing", f"there is no {CONFIG}", (CONFIG,), CONFIG, "nothing tells what the weights are",
        f"hf download OWNER/NAME {CONFIG}",
    )  # fmt: skip


def audit(folder: Path, versions: Versions, tensor_parallel: int = 1) -> list[Fault]:
    """The faults of a local checkpoint, as its files show them. Of weight files only the headers are read.

    Raises:
        BadJsonError: config.json is no configuration.
        OSError: the folder can't be read.
    """
    faults, tensors = audit_files(folder)
    path = folder / CONFIG
    if not path.is_file():
        return [*faults, _no_config()]
    if any(fault.file == CONFIG for fault in faults):  # a pointer
        return faults
    others = any((folder / name).is_file() for name in OTHER_QUANT_FILES)
    whole = not any(fault.id in _PARTIAL for fault in faults)
    text = path.read_text("utf-8")
    return faults + audit_headers(
        text, tensors, versions, str(folder), tensor_parallel, other_quant_file=others, whole=whole
    )


def audit_headers(
    config: str,
    tensors: Iterable[Tensor],
    versions: Versions,
    model: str,
    tensor_parallel: int = 1,
    *,
    other_quant_file: bool = False,
    whole: bool = True,
) -> list[Fault]:
    """The faults that a config.json and the headers of all weight files show, wherever they were read.

    Args:
        config: the text of config.json.
        model: how the user named the checkpoint; for the commands that are shown.
        other_quant_file: whether one of :data:`OTHER_QUANT_FILES` is there.
        whole: whether the headers of all files were there.

    Raises:
        BadJsonError: config.json is no configuration.
    """
    rows = list(tensors)
    made = read_config(config)
    stated = made.document.get("quantization_config") or made.text.get("quantization_config")
    quantised = bool(stated or made.document.get("compression_config") or other_quant_file)
    faults = audit_config(config, made, versions, model) + audit_parallel(made, tensor_parallel, model)
    if rows:
        faults += audit_names(made, rows, model, quantised=quantised, whole=whole)
        faults += audit_quant(made, rows) if quantised else []
    return faults
