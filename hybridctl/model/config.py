"""Reads a ``config.json`` into plain values. Wrong types never raise: they are listed as problems, and the value is unknown."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from hybridctl.loose_json import MAX_TEXT, loads
from hybridctl.model.json_spans import whole_part
from hybridctl.model.layers import STATE_KINDS, layer_kinds
from hybridctl.model.quant import from_config

_NESTS = ("text_config", "llm_config", "language_config", "thinker_config")
_EXPERTS = ("num_experts", "n_routed_experts", "num_local_experts", "moe_num_experts", "num_routed_experts")
_MAX_TEXT = 8 * 1024 * 1024


@dataclass(slots=True)
class ModelConfig:
    """What a ``config.json`` says. ``None`` and empty mean: not stated, or not readable (then see ``problems``)."""

    document: dict[str, Any] = field(default_factory=dict)
    text: dict[str, Any] = field(default_factory=dict)
    """The language model's part: ``text_config`` or the like, else the whole document."""
    text_path: str = ""
    """The name of that part; empty for the whole document."""
    architectures: list[str] = field(default_factory=list)
    model_types: list[str] = field(default_factory=list)
    layers: list[str] | None = None
    layers_from: str = ""
    """The field that told the layers."""
    num_hidden_layers: int | None = None
    hidden_size: int | None = None
    num_attention_heads: int | None = None
    num_key_value_heads: int | None = None
    head_dim: int | None = None
    linear_num_key_heads: int | None = None
    linear_num_value_heads: int | None = None
    linear_key_head_dim: int | None = None
    linear_value_head_dim: int | None = None
    linear_conv_kernel_dim: int | None = None
    mamba_ssm_dtype: str | None = None
    num_experts: int | None = None
    num_experts_per_tok: int | None = None
    moe_intermediate_size: int | None = None
    intermediate_size: int | None = None
    vocab_size: int | None = None
    max_position_embeddings: int | None = None
    mtp_layers: int | None = None
    vision_heads: int | None = None
    dtype: str | None = None
    quant: list[str] = field(default_factory=list)
    weight_block_size: list[int] = field(default_factory=list)
    kv_cache_scheme: Any = None
    ignored_modules: list[str] = field(default_factory=list)
    auto_map: bool = False
    problems: list[str] = field(default_factory=list)
    """One line each: what could not be read, and why."""
    fatal: str = ""
    """Why nothing at all could be read; empty when something was."""

    @property
    def complete(self) -> bool:
        """Whether this looks like a whole config.json, so that a field that is missing is really absent."""
        return bool(
            self.hidden_size and self.num_hidden_layers and self.vocab_size and (self.architectures or self.model_types)
        )

    @property
    def hybrid(self) -> bool | None:
        """Whether a layer keeps recurrent state; ``None`` when the layers are not known."""
        return None if self.layers is None else any(kind in STATE_KINDS for kind in self.layers)

    @property
    def moe(self) -> bool | None:
        """Mixture of experts: by the number of experts, or by the class's own name."""
        if self.num_experts is not None:
            return self.num_experts > 1
        if any("moe" in name.lower() for name in self.architectures + self.model_types):
            return None if "granitemoehybrid" in self.model_types else True
        return False if self.complete else None


def read_config(source: str | Mapping[str, Any]) -> ModelConfig:
    """Read a config.json given as text or as a table. Never raises."""
    config = ModelConfig()
    document = _document(source, config.problems)
    if document is None:
        config.fatal = config.problems[-1]
        return config
    config.document = document
    config.text_path = next((n for n in _NESTS if isinstance(document.get(n), dict)), "")
    config.text = document[config.text_path] if config.text_path else document
    inner = config.text.get("text_config")
    if config.text_path == "thinker_config" and isinstance(inner, dict):  # Omni models nest twice
        config.text, config.text_path = inner, "thinker_config.text_config"
    config.architectures = _texts(document, "architectures", config.problems) or _texts(
        config.text, "architectures", []
    )
    types = [document.get("model_type"), config.text.get("model_type")]
    config.model_types = list(dict.fromkeys(t for t in types if isinstance(t, str) and t))
    if "model_type" in document and not isinstance(document["model_type"], str):
        config.problems.append(f"model_type is {_show(document['model_type'])}, not a text")
    _numbers(config)
    config.layers, config.layers_from = layer_kinds(config.text, config.model_types, config.architectures)
    stated = config.text.get("layer_types")
    if stated is not None and config.layers_from != "layer_types":
        config.problems.append(f"layer_types is {_show(stated)}, not a list of known layer kinds")
    if config.layers is not None and config.num_hidden_layers not in (None, len(config.layers)):
        config.problems.append(
            f"{config.layers_from} names {len(config.layers)} layers, num_hidden_layers says {config.num_hidden_layers}"
        )
    _quantization(config)
    return config


