"""Finds out what a MODEL is: its config.json, its headers, and how its weights are stored, as far as each can be had."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from hybridctl.errors import HybridctlError, UsageError
from hybridctl.fit.estimate import Subject
from hybridctl.inputs import read_text
from hybridctl.model.config import ModelConfig, read_config
from hybridctl.model.families import Family, family_of_architecture
from hybridctl.model.headers import BadHeader
from hybridctl.model.hub import cached_config, fetch_config, is_repository
from hybridctl.model.hub_headers import read_hub
from hybridctl.model.identify import Identity, identify
from hybridctl.model.inventory import Inventory, read_folder
from hybridctl.model.plan import plan_layers

_ORDER = ("bf16", "fp8", "int4", "nvfp4")
_MODEL_TYPES = {"qwen3_5": "qwen3_5_text", "qwen4_exp": "qwen4_exp_text"}


@dataclass(frozen=True, slots=True)
class Found:
    """A subject, and where each part of the knowledge came from."""

    subject: Subject
    config_from: str
    published: Mapping[str, int | None]
    """Quantisations in which the model is published, as far as the recipes know, smaller ones last; with bytes where stated."""
    notes: tuple[str, ...]
    family: Family | None


def find(model: str, offline: bool = False, config_file: str | None = None, headers: bool = True) -> Found:
    """Look for a model: a folder, a config.json, the cache, the hub (unless offline), and last what the recipes know of it.

    Raises:
        UsageError: nothing tells what it is, or what there is can't be read.
    """
    offline = offline or os.environ.get("HF_HUB_OFFLINE", "") not in ("", "0")
    known = identify(model)
    notes: list[str] = []
    config, origin, folder = _config(model, known, offline, config_file, notes)
    if config.fatal:
        raise UsageError(f"{origin}: {config.fatal}", "check the file")
    notes += config.problems
    return found_of(model, config, _headers(model, folder, offline, headers, notes), origin, notes)


def found_of(model: str, config: ModelConfig, found: Inventory | None, origin: str, notes: list[str]) -> Found:
    """The subject of a config and headers that were read already."""
    known = identify(model)
    quant = _quant(config, found, known)
    family = known.family or next((f for a in config.architectures if (f := family_of_architecture(a))), None)
    return Found(
        Subject(model, config, plan_layers(config), found, quant, _size(known, quant)),
        origin,
        _published(known),
        tuple(notes),
        family,
    )


def check_name(model: str) -> None:
    """Refuse what can't be a model before anything else is asked for.

    Raises:
        UsageError: it is neither a folder or a file, nor a name on the hub or of a recipe.
    """
    # A name without owner may be in the cache: old models have none on the hub.
    plain = model.replace("-", "").replace(".", "").replace("_", "").isalnum()
    if not (plain or is_repository(model) or Path(model).exists() or identify(model).family):
        raise UsageError(
            f"{model[:60]!r} is neither a folder nor a Hugging Face name",
            "hybridctl fit ORG/NAME, or hybridctl fit NAME --config config.json",
        )


def _config(
    model: str, known: Identity, offline: bool, config_file: str | None, notes: list[str]
) -> tuple[ModelConfig, str, Path | None]:
    if config_file:
        return read_config(read_text(config_file, "--config")), config_file, None
    path = cached_config(model)
    if path is None and not offline and is_repository(model):
        path, why = fetch_config(model, 5.0)
        notes += [why] if why else []
    if path is not None:
        return read_config(read_text(str(path), "MODEL")), str(path), path.parent
    if known.variant is not None and known.variant.config and known.family is not None:
        notes.append("config.json was not read: the sizes are those of the recipe, which may lack fields")
        return (
            read_config(_recipe(known.family, known.variant.architecture, known.variant.config)),
            f"recipe {known.family.id}",
            None,
        )
    raise UsageError(
        f"{model[:120]!r}: no config.json was found" + (" (offline)" if offline else ""),
        f"hybridctl fit {model[:80]} --config config.json",
    )


def _recipe(family: Family, architecture: str, fields: Mapping[str, Any]) -> dict[str, Any]:
    kind = family.model_types[0] if family.model_types else family.id
    text = {**fields, "model_type": _MODEL_TYPES.get(kind, kind), "dtype": fields.get("dtype", "bfloat16")}
    return {"architectures": [architecture], "model_type": kind, "text_config": text}


def _headers(model: str, folder: Path | None, offline: bool, wanted: bool, notes: list[str]) -> Inventory | None:
    if not wanted:
        return None
    if folder is not None and (found := read_folder(folder)):
        return found
    if offline or not is_repository(model) or Path(model).exists():
        return None
    try:
        return read_hub(model)
    except BadHeader:
        raise
    except HybridctlError as error:
        notes.append(str(error))
        return None


def _quant(config: ModelConfig, found: Inventory | None, known: Identity) -> list[str]:
    names = list(config.quant) or list(found.quantised if found else ()) or known.quant
    return [name for name in dict.fromkeys(names) if name != "none"]


def _published(known: Identity) -> dict[str, int | None]:
    if known.variant is None:
        return {}
    names = {*known.variant.size_gib, *known.variant.memory_gb}
    return {name: _size(known, [name]) for name in _ORDER if name in names and name != "bf16"}


def _size(known: Identity, quant: list[str]) -> int | None:
    """Bytes of the published files of that quantisation."""
    stated = known.variant.size_gib.get(quant[0] if quant else "bf16") if known.variant else None
    return int(stated * 2**30) if stated else None
