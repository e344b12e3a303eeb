"""Writes small checkpoints with random weights, right ones and ones with a known fault: what the audit is tested against.

It imports nothing of hybridctl and needs the standard library only:

    python tests/data/audit/seed.py qwen3_next FOLDER              # right
    python tests/data/audit/seed.py qwen3 FOLDER lm-head-missing   # with a fault
    python tests/data/audit/seed.py --list

``--holes`` leaves the data of every weight file a hole of the right length, so that nothing can depend on a weight. Names and
shapes are those that the families' model code in transformers and vLLM gives them, with small numbers.
"""

from __future__ import annotations

import json
import random
import shutil
import struct
import sys
from collections.abc import Callable
from dataclasses import dataclass, field
from math import prod
from pathlib import Path
from typing import Any

BITS = {"BF16": 16, "F32": 32, "F16": 16, "I32": 32, "F8_E4M3": 8, "I64": 64}
Shapes = dict[str, tuple[str, tuple[int, ...]]]
BASE = {
    "dtype": "bfloat16", "vocab_size": 512, "hidden_size": 128, "intermediate_size": 256, "num_hidden_layers": 4,
    "num_attention_heads": 4, "num_key_value_heads": 2, "head_dim": 64, "max_position_embeddings": 65536,
    "tie_word_embeddings": False, "hidden_act": "silu", "rms_norm_eps": 1e-6,
}  # fmt: skip
GDN = {
    "linear_num_value_heads": 8, "linear_num_key_heads": 4, "linear_key_head_dim": 64, "linear_value_head_dim": 64,
    "linear_conv_kernel_dim": 4,
}  # fmt: skip
SPARSE = "qwen_sparse_attention"
CONFIGS: dict[str, dict[str, Any]] = {
    "qwen3": {"architectures": ["Qwen3ForCausalLM"], "model_type": "qwen3", **BASE},
    "llama": {"architectures": ["LlamaForCausalLM"], "model_type": "llama", **BASE},
    "qwen3_next": {
        "architectures": ["Qwen3NextForCausalLM"], "model_type": "qwen3_next", **BASE, **GDN,
        "layer_types": ["linear_attention", "full_attention"] * 2,
        "num_experts": 4, "num_experts_per_tok": 2, "moe_intermediate_size": 64, "shared_expert_intermediate_size": 64,
        "decoder_sparse_step": 1, "norm_topk_prob": True, "partial_rotary_factor": 0.25,
    },
    "qwen3_5": {
        "architectures": ["Qwen3_5ForCausalLM"], "model_type": "qwen3_5_text", **BASE, **GDN,
        "layer_types": ["linear_attention", "full_attention"] * 2, "attn_output_gate": True,
        "rope_parameters": {"rope_type": "default", "rope_theta": 10000.0, "partial_rotary_factor": 0.25,
                            "mrope_section": [3, 3, 2], "mrope_interleaved": True},
    },
}  # fmt: skip
CONFIGS["granite_4_h"] = {
    "architectures": ["GraniteMoeHybridForCausalLM"], "model_type": "granitemoehybrid", **BASE, "head_dim": 32,
    "layer_types": ["mamba", "attention"] * 2, "num_local_experts": 4, "num_experts_per_tok": 2, "shared_intermediate_size": 64,
    "mamba_n_heads": 8, "mamba_d_head": 32, "mamba_n_groups": 1, "mamba_d_state": 128, "mamba_d_conv": 4, "mamba_expand": 2,
}  # fmt: skip
CONFIGS["qwen3_fp8"] = {
    **CONFIGS["qwen3"],
    "quantization_config": {
        "quant_method": "fp8", "activation_scheme": "dynamic", "weight_block_size": [128, 128],
        "modules_to_not_convert": ["lm_head", *(f"model.layers.{i}.{p}" for i in range(4)
                                                for p in ("input_layernorm", "post_attention_layernorm"))],
    },
}  # fmt: skip
CONFIGS["qwen4_exp"] = {
    "architectures": ["Qwen4ExpForConditionalGeneration"], "model_type": "qwen4_exp",
    "text_config": {
        **json.loads((Path(__file__).parent.parent / "fit/families.json").read_text())["qwen4_exp"]["text_config"],
        "output_gate_type": "sigmoid", "eos_token_id": 248044,
    },
}  # fmt: skip
CONFIGS["qwen3_next_fp8"] = {
    **CONFIGS["qwen3_next"], "moe_intermediate_size": 128, "shared_expert_intermediate_size": 128,
    "quantization_config": {
        "quant_method": "fp8", "activation_scheme": "dynamic", "weight_block_size": [128, 128],
        "modules_to_not_convert": [
            "lm_head", *(f"model.layers.{i}.mlp.{p}" for i in range(4) for p in ("gate", "shared_expert_gate")),
            *(f"model.layers.{i}.linear_attn.{p}" for i in (0, 2) for p in ("in_proj_qkvz", "in_proj_ba", "out_proj", "conv1d")),
        ],
    },
}  # fmt: skip