def _document(source: str | Mapping[str, Any], problems: list[str]) -> dict[str, Any] | None:
    if not isinstance(source, str):
        return dict(source)
    text = source[:_MAX_TEXT].lstrip("\ufeff \t\r\n")
    try:
        value = json.loads(text)
    except (ValueError, RecursionError) as error:
        where = f"line {error.lineno}" if isinstance(error, json.JSONDecodeError) else type(error).__name__
        text = whole_part(text[:MAX_TEXT])  # no more of it is looked at
        begin = text.find("{")
        piece = text[begin:] if begin >= 0 and '"' not in text[:begin].replace('""', "") else "{" + text
        value = loads(piece)
        if not isinstance(value, dict) or not value:
            problems.append(f"not JSON ({where}): nothing could be read from it")
            return None
        problems.append(f"not valid JSON ({where}): read as far as possible")
    if not isinstance(value, dict):
        problems.append(f"the document is {_show(value)}, not an object")
        return None
    return value


def _numbers(config: ModelConfig) -> None:
    text, problems = config.text, config.problems
    for name in (
        "num_hidden_layers", "hidden_size", "num_attention_heads", "num_key_value_heads", "head_dim", "linear_num_key_heads",
        "linear_num_value_heads", "linear_key_head_dim", "linear_value_head_dim", "linear_conv_kernel_dim", "num_experts_per_tok",
        "moe_intermediate_size", "intermediate_size", "vocab_size", "max_position_embeddings",
    ):  # fmt: skip
        setattr(config, name, _whole(_field(config, name), name, problems))
    config.num_experts = next((n for f in _EXPERTS if (n := _whole(_field(config, f), f, problems)) is not None), None)
    mtp = ("mtp_num_hidden_layers", "num_nextn_predict_layers")
    config.mtp_layers = next((n for f in mtp if (n := _whole(text.get(f), f, problems)) is not None), None)
    vision = config.document.get("vision_config")
    if isinstance(vision, dict):
        heads = vision.get("num_heads", vision.get("num_attention_heads"))
        config.vision_heads = _whole(heads, "vision_config.num_heads", problems)
    dtype = _field(config, "dtype") or _field(config, "torch_dtype")
    config.dtype = dtype.removeprefix("torch.") if isinstance(dtype, str) else None
    ssm = text.get("mamba_ssm_dtype")
    config.mamba_ssm_dtype = ssm if isinstance(ssm, str) else None
    config.auto_map = bool(config.document.get("auto_map"))


def _quantization(config: ModelConfig) -> None:
    for holder in (config.document, config.text):
        stated = holder.get("quantization_config") or holder.get("compression_config")
        if stated is None:
            continue
        if not isinstance(stated, dict):
            config.problems.append(f"quantization_config is {_show(stated)}, not an object")
            continue
        config.quant, config.weight_block_size, config.kv_cache_scheme, config.ignored_modules = from_config(stated)
        return


def _field(config: ModelConfig, name: str) -> Any:
    value = config.text.get(name)
    return config.document.get(name) if value is None else value


def _whole(value: object, name: str, problems: list[str]) -> int | None:
    """A whole number; per-layer lists and null are no statement."""
    if value is None or isinstance(value, list):
        return None
    if isinstance(value, (int, float)) and not isinstance(value, bool) and abs(value) < 2**63 and value == int(value):
        return int(value)
    problems.append(f"{name} is {_show(value)}, not a whole number")
    return None


def _texts(table: Mapping[str, Any], name: str, problems: list[str]) -> list[str]:
    value = table.get(name)
    if value is None:
        return []
    if isinstance(value, str):
        problems.append(f"{name} is {_show(value)}, not a list of texts")
        return [value]
    if not isinstance(value, list) or not all(isinstance(v, str) for v in value):
        problems.append(f"{name} is {_show(value)}, not a list of texts")
        return [v for v in value if isinstance(v, str)] if isinstance(value, list) else []
    return list(value)


def _show(value: object) -> str:
    try:
        text = repr(value)
    except (ValueError, RecursionError):  # a number of more digits than Python prints, or brackets without end
        text = f"a {type(value).__name__} that is too large to show"
    return text if len(text) <= 60 else text[:57] + "..."
