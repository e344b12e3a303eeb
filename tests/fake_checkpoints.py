"""Tiny checkpoints for prepare: a plain decoder and Qwen4Exp in several shards."""

from __future__ import annotations

import hashlib
import json
import os
import struct
from pathlib import Path
from typing import Any

QWEN3 = {
    "architectures": ["Qwen3ForCausalLM"],
    "model_type": "qwen3",
    "hidden_size": 64,
    "num_hidden_layers": 4,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "head_dim": 16,
    "intermediate_size": 128,
    "vocab_size": 256,
    "max_position_embeddings": 8192,
    "unknown_key": [1, {"a": None}],
}
QWEN4 = {
    "architectures": ["Qwen3_8FlashNextForConditionalGeneration"],
    "model_type": "qwen3_8_flash_next",
    "text_config": {
        "model_type": "qwen3_8_flash_next_text",
        "hidden_size": 64,
        "num_hidden_layers": 4,
        "num_attention_heads": 4,
        "num_key_value_heads": 2,
        "head_dim": 16,
        "vocab_size": 256,
        "max_position_embeddings": 8192,
        "linear_num_key_heads": 2,
        "linear_num_value_heads": 4,
        "linear_key_head_dim": 16,
        "linear_value_head_dim": 16,
        "linear_conv_kernel_dim": 4,
        "indexer_head_dim": 16,
        "indexer_compress_ratio": 4,
        "num_experts": 4,
        "num_experts_per_tok": 2,
        "moe_intermediate_size": 32,
        "output_gate_type": None,
        "layer_types": ["linear_attention"] * 3 + ["indexed_attention"],
    },
}


def shard(names: list[str], numbers: int = 64, fill: int = 1) -> bytes:
    """A weight file of bfloat16 tensors."""
    size = 2 * numbers
    table = {
        n: {"dtype": "BF16", "shape": [numbers], "data_offsets": [i * size, (i + 1) * size]}
        for i, n in enumerate(names)
    }
    header = json.dumps(table).encode()
    return struct.pack("<Q", len(header)) + header + bytes([fill]) * (size * len(names))


def qwen3(**config: Any) -> dict[str, bytes]:
    """One file of weights."""
    return {
        "config.json": json.dumps({**QWEN3, **config}, indent=2).encode(),
        "tokenizer.json": b'{"version": "1.0"}',
        "README.md": b"# a card",
        "model.safetensors": shard(
            ["model.embed_tokens.weight", *(f"model.layers.{i}.self_attn.q_proj.weight" for i in range(4))]
        ),
    }


def qwen4(shards: int = 4, numbers: int = 4096) -> dict[str, bytes]:
    """Several shards and an index."""
    files = {"config.json": json.dumps(QWEN4, indent=2).encode(), "tokenizer.json": b'{"version": "1.0"}'}
    layers = QWEN4["text_config"]["num_hidden_layers"]
    table = {
        f"model.layers.{i % layers}.mlp.{'gate' if i < layers else 'shared_expert_gate'}.weight":
            f"model-{i % shards + 1:05}-of-{shards:05}.safetensors"
        for i in range(max(shards, layers))
    }  # fmt: skip
    for i in range(shards):
        file = f"model-{i + 1:05}-of-{shards:05}.safetensors"
        files[file] = shard([name for name, place in table.items() if place == file], numbers, i + 1)
    files["model.safetensors.index.json"] = json.dumps({"weight_map": table}).encode()
    return files


def put(folder: Path, files: dict[str, bytes]) -> Path:
    """Write a checkpoint."""
    for name, data in files.items():
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(data)
    return folder


def world(*folders: Path, but: tuple[str, ...] = ()) -> dict[str, str]:
    """Every file, folder and link under some folders, with content and time: what must not change."""
    found = {}
    for root in folders:
        for at, names, files in os.walk(root):
            names[:] = [n for n in names if not any(str(Path(at, n)).endswith(b) for b in but)]
            for name in [*names, *files]:
                path = Path(at, name)
                if path.is_symlink():
                    found[str(path)] = f"link {path.readlink()}"
                elif path.is_dir():
                    found[str(path)] = "folder"
                else:
                    found[str(path)] = f"{hashlib.sha256(path.read_bytes()).hexdigest()} {path.stat().st_mtime_ns}"
    return found