def attention(c: dict[str, Any], gate: bool, norms: bool) -> Shapes:
    heads, kv, size, hidden = c["num_attention_heads"], c["num_key_value_heads"], c["head_dim"], c["hidden_size"]
    rows: Shapes = {
        "self_attn.q_proj.weight": ("BF16", (heads * size * (2 if gate else 1), hidden)),
        "self_attn.k_proj.weight": ("BF16", (kv * size, hidden)),
        "self_attn.v_proj.weight": ("BF16", (kv * size, hidden)),
        "self_attn.o_proj.weight": ("BF16", (hidden, heads * size)),
    }
    if norms:
        rows |= {"self_attn.q_norm.weight": ("BF16", (size,)), "self_attn.k_norm.weight": ("BF16", (size,))}
    return rows


def delta_net(c: dict[str, Any], fused: bool) -> Shapes:
    keys = c["linear_num_key_heads"] * c["linear_key_head_dim"]
    heads, hidden = c["linear_num_value_heads"], c["hidden_size"]
    values = heads * c["linear_value_head_dim"]
    own: Shapes = (
        {
            "in_proj_qkvz.weight": ("BF16", (2 * keys + 2 * values, hidden)),
            "in_proj_ba.weight": ("BF16", (2 * heads, hidden)),
        }
        if fused
        else {
            "in_proj_qkv.weight": ("BF16", (2 * keys + values, hidden)),
            "in_proj_z.weight": ("BF16", (values, hidden)),
            "in_proj_b.weight": ("BF16", (heads, hidden)),
            "in_proj_a.weight": ("BF16", (heads, hidden)),
        }
    )
    own |= {
        "conv1d.weight": ("BF16", (2 * keys + values, 1, c["linear_conv_kernel_dim"])),
        "A_log": ("F32", (heads,)),
        "dt_bias": ("BF16", (heads,)),
        "norm.weight": ("F32", (c["linear_value_head_dim"],)),
        "out_proj.weight": ("BF16", (hidden, values)),
    }
    return {f"linear_attn.{name}": row for name, row in own.items()}


def mamba2(c: dict[str, Any]) -> Shapes:
    heads, hidden = c["mamba_n_heads"], c["hidden_size"]
    inner, both = heads * c["mamba_d_head"], 2 * c["mamba_n_groups"] * c["mamba_d_state"]
    rows: Shapes = {
        "in_proj.weight": ("BF16", (2 * inner + both + heads, hidden)),
        "conv1d.weight": ("BF16", (inner + both, 1, c["mamba_d_conv"])),
        "conv1d.bias": ("BF16", (inner + both,)),
        "A_log": ("BF16", (heads,)),
        "D": ("BF16", (heads,)),
        "dt_bias": ("BF16", (heads,)),
        "norm.weight": ("BF16", (inner,)),
        "out_proj.weight": ("BF16", (hidden, inner)),
    }
    return {f"mamba.{name}": row for name, row in rows.items()}


