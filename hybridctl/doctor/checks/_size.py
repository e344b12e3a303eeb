"""The least that the weights of a model take, from what its name says: ``32B`` unquantised is some 60 GiB."""

from __future__ import annotations

import re

from hybridctl.doctor.checks import _reading as read
from hybridctl.doctor.facts.model import Fact, Facts
from hybridctl.patterns import late

# "8x7B" shares its attention, "30B-A3B" and "E4B" tell active parameters besides: only a number that stands alone is the total.
_EXPERTS = late(r"(?<![\w.])(\d{1,2})x(\d{1,3}(?:\.\d+)?)b(?![a-z0-9])", re.IGNORECASE)
_TOTAL = late(r"(?<![\w.])(\d{1,4}(?:\.\d+)?)b(?![a-z0-9])", re.IGNORECASE)
# Drafters and adapters carry the name of the model that they belong to.
_NOT_ITSELF = late(r"eagle|dflash|dspark|draft|medusa|speculator|lora|adapter|mmproj|\bmtp\b|[-_]to[-_]", re.IGNORECASE)
# Who publishes in 16 bits unless the name says otherwise. Others (gpt-oss, DeepSeek-V3, Kimi, MiniMax) publish narrower ones.
_PUBLISHERS_TEXT = """
qwen meta-llama google ibm-granite ibm-ai-platform microsoft tiiuae 01-ai allenai internlm opengvlab thudm zai-org cohereforai
coherelabs huggingfacetb liquidai nousresearch llava-hf openbmb baichuan-inc bigcode codellama lmsys eleutherai
"""
_PUBLISHERS = frozenset(_PUBLISHERS_TEXT.split())
_SIXTEEN_BITS = late(r"bf16|fp16|float16", re.IGNORECASE)
_NARROWER = late(
    r"bit|w\d|int\d|q\d|awq|gptq|fp\d|nf4|bnb|mlx|gguf|exl|quant|marlin|round|qat|autoq|hqq", re.IGNORECASE
)
_FOUR_BITS = {"nvfp4", "mxfp4", "awq", "gptq", "int4", "auto-round", "bitsandbytes", "compressed-tensors"}
_EIGHT_BITS = {"fp8", "fp8-block", "int8", "mxfp8"}
_ROUNDED = 0.95  # publishers round: 7.6 is called 7B or 8B
_GIB = 1e9 / 2**30


def least_weights_gib(facts: Facts) -> tuple[float, Fact] | None:
    """GiB that the weights need at least, and the fact that says so: the size if it is known, else the name of the model."""
    if known := read.amount(facts, "model.size_gib"):
        return known
    name = facts.get("model.name")
    if name is None or _NOT_ITSELF.search(str(name.value)):
        return None
    width = _bytes_a_weight(facts, str(name.value))
    billions = _billions(str(name.value).replace("\\", "/").rstrip("/").rpartition("/")[2])
    return (billions * width * _ROUNDED * _GIB, name) if width and billions else None


def _billions(name: str) -> float | None:
    if m := _EXPERTS.search(name):
        return int(m[1]) * float(m[2]) * 0.75
    found = [float(m[1]) for m in _TOTAL.finditer(name)]
    return max(found) if len(found) == 1 else None


def _bytes_a_weight(facts: Facts, name: str) -> float | None:
    """The narrowest that the quantisation allows; ``None`` where nobody says whether there is one."""
    quant = facts.value("model.quant")
    kinds = set(quant) if isinstance(quant, list) else set()
    if not kinds:
        publisher, _, model = name.rpartition("/")
        wide = _SIXTEEN_BITS.search(model) or publisher.lower() in _PUBLISHERS
        return 2.0 if wide and not _NARROWER.search(_SIXTEEN_BITS.sub("", model)) else None
    if kinds == {"none"}:
        return 2.0
    if "gguf" in kinds:
        return None
    return 0.5 if kinds & _FOUR_BITS else 1.0 if kinds <= _EIGHT_BITS else None
