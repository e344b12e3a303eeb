"""What a name says, and what it does not."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hybridctl.model.identify import identify


@pytest.mark.parametrize(
    ("name", "family"),
    [
        ("Qwen3.8-Flash-Next", "qwen4_exp"),
        ("Qwen/Qwen3.8-Flash-Next-FP8", "qwen4_exp"),
        ("Qwen3.8 Flash Next", "qwen4_exp"),
        ("Qwen3.8-27B", "qwen3_5"),
        ("Qwen3.6 AWQ", "qwen3_5"),
        ("Qwen3.5 (method qwen3_next_mtp)", "qwen3_5"),
        ("qwen3.5:35b", "qwen3_5"),
        ("unsloth/Qwen3.5-35B-A3B-GGUF UD-Q2_K_XL", "qwen3_5"),
        ("/root/.cache/huggingface/hub/models--Qwen--Qwen3.6-27B-FP8/snapshots/abc123", "qwen3_5"),
        (r"C:\models\Qwen3-Next-80B-A3B-Instruct", "qwen3_next"),
        ("Qwen/Qwen3-Coder-Next", "qwen3_next"),
        ("Qwen/Qwen3-Coder-30B-A3B-Instruct", "qwen3"),
        ("Qwen/Qwen3-14B-AWQ", "qwen3"),
        ("Qwen3-VL-4B-Instruct-FP8", "qwen3_vl"),
        ("nvidia/NVIDIA-Nemotron-3-Super-120B-A12B-NVFP4", "nemotron_h"),
        ("nvidia/NVIDIA-Nemotron-Nano-12B-v2-VL-BF16", "nemotron_nano_vl"),
        ("nvidia/Llama-3_3-Nemotron-Super-49B-v1", None),
        ("ibm-granite/granite-4.0-h-small", "granitemoehybrid"),
        ("MiniMaxAI/MiniMax-M2.1", "minimax_m2"),
        ("Qwen", None),
        ("Qwen3.8", None),
        ("Qwen hybrid GDN", None),
        ("someone/Qwen3.6-27B-DFlash", None),
        ("", None),
    ],
)
def test_family(name: str, family: str | None) -> None:
    found = identify(name).family
    assert (found.id if found else None) == family


@pytest.mark.parametrize(
    ("name", "quant"),
    [
        ("Qwen/Qwen3.6-27B-FP8", ["fp8"]),
        ("x/Qwen3.8-Flash-Next-AWQ-W4A16", ["awq", "int4"]),
        ("x/Model-GPTQ-Int4", ["gptq", "int4"]),
        ("Qwen3.5-397B-A17B int4 (AutoRound)", ["int4", "auto-round"]),
        ("x/Model-Int4-Auto-Round", ["int4", "auto-round"]),
        ("/m/Model-Q4_K_M.gguf", ["gguf"]),
        ("unsloth/Qwen3.5-35B-A3B UD-Q2_K_XL", ["gguf"]),
        ("Qwen/Qwen3.8-Flash-Next (nvfp4)", ["nvfp4"]),
        ("nvidia/Model-BF16", ["none"]),
        ("Qwen/Qwen3.6-27B", []),
        ("Fawqus/Model-FP80", []),
    ],
)
def test_quant_is_what_the_name_says(name: str, quant: list[str]) -> None:
    assert identify(name).quant == quant


def test_a_family_name_alone_leaves_the_size_open() -> None:
    assert identify("Qwen3.5").variant is None
    variant = identify("Qwen/Qwen3.5-35B-A3B-FP8").variant
    assert variant is not None
    assert (variant.moe, variant.config["num_attention_heads"]) == (True, 16)
    dense = identify("Qwen/Qwen3.6-27B").variant
    assert dense is not None
    assert dense.moe is False


def test_words_about_layers() -> None:
    assert identify("Qwen hybrid GDN").layers == ["gdn"]
    assert identify("Qwen hybrid GDN").hybrid is True
    assert identify("Qwen3.6 (hybrid)").hybrid is True
    assert identify("Qwen3.6").hybrid is None


@given(st.text())
def test_never_raises(name: str) -> None:
    identify(name)