def granite_experts(c: dict[str, Any]) -> Shapes:
    """All experts of a layer in one tensor, gate and up in one, as transformers keeps them."""
    hidden, width, shared, count = (
        c[n] for n in ("hidden_size", "intermediate_size", "shared_intermediate_size", "num_local_experts")
    )
    return {
        "block_sparse_moe.router.layer.weight": ("BF16", (count, hidden)),
        "block_sparse_moe.input_linear.weight": ("BF16", (count, 2 * width, hidden)),
        "block_sparse_moe.output_linear.weight": ("BF16", (count, hidden, width)),
        "shared_mlp.input_linear.weight": ("BF16", (2 * shared, hidden)),
        "shared_mlp.output_linear.weight": ("BF16", (hidden, shared)),
    }


def dense(prefix: str, hidden: int, width: int) -> Shapes:
    return {
        f"{prefix}.gate_proj.weight": ("BF16", (width, hidden)),
        f"{prefix}.up_proj.weight": ("BF16", (width, hidden)),
        f"{prefix}.down_proj.weight": ("BF16", (hidden, width)),
    }


def experts(c: dict[str, Any]) -> Shapes:
    hidden, width = c["hidden_size"], c["moe_intermediate_size"]
    rows: Shapes = {"mlp.gate.weight": ("BF16", (c["num_experts"], hidden))}
    for i in range(c["num_experts"]):
        rows |= dense(f"mlp.experts.{i}", hidden, width)
    rows |= dense("mlp.shared_expert", hidden, c["shared_expert_intermediate_size"])
    return rows | {"mlp.shared_expert_gate.weight": ("BF16", (1, hidden))}


