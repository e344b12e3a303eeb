"""The model: a small Qwen3 whose attention layers also carry a feature projection, saved as vLLM and transformers load it."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import torch
from fast_attention import LinearProj, cut_attention
from tokens import BEGIN, END, PAD, VOCABULARY, save_tokenizer
from torch import Tensor, nn
from transformers import AttentionInterface, Qwen3Config, Qwen3ForCausalLM

CONTEXT = 2048
FEATURES = 32
# Positions 0 … 511 take flash, 512 … linear. The thresholds leave a band, 256 … 511, and the policy "flash" decides it,
# so no entropy score is needed and the kernel is a function of the position alone.
HYBRID: dict[str, Any] = {
    "routing_strategy": "sequence_length",
    "thresholds": {"flash": 256, "linear": 512},
    "fallback_policy": "flash",
    "linear_head_ratio": 1.0,
}
CUT = HYBRID["thresholds"]["linear"]


def config() -> Qwen3Config:
    return Qwen3Config(
        vocab_size=VOCABULARY,
        hidden_size=128,
        intermediate_size=320,
        num_hidden_layers=4,
        num_attention_heads=8,
        num_key_value_heads=4,
        head_dim=64,
        max_position_embeddings=CONTEXT,
        rope_parameters={"rope_type": "default", "rope_theta": 10000.0},
        tie_word_embeddings=False,
        bos_token_id=BEGIN,
        eos_token_id=END,
        pad_token_id=PAD,
        attention_dropout=0.0,
    )


def attention(
    module: nn.Module, query: Tensor, key: Tensor, value: Tensor, mask: Tensor | None, scaling: float, **_: Any
) -> tuple[Tensor, None]:
    """transformers' attention function: the module's own cut says where linear attention begins."""
    out = cut_attention(query, key, value, module.linear_proj.weight, module.cut, scaling)
    return out.transpose(1, 2), None


AttentionInterface.register("cut", attention)


def build(settings: Qwen3Config | None = None) -> Qwen3ForCausalLM:
    """An untrained model, in float32, with linear_proj in every attention layer and the trained cut set."""
    settings = settings or config()
    settings._attn_implementation = "cut"
    model = Qwen3ForCausalLM(settings)
    for layer in model.model.layers:
        layer.self_attn.linear_proj = LinearProj(settings.num_key_value_heads, FEATURES, settings.head_dim)
    set_cut(model, CUT)
    return model


def set_cut(model: nn.Module, cut: int) -> None:
    for layer in model.model.layers:
        layer.self_attn.cut = cut


def save(model: Qwen3ForCausalLM, folder: Path) -> None:
    """Weights in bfloat16, config.json with hybrid_config, tokenizer."""
    from safetensors.torch import save_file

    folder.mkdir(parents=True, exist_ok=True)
    weights = {name: t.detach().to("cpu", torch.bfloat16).contiguous() for name, t in model.state_dict().items()}
    save_file(weights, str(folder / "model.safetensors"), metadata={"format": "pt"})
    settings = model.config.to_dict()
    for key in ("_name_or_path", "transformers_version", "attn_implementation", "_attn_implementation"):
        settings.pop(key, None)
    settings |= {"architectures": ["Qwen3ForCausalLM"], "dtype": "bfloat16", "hybrid_config": HYBRID}
    (folder / "config.json").write_text(json.dumps(settings, indent=2, sort_keys=True) + "\n")
    save_tokenizer(folder)


def load(folder: Path, device: str = "cpu") -> Qwen3ForCausalLM:
    """The saved model in float32 (its weights are bfloat16 values), ready for set_cut."""
    from safetensors.torch import load_file

    model = build(Qwen3Config(**json.loads((folder / "config.json").read_text())))
    model.load_state_dict(load_file(str(folder / "model.safetensors")), strict=True)
    return model.to(device).eval()


def window_loss(model: nn.Module, ids: Tensor) -> Tensor:
    """Loss in nats of each next token: ids [B, n] → [B, n − 1]; entry p is what position p predicts."""
    logits = model(input_ids=ids, use_cache=False).logits[:, :-1].float()
    loss = nn.functional.cross_entropy(logits.flatten(0, 1), ids[:, 1:].flatten(), reduction="none")
    return loss.view(ids.shape[0], -1)
