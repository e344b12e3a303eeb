"""Tiny random checkpoints: routed Qwen3, Qwen2, Llama, Mistral and Qwen3-Next, with a tokenizer, made without a network."""

from __future__ import annotations

import gzip
import json
from pathlib import Path
from typing import Any

import torch

import hybridctl

VOCABULARY = 512
DEMO = Path(hybridctl.__file__).with_name("demo_model")
DEMO_CONFIG = json.loads((DEMO / "config.json").read_text(encoding="utf-8"))
BASES = {
    "qwen3": "Qwen3ForCausalLM",
    "qwen2": "Qwen2ForCausalLM",
    "llama": "LlamaForCausalLM",
    "mistral": "MistralForCausalLM",
    "qwen3_next": "Qwen3NextForCausalLM",
}


def write_tokenizer(folder: Path) -> None:
    """A byte-level tokenizer without merges: 256 bytes, padded with named tokens to the vocabulary."""
    from tokenizers import Tokenizer, decoders, models, pre_tokenizers
    from transformers import PreTrainedTokenizerFast

    alphabet = sorted(pre_tokenizers.ByteLevel.alphabet())
    names = ["<|endoftext|>", *alphabet]
    names += [f"<|{i}|>" for i in range(VOCABULARY - len(names))]
    tokenizer = Tokenizer(models.BPE(vocab={name: i for i, name in enumerate(names)}, merges=[], unk_token=None))
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    fast = PreTrainedTokenizerFast(tokenizer_object=tokenizer, eos_token="<|endoftext|>", pad_token="<|endoftext|>")
    fast.save_pretrained(folder)


def make_model(
    folder: Path,
    family: str,
    hybrid_config: dict[str, Any] | None,
    *,
    layers: int = 3,
    heads: int = 4,
    groups: int = 2,
    head_size: int = 64,
    scale: float = 0.15,
    routed: bool = True,
    context: int = 1024,
    used_values: int | None = None,
    seed: int = 0,
) -> Path:
    """Write one checkpoint. ``used_values``: columns of a value beyond are zero, as a padded head has them."""
    from transformers import AutoConfig, AutoModelForCausalLM

    folder.mkdir(parents=True, exist_ok=True)
    write_tokenizer(folder)
    extra: dict[str, Any] = {"use_sliding_window": False} if family.startswith("qwen") else {}
    if family == "mistral":
        extra = {"sliding_window": None}
    if family == "qwen3_next":  # every second layer is Gated DeltaNet; experts in the last one
        extra = {
            "layer_types": ["linear_attention", "full_attention"] * (layers // 2),
            "mlp_only_layers": list(range(layers - 1)),
            "num_experts": 4,
            "num_experts_per_tok": 2,
            "moe_intermediate_size": 64,
            "shared_expert_intermediate_size": 64,
            "linear_key_head_dim": 128,
            "linear_value_head_dim": 128,
            "linear_num_key_heads": 2,
            "linear_num_value_heads": 4,
        }
    if family == "qwen2":  # has no head size of its own
        hidden = heads * head_size
    else:
        hidden, extra["head_dim"] = 128, head_size
    config = AutoConfig.for_model(
        family,
        vocab_size=VOCABULARY,
        hidden_size=hidden,
        intermediate_size=256,
        num_hidden_layers=layers,
        num_attention_heads=heads,
        num_key_value_heads=groups,
        max_position_embeddings=context,
        tie_word_embeddings=False,
        bos_token_id=None,
        eos_token_id=0,
        initializer_range=scale,
        **extra,
    )
    torch.manual_seed(seed)
    model = AutoModelForCausalLM.from_config(config, dtype=torch.float32)
    for name, parameter in model.named_parameters():
        if name.endswith("bias"):  # made as zeros, which would hide a bias that is lost
            parameter.data.normal_(std=scale)
    if used_values is not None:
        for layer in model.model.layers:
            rows = layer.self_attn.v_proj.weight.data.view(groups, head_size, -1)
            rows[:, used_values:] = 0
            if layer.self_attn.v_proj.bias is not None:
                layer.self_attn.v_proj.bias.data.view(groups, head_size)[:, used_values:] = 0
    size = (hybrid_config or {}).get("linear_feature_size")
    if size is not None:
        for layer in model.model.layers:
            layer.self_attn.linear_proj = torch.nn.Module()
            weight = torch.randn(groups, size, head_size) * 0.5 * head_size**-0.5
            layer.self_attn.linear_proj.weight = torch.nn.Parameter(weight)
    gate = (hybrid_config or {}).get("linear_head_gate")
    for layer in gate if isinstance(gate, list) else range(layers) if gate else ():
        model.model.layers[layer].self_attn.linear_head_gate = torch.nn.Parameter(torch.randn(heads))
    model.save_pretrained(folder)
    path = folder / "config.json"
    written = json.loads(path.read_text(encoding="utf-8"))
    if routed:
        written["architectures"] = ["HybridCtl" + BASES[family]]
    if hybrid_config is not None:
        written["hybrid_config"] = hybrid_config
    path.write_text(json.dumps(written), encoding="utf-8")
    return folder


def held_out(folder: Path, count: int) -> list[list[int]]:
    """The first texts of the demo model's held-out windows, as its tokens: bytes."""
    with gzip.open(folder / "heldout.json.gz", "rt", encoding="utf-8") as handle:
        windows = json.load(handle)["windows"]
    return [list(bytes.fromhex(window["text"])) for window in windows[:count]]