def tensors(family: str) -> Shapes:
    """The tensors of a right checkpoint."""
    c = CONFIGS[family]
    if family == "qwen4_exp":  # for faults of its config.json only
        text = c["text_config"]
        return {
            f"model.language_model.layers.{i}.input_layernorm.weight": ("BF16", (text["hidden_size"],))
            for i in range(text["num_hidden_layers"])
        }
    hidden = c["hidden_size"]
    rows: Shapes = {"model.embed_tokens.weight": ("BF16", (c["vocab_size"], hidden))}
    for i in range(c["num_hidden_layers"]):
        hybrid = family in ("qwen3_next", "qwen3_next_fp8", "qwen3_5")
        granite = family == "granite_4_h"
        if granite and i % 2 == 0:
            layer = mamba2(c)
        elif hybrid and i % 2 == 0:
            layer = delta_net(c, family != "qwen3_5")
        else:
            layer = attention(c, gate=hybrid, norms=family != "llama" and not granite)
        if granite:
            layer |= granite_experts(c)
        else:
            layer |= experts(c) if "num_experts" in c else dense("mlp", hidden, c["intermediate_size"])
        layer |= {f"{n}.weight": ("BF16", (hidden,)) for n in ("input_layernorm", "post_attention_layernorm")}
        rows |= {f"model.layers.{i}.{name}": row for name, row in layer.items()}
    rows |= {"model.norm.weight": ("BF16", (hidden,)), "lm_head.weight": ("BF16", (c["vocab_size"], hidden))}
    if "quantization_config" not in c:
        return rows
    made: Shapes = {}
    for name, (dtype, shape) in rows.items():
        if "_proj." in name and "linear_attn" not in name:
            made[name] = ("F8_E4M3", shape)
            made[f"{name}_scale_inv"] = ("F32", tuple(-(-n // 128) for n in shape))
        else:
            made[name] = (dtype, shape)
    return made


@dataclass
class Checkpoint:
    """What will be written; a fault changes it, or the folder afterwards."""

    config: dict[str, Any]
    shards: list[Shapes]
    with_index: bool = True
    index_extra: dict[str, str] = field(default_factory=dict)
    index_drop: list[str] = field(default_factory=list)

    def names(self) -> list[str]:
        return [name for shard in self.shards for name in shard]

    def change(self, find: Callable[[str], bool], do: Callable[[str, str, tuple[int, ...]], Shapes]) -> None:
        for i, shard in enumerate(self.shards):
            made: Shapes = {}
            for name, (dtype, shape) in shard.items():
                made |= do(name, dtype, shape) if find(name) else {name: (dtype, shape)}
            self.shards[i] = made


def build(family: str) -> Checkpoint:
    rows = list(tensors(family).items())
    third = -(-len(rows) // 3)
    config = json.loads(json.dumps(CONFIGS[family]))
    return Checkpoint(config, [dict(rows[i : i + third]) for i in range(0, len(rows), third)])


# Sign and mantissa bits that stay random, and the exponent put in: every number is of the size that a model computes with.
_MASKS = {"BF16": (0x807F, 0x3C80), "F16": (0x83FF, 0x2400), "F32": (0x807FFFFF, 0x3C800000), "F8_E4M3": (0x87, 0x28)}


def numbers(name: str, dtype: str, count: int) -> bytes:
    """The data of a tensor: the same for one name in every checkpoint; floats between 1/64 and 1/32, of either sign."""
    width = BITS[dtype] // 8
    bits = int.from_bytes(random.Random(name).randbytes(count * width), "little")
    if dtype in _MASKS:
        keep, put = (int.from_bytes(mask.to_bytes(width, "little") * count, "little") for mask in _MASKS[dtype])
        bits = bits & keep | put
    return bits.to_bytes(count * width, "little")


def file_name(i: int, count: int) -> str:
    return f"model-{i + 1:05}-of-{count:05}.safetensors"


def write(made: Checkpoint, folder: Path, holes: bool = False) -> None:
    """Write the files."""
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "config.json").write_text(json.dumps(made.config, indent=2))
    index = {}
    for i, shard in enumerate(made.shards):
        name, table, at = file_name(i, len(made.shards)), {}, 0
        for tensor, (dtype, shape) in shard.items():
            size = prod(shape) * BITS[dtype] // 8
            table[tensor] = {"dtype": dtype, "shape": list(shape), "data_offsets": [at, at + size]}
            index[tensor] = name
            at += size
        header = json.dumps(table).encode()
        with (folder / name).open("wb") as stream:
            stream.write(struct.pack("<Q", len(header)) + header)
            if holes:
                stream.truncate(stream.tell() + at)
            else:
                for tensor, (dtype, shape) in shard.items():
                    stream.write(numbers(tensor, dtype, prod(shape)))
    if made.with_index:
        index = {k: v for k, v in index.items() if k not in made.index_drop} | made.index_extra
        (folder / INDEX).write_text(json.dumps({"metadata": {}, "weight_map": index}))


def _cut(folder: Path, back: int) -> None:
    path = sorted(folder.glob("*.safetensors"))[0]
    with path.open("r+b") as stream:
        stream.truncate(path.stat().st_size - back)


def _cut_header(folder: Path) -> None:
    with sorted(folder.glob("*.safetensors"))[1].open("r+b") as stream:
        stream.truncate(100)


def _pickles(folder: Path) -> None:
    for path in folder.glob("*safetensors*"):
        path.unlink()
    (folder / "pytorch_model.bin").write_bytes(b"\x80\x04N.")


def _pointer(folder: Path) -> None:
    path = sorted(folder.glob("*.safetensors"))[1]
    path.write_text(f"version https://git-lfs.github.com/spec/v1\noid sha256:{'0' * 64}\nsize 123456\n")


def _junk(folder: Path) -> None:
    with sorted(folder.glob("*.safetensors"))[1].open("r+b") as stream:
        stream.seek(8)
        stream.write(b"not json")


def _twice(made: Checkpoint) -> None:
    made.shards[2]["model.embed_tokens.weight"] = made.shards[0]["model.embed_tokens.weight"]


def _drop(*parts: str) -> Callable[[Checkpoint], None]:
    return lambda made: made.change(lambda n: any(p in n for p in parts), lambda *_: {})


def _rename(old: str, new: str, only: str = "") -> Callable[[Checkpoint], None]:
    return lambda made: made.change(lambda n: old in n and only in n, lambda n, d, s: {n.replace(old, new): (d, s)})


def _dtype(part: str, dtype: str) -> Callable[[Checkpoint], None]:
    return lambda made: made.change(lambda n: part in n, lambda n, d, s: {n: (dtype, s)})


def _shape(part: str, by: int) -> Callable[[Checkpoint], None]:
    return lambda made: made.change(lambda n: part in n, lambda n, d, s: {n: (d, (s[0] + by, *s[1:]))})


def _add(name: str, shape: tuple[int, ...] = (3,)) -> Callable[[Checkpoint], None]:
    return lambda made: made.shards[-1].update({name: ("BF16", shape)})


def _split(made: Checkpoint) -> None:
    c = made.config
    parts = {k: v for k, v in delta_net(c, fused=False).items() if "in_proj" in k}

    def do(name: str, dtype: str, shape: tuple[int, ...]) -> Shapes:
        prefix, ends = name.split("linear_attn.")[0], ("qkv.", "z.") if "qkvz" in name else ("_b.", "_a.")
        return {prefix + k: v for k, v in parts.items() if any(end in k for end in ends)}

    made.change(lambda n: "in_proj_" in n, do)


def _fused(made: Checkpoint) -> None:
    parts = {k: v for k, v in delta_net(made.config, fused=True).items() if "in_proj" in k}

    def do(name: str, dtype: str, shape: tuple[int, ...]) -> Shapes:
        prefix = name.split("linear_attn.")[0]
        return {prefix + k: v for k, v in parts.items()} if "in_proj_qkv." in name else {}

    made.change(lambda n: "in_proj_" in n, do)


def _unscaled(made: Checkpoint) -> None:
    """One part of a fused layer as it was before it was quantised."""
    made.change(lambda n: "layers.1.self_attn.k_proj.weight_scale_inv" in n, lambda *_: {})
    _dtype("layers.1.self_attn.k_proj.weight", "BF16")(made)


def _config(**fields: Any) -> Callable[[Checkpoint], None]:
    def do(made: Checkpoint) -> None:
        for name, value in fields.items():
            owner = made.config["text_config"] if name in made.config.get("text_config", {}) else made.config
            owner[name] = value
            if value is None:
                del owner[name]

    return do


def _listed(*names: str) -> Callable[[Checkpoint], None]:
    return lambda made: made.config["quantization_config"]["modules_to_not_convert"].extend(names)


def _split_list(made: Checkpoint) -> None:
    """The list of what is not quantised, with the names that Qwen3.5 has for the parts of Qwen3-Next's projections."""
    quant = made.config["quantization_config"]
    parts = {"in_proj_qkvz": ("in_proj_qkv", "in_proj_z"), "in_proj_ba": ("in_proj_b", "in_proj_a")}
    quant["modules_to_not_convert"] = [
        f"{owner}.{part}".removeprefix(".")
        for owner, _, leaf in (name.rpartition(".") for name in quant["modules_to_not_convert"])
        for part in parts.get(leaf, (leaf,))
    ]


def _spelling(made: Checkpoint) -> None:
    text = made.config["text_config"]
    text["layer_types"] = [
        "linear_attention" if (i + 1) % text["full_attention_interval"] else "indexed_attention"
        for i in range(text["num_hidden_layers"])
    ]


def _gate_up(made: Checkpoint) -> None:
    """The up projection alone under the name of gate and up in one."""
    _rename(".up_proj.", ".gate_up_proj.")(made)
    _drop(".gate_proj.")(made)


@dataclass(frozen=True)
class Seed:
    """One seeded fault: the family, what it changes before or after the files are written, and what the audit must call it.

    ``evidence``: one of the names that the audit must give: of a tensor, a module, a field, a file.
    """

    family: str
    id: str
    evidence: str
    before: Callable[[Checkpoint], None] | None = None
    after: Callable[[Path], None] | None = None
    vllm: str = "0.32.0"
    transformers: str = "5.18.0"
    tp: int = 1
    needs_vllm: bool = False


S1, S2, INDEX = file_name(0, 3), file_name(1, 3), "model.safetensors.index.json"
L = "model.layers"
FAULTS: dict[str, Seed] = {
    "lfs-pointer": Seed("qwen3", "lfs-pointer", S2, after=_pointer),
    "pickle-only": Seed("qwen3", "pickle-only", "pytorch_model.bin", after=_pickles),
    "truncated-data": Seed("qwen3", "shard-truncated", f"{L}.1.self_attn.o_proj.weight", after=lambda f: _cut(f, 10)),
    "truncated-header": Seed("qwen3_next", "shard-truncated", S2, after=_cut_header),
    "damaged-header": Seed("llama", "shard-damaged", S2, after=_junk),
    "shard-missing": Seed("qwen3_next", "shard-missing", S2, after=lambda f: (f / S2).unlink()),
    "shard-missing-without-index": Seed(
        "qwen3", "shard-missing", S2, lambda m: setattr(m, "with_index", False), lambda f: (f / S2).unlink()
    ),
    "index-names-nothing": Seed(
        "qwen3", "index-names-absent-tensor", "model.layers.9.ghost.weight",
        lambda m: m.index_extra.update({"model.layers.9.ghost.weight": S1}),
    ),
    "index-lacks-a-name": Seed(
        "qwen3", "index-lacks-tensor", f"{L}.0.mlp.up_proj.weight", lambda m: m.index_drop.append(f"{L}.0.mlp.up_proj.weight")
    ),
    "index-leads-out": Seed(
        "qwen3", "index-leads-out", "../../etc/passwd.safetensors",
        lambda m: m.index_extra.update({"x": "../../etc/passwd.safetensors"}),
    ),
    "index-not-json": Seed(
        "qwen3", "index-unreadable", INDEX, after=lambda f: (f / INDEX).write_text("{") and None
    ),
    "tensor-twice": Seed("qwen3", "tensor-twice", "model.embed_tokens.weight", _twice),
    "dtype-integer": Seed("qwen3", "wrong-dtype", f"{L}.2.mlp.up_proj.weight", _dtype("layers.2.mlp.up_proj", "I32")),
    "dtype-odd": Seed("llama", "wrong-dtype", f"{L}.2.mlp.up_proj.weight", _dtype("layers.2.mlp.up_proj", "F32")),
    "tp-3": Seed("qwen3", "tp-does-not-divide", "4 attention heads do not divide by 3 ranks", tp=3),
    "tp-16-states": Seed("qwen3_next", "tp-does-not-divide", "8 gdn heads do not divide by 16 ranks", tp=16),
    "legacy-class": Seed(
        "qwen4_exp", "legacy-class", "architectures.0", _config(architectures=["Qwen3_8FlashNextForConditionalGeneration"])
    ),
    "layer-types-spelling": Seed("qwen4_exp", "layer-types-spelling", "text_config.layer_types", _spelling, vllm="0.30.0"),
    "output-gate-type": Seed(
        "qwen4_exp", "missing-field", "text_config.output_gate_type", _config(output_gate_type=None)
    ),
    "class-unknown": Seed("qwen3", "class-unknown", "Qwen9ForCausalLM", _config(architectures=["Qwen9ForCausalLM"])),
    "config-missing": Seed("qwen3", "config-missing", "config.json", after=lambda f: (f / "config.json").unlink()),
    "linear-prefix": Seed(
        "qwen3", "linear-prefix", f"{L}.1.self_attn.linear_q_proj.weight", _rename("q_proj", "linear_q_proj", "layers.1.")
    ),
    "split": Seed("qwen3_next", "split-instead-of-fused", f"{L}.0.linear_attn.in_proj_z.weight", _split),
    "fused": Seed("qwen3_5", "fused-instead-of-split", f"{L}.2.linear_attn.in_proj_qkvz.weight", _fused),
    "missing-in-one-layer": Seed("llama", "tensor-missing", f"{L}.3.self_attn.k_proj.weight", _drop("layers.3.self_attn.k_proj")),
    "layer-missing": Seed("qwen3", "layer-missing", f"{L}.2", _drop("layers.2.")),
    "layer-extra": Seed("qwen3", "layer-beyond-config", f"{L}.4.input_layernorm.weight", _add(f"{L}.4.input_layernorm.weight")),
    "expert-missing": Seed(
        "qwen3_next", "tensor-missing", f"{L}.1.mlp.experts.2.up_proj.weight", _drop("layers.1.mlp.experts.2.up_proj")
    ),
    "vocabulary": Seed("qwen3", "wrong-shape", "model.embed_tokens.weight", _shape("embed_tokens", 8)),
    "shape-in-one-layer": Seed("qwen3", "wrong-shape", f"{L}.1.self_attn.k_proj.weight", _shape("layers.1.self_attn.k_proj", 64)),
    "scale-missing": Seed(
        "qwen3_fp8", "scale-missing", f"{L}.1.mlp.up_proj.weight", _drop("layers.1.mlp.up_proj.weight_scale_inv")
    ),
    "fused-parts-differ": Seed("qwen3_fp8", "fused-parts-differ", f"{L}.1.self_attn.k_proj", _unscaled),
    "ignore-list-wrong": Seed(
        "qwen3_fp8", "ignore-list-wrong", f"{L}.0.self_attn.o_proj", _listed(f"{L}.0.self_attn.o_proj")
    ),
    "quantization-config-missing": Seed(
        "qwen3_fp8", "quantization-config-missing", f"{L}.0.self_attn.q_proj.weight", _config(quantization_config=None)
    ),
    "ignore-list-split-names": Seed(
        "qwen3_next_fp8", "ignore-list-split-names", f"{L}.0.linear_attn.in_proj_qkv", _split_list
    ),
    "renamed-everywhere": Seed(
        "qwen3", "tensor-renamed", f"{L}.0.self_attn.out_proj.weight", _rename("o_proj", "out_proj"), needs_vllm=True
    ),
    "missing-everywhere": Seed(
        "qwen3_next", "tensor-missing", f"{L}.2.linear_attn.A_log", _drop("linear_attn.A_log"), needs_vllm=True
    ),
    "shape-everywhere": Seed(
        "qwen3", "wrong-shape", f"{L}.0.self_attn.k_norm.weight", _shape("self_attn.k_norm", 1), needs_vllm=True
    ),
    "extra": Seed("llama", "tensor-unexpected", f"{L}.0.self_attn.foo.weight", _add(f"{L}.0.self_attn.foo.weight"),
                  needs_vllm=True),
    "lm-head-missing": Seed("qwen3", "tensor-missing", "lm_head.weight", _drop("lm_head"), needs_vllm=True),
    "norm-missing": Seed("llama", "tensor-missing", "model.norm.weight", _drop("model.norm."), needs_vllm=True),
    "one-part-of-fused-missing": Seed(
        "llama", "tensor-incomplete", f"{L}.0.mlp.gate_up_proj.weight", _drop("mlp.up_proj"), needs_vllm=True
    ),
    "router-renamed": Seed(
        "qwen3_next", "tensor-renamed", f"{L}.0.mlp.router.weight", _rename("mlp.gate.", "mlp.router."), needs_vllm=True
    ),
    "mamba-bias-missing": Seed(
        "granite_4_h", "tensor-missing", f"{L}.2.mamba.dt_bias", _drop("mamba.dt_bias"), needs_vllm=True
    ),
    "mamba-renamed": Seed(
        "granite_4_h", "tensor-renamed", f"{L}.0.mixer.out_proj.weight", _rename("mamba.out_proj", "mixer.out_proj"),
        needs_vllm=True,
    ),
    "mamba-norm-shape": Seed(
        "granite_4_h", "wrong-shape", f"{L}.0.mamba.norm.weight", _shape("mamba.norm", 2), needs_vllm=True
    ),
    "feed-forward-fused": Seed("qwen3", "wrong-shape", f"{L}.0.mlp.gate_up_proj.weight", _gate_up, needs_vllm=True),
}  # fmt: skip


def make(family: str, folder: Path, fault: str = "", holes: bool = False) -> None:
    """A checkpoint, right or with a fault."""
    if folder.exists():
        shutil.rmtree(folder)
    made, seed = build(family), FAULTS.get(fault)
    if seed and seed.before:
        seed.before(made)
    write(made, folder, holes)
    if seed and seed.after:
        seed.after(folder)


if __name__ == "__main__":
    rest = [a for a in sys.argv[1:] if not a.startswith("--")]
    if "--list" in sys.argv:
        for name, one in FAULTS.items():
            print(f"{one.family:12} {name:30} {one.id}{' (with vLLM)' if one.needs_vllm else ''}")
    else:
        make(rest[0], Path(rest[1]), rest[2] if rest[2:] else "", "--holes" in sys.argv)
