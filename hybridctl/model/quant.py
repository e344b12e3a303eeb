"""How weights are stored: from ``quantization_config`` or from the parts of a model's name."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from hybridctl.patterns import late

_METHODS = {
    "fp8": ["fp8"], "fbgemm_fp8": ["fp8"], "ptpc_fp8": ["fp8"], "awq": ["awq"], "awq_marlin": ["awq"], "gptq": ["gptq"],
    "gptq_marlin": ["gptq"], "auto-round": ["auto-round"], "auto_round": ["auto-round"], "autoround": ["auto-round"],
    "inc": ["auto-round"], "compressed-tensors": ["compressed-tensors"], "bitsandbytes": ["bitsandbytes"], "mxfp4": ["mxfp4"],
    "mxfp8": ["mxfp8"], "modelopt": [], "modelopt_fp4": ["nvfp4"], "modelopt_mixed": [], "nvfp4": ["nvfp4"], "gguf": ["gguf"],
    "quark": ["quark"], "torchao": ["torchao"], "exl2": ["exl2"], "exl3": ["exl3"], "hqq": ["hqq"],
}  # fmt: skip
_WITH_BITS = {"gptq", "auto-round"}
# Parts of a name that say it outright. A name is split at everything that is no letter or digit.
_NAME_PARTS = {
    "fp8": ["fp8"], "nvfp4": ["nvfp4"], "mxfp4": ["mxfp4"], "mxfp8": ["mxfp8"], "awq": ["awq"], "gptq": ["gptq"], "gguf": ["gguf"],
    "autoround": ["auto-round"], "int4": ["int4"], "int8": ["int8"], "w4a16": ["int4"], "w8a16": ["int8"], "w8a8": ["int8"],
    "bnb": ["bitsandbytes"], "bitsandbytes": ["bitsandbytes"], "exl2": ["exl2"], "exl3": ["exl3"],
    "bf16": ["none"], "fp16": ["none"],
}  # fmt: skip
_GGUF_PART = late(r"(?:iq|tq|q)[1-8](?:_(?:0|1|k|xs|s|m|l|xl|xxs|nl))*", re.IGNORECASE)


def from_config(document: object) -> tuple[list[str], list[int], object, list[str]]:
    """``(names, weight_block_size, kv_cache_scheme, ignored modules)`` of a ``quantization_config``; empty when it is none."""
    if not isinstance(document, Mapping):
        return [], [], None, []
    method = _text(document.get("quant_method")) or _text(document.get("quant_type"))
    names = list(_METHODS.get(method.lower(), [method.lower()] if method else []))
    inner = document.get("quantization")
    algorithms = [_text(document.get("quant_algo"))] + (
        [_text(inner.get("quant_algo"))] if isinstance(inner, Mapping) else []
    )
    for algorithm in algorithms:
        names += _algorithm(algorithm)
    names += _groups(document)
    bits = document.get("bits", document.get("w_bit"))
    if _WITH_BITS & set(names) and isinstance(bits, int) and bits in (4, 8):
        names.append(f"int{bits}")
    block = document.get("weight_block_size")
    size = [n for n in block if isinstance(n, int)] if isinstance(block, list) else []
    if size and "fp8" in names:
        names.append("fp8-block")
    scheme = document.get("kv_cache_scheme") or (
        inner.get("kv_cache_quant_algo") if isinstance(inner, Mapping) else None
    )
    ignored = document.get("ignore") or document.get("modules_to_not_convert") or document.get("ignored_layers")
    listed = [str(i) for i in ignored[:5000] if isinstance(i, str)] if isinstance(ignored, list) else []
    return list(dict.fromkeys(names)), size, scheme, listed


def from_name(name: str) -> list[str]:
    """What the name says of its weights; empty when it says nothing. Only whole parts count (``-FP8``, ``.gguf``, ``Q4_K_M``)."""
    found: list[str] = []
    words = re.split(r"[^A-Za-z0-9_]+", name[:400])
    for word in words:
        if _GGUF_PART.fullmatch(word):
            found.append("gguf")
        for part in word.lower().split("_"):
            found += _NAME_PARTS.get(part, [])
    if "auto" in (lowered := [w.lower() for w in words]) and "round" in lowered:
        found.append("auto-round")
    if "fp8" in found and "int8" in found:  # W8A8-FP8 is FP8 in both
        found = [f for f in found if f != "int8"]
    if len(set(found)) > 1:
        found = [f for f in found if f != "none"]
    return list(dict.fromkeys(found))


def _algorithm(text: str) -> list[str]:
    upper = text.upper()
    parts = (
        ("NVFP4", "nvfp4"),
        ("MXFP4", "mxfp4"),
        ("FP8", "fp8"),
        ("W4A16_AWQ", "awq"),
        ("INT4_AWQ", "awq"),
        ("INT8", "int8"),
    )
    return [name for part, name in parts if part in upper]


def _groups(document: Mapping[str, Any]) -> list[str]:
    """The schemes of compressed-tensors."""
    groups = document.get("config_groups")
    if not isinstance(groups, Mapping):
        return []
    names: list[str] = []
    for group in list(groups.values())[:50]:
        weights = group.get("weights") if isinstance(group, Mapping) else None
        if not isinstance(weights, Mapping):
            continue
        form = _text(group.get("format")) or _text(document.get("format"))
        bits, kind = weights.get("num_bits"), _text(weights.get("type"))
        if kind == "float" and bits == 8:
            names += ["fp8", "fp8-block"] if weights.get("strategy") == "block" else ["fp8"]
        elif kind == "float" and bits == 4:
            names.append("mxfp4" if "mxfp4" in form else "nvfp4")
        elif kind == "int" and bits in (4, 8):
            names.append(f"int{bits}")
    return names


def _text(value: object) -> str:
    return value if isinstance(value, str) else ""
