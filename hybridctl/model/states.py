"""How large the recurrent state of one layer is: the shapes that vLLM gives its state pages, from a config.json.

Source: ``vllm/model_executor/layers/mamba/mamba_utils.py`` (MambaStateShapeCalculator, MambaStateDtypeCalculator) and the
``get_mamba_state_*_from_config`` methods of the model classes, read in 0.30 and 0.32 and compared with what both compute
(tests/data/fit).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

DTYPE_BYTES = {
    "float64": 8, "float32": 4, "float": 4, "bfloat16": 2, "float16": 2, "half": 2, "fp8": 1, "fp8_e4m3": 1, "fp8_e5m2": 1,
    "fp8_inc": 1, "float8_e4m3fn": 1, "int8": 1, "uint8": 1,
}  # fmt: skip
"""Bytes of one number, by the names that configs and flags use."""


class NotDivisible(ValueError):
    """A number of heads or channels that the ranks can't share evenly."""


@dataclass(frozen=True, slots=True)
class StateShape:
    """The state of one layer, over all ranks. Sizes in numbers, not bytes.

    ``conv``: channels of the convolution's window; ``rows``: its length; ``grows``: one more row for each draft token.
    ``heads`` x ``head_numbers``: the recurrent part; 0 heads: none. ``group_numbers``: channels of one Mamba-2 group (B and C);
    groups that do not divide by the ranks are repeated.
    """

    kind: str
    conv: int = 0
    rows: int = 0
    grows: bool = False
    heads: int = 0
    head_numbers: int = 0
    groups: int = 0
    group_numbers: int = 0
    replicated: bool = False
    """Every rank holds the whole."""
    recurrent_dtype: str = ""
    """What the config, or the class, says; empty: as the convolution's."""

    def bytes(self, ranks: int, drafts: int, dtype: str, flag: str = "auto") -> tuple[int, int]:
        """``(convolution, recurrent)`` bytes of one sequence in one layer on one rank.

        Args:
            ranks: tensor-parallel size.
            drafts: speculative tokens a step.
            dtype: the model's dtype.
            flag: ``--mamba-ssm-cache-dtype``.

        Raises:
            NotDivisible: heads or channels do not divide by the ranks.
        """
        split = 1 if self.replicated else ranks
        groups = self.groups if self.groups % split == 0 else self.groups + split - self.groups
        channels = self.conv + groups * self.group_numbers
        rows = self.rows + (drafts if self.grows else 0)
        conv = _share(channels, split, f"{channels} channels of the {self.kind} convolution") * rows
        heads = _share(self.heads, split, f"{self.heads} {self.kind} heads")
        wide = DTYPE_BYTES.get(dtype, 2)
        recurrent = self.recurrent_dtype if flag == "auto" else flag
        if self.kind in ("lightning", "short-conv"):
            recurrent = ""  # one dtype for all of it: --mamba-cache-dtype
        return conv * wide, heads * self.head_numbers * DTYPE_BYTES.get(recurrent or dtype, wide)


def _share(whole: int, ranks: int, what: str) -> int:
    if whole % ranks:
        raise NotDivisible(f"{what} do not divide by {ranks} ranks")
    return whole // ranks


def state_shape(text: Mapping[str, Any], kind: str, types: list[str]) -> StateShape | None:
    """The state of a layer of that kind, or ``None`` when the config lacks a number.

    Args:
        text: the language model's part of a config.json.
        kind: gdn, kda, mamba1, mamba2, lightning or short-conv.
        types: model types, for what a class fixes by itself.
    """
    makers = {
        "gdn": _gdn, "kda": _kda, "mamba1": _mamba1, "mamba2": _mamba2, "lightning": _lightning, "short-conv": _short_conv,
    }  # fmt: skip
    return makers[kind](text, types) if kind in makers else None


def ple_state(text: Mapping[str, Any]) -> StateShape | None:
    """The convolution window before Qwen4Exp's n-gram embedding: one layer more, whole on every rank."""
    ids = text.get("ple_layer_ids")
    if not isinstance(ids, list) or not ids:
        return None
    n = _numbers(text, ("hidden_size",), ("hc_count",), ("ngram_size",))
    kernel = _one(text, "ple_conv_kernel_size", "ple_conv_kernel") or 4
    if n is None:
        return None
    return StateShape("ple", conv=n[0] * n[1], rows=(kernel - 1) * n[2], grows=True, replicated=True)


def _gdn(text: Mapping[str, Any], types: list[str]) -> StateShape | None:
    n = _numbers(
        text,
        ("linear_num_key_heads",),
        ("linear_num_value_heads",),
        ("linear_key_head_dim",),
        ("linear_value_head_dim",),
        ("linear_conv_kernel_dim",),
    )
    if n is None:
        return None
    k_heads, v_heads, k_dim, v_dim, kernel = n
    stated = text.get("mamba_ssm_dtype")
    reads = any(t.startswith(("qwen3_5", "qwen4_exp")) for t in types)  # the other classes do not look at it
    return StateShape(
        "gdn",
        conv=2 * k_heads * k_dim + v_heads * v_dim,
        rows=kernel - 1,
        grows=True,
        heads=v_heads,
        head_numbers=v_dim * k_dim,
        recurrent_dtype=stated if reads and isinstance(stated, str) else "",
    )


def _kda(text: Mapping[str, Any], types: list[str]) -> StateShape | None:
    inner = text.get("linear_attn_config")
    table = inner if isinstance(inner, Mapping) else text
    n = _numbers(
        table,
        ("num_heads", "linear_num_heads"),
        ("head_dim", "linear_head_dim"),
        ("short_conv_kernel_size", "linear_conv_kernel_dim"),
    )
    if n is None:
        return None
    heads, dim, kernel = n
    return StateShape(
        "kda",
        conv=3 * heads * dim,
        rows=kernel - 1,
        grows=True,
        heads=heads,
        head_numbers=dim * dim,
        recurrent_dtype="float32",
    )


def _mamba1(text: Mapping[str, Any], types: list[str]) -> StateShape | None:
    n = _numbers(
        text,
        ("hidden_size",),
        ("mamba_expand", "expand"),
        ("mamba_d_state", "state_size"),
        ("mamba_d_conv", "conv_kernel"),
    )
    if n is None:
        return None
    inner = n[0] * n[1]
    return StateShape("mamba1", conv=inner, rows=n[3] - 1, heads=inner, head_numbers=n[2])


def _mamba2(text: Mapping[str, Any], types: list[str]) -> StateShape | None:
    n = _numbers(
        text,
        ("mamba_n_groups", "mamba_ngroups", "n_groups"),
        ("mamba_n_heads", "n_mamba_heads", "mamba_num_heads", "num_heads"),
        ("mamba_d_head", "mamba_headdim", "mamba_head_dim", "head_dim"),
        ("mamba_d_state", "ssm_state_size", "state_size"),
        ("mamba_d_conv", "conv_kernel"),
    )
    if n is None:
        return None
    groups, heads, dim, state, kernel = n
    inner = _inner(text, heads * dim, types)
    stated = text.get("mamba_ssm_cache_dtype")
    nemotron = any(t.startswith("nemotron_h") for t in types)
    return StateShape(
        "mamba2",
        conv=inner,
        rows=kernel - 1,
        grows=True,
        heads=heads,
        head_numbers=dim * state,
        groups=groups,
        group_numbers=2 * state,
        recurrent_dtype=(stated if isinstance(stated, str) else "float32") if nemotron else "",
    )


def _inner(text: Mapping[str, Any], by_heads: int, types: list[str]) -> int:
    """Channels between the projections: Nemotron-H's follow from its heads, the others' from the hidden size."""
    if any(t.startswith("nemotron_h") for t in types):
        return by_heads
    stated, expand, hidden = _one(text, "mamba_d_ssm"), text.get("mamba_expand"), _one(text, "hidden_size")
    if stated:
        return stated
    if isinstance(expand, (int, float)) and 0 < expand < 2**20 and hidden:
        return int(expand * hidden)
    return by_heads


def _lightning(text: Mapping[str, Any], types: list[str]) -> StateShape | None:
    heads, dim = _one(text, "num_attention_heads"), _one(text, "head_dim")
    hidden = _one(text, "hidden_size")
    if heads and not dim and hidden:
        dim = hidden // heads
    return StateShape("lightning", heads=heads, head_numbers=dim * dim) if heads and dim else None


def _short_conv(text: Mapping[str, Any], types: list[str]) -> StateShape | None:
    kernel, width = _one(text, "conv_L_cache"), _one(text, "conv_dim", "hidden_size")
    return StateShape("short-conv", conv=width, rows=kernel - 1) if kernel and width else None


def _numbers(text: Mapping[str, Any], *fields: tuple[str, ...]) -> list[int] | None:
    found = [_one(text, *names) for names in fields]
    return [n for n in found if n is not None] if None not in found else None


def _one(text: Mapping[str, Any], *names: str) -> int | None:
    """The first of these fields that holds a positive whole number of sane size."""
    for name in names:
        value = text.get(name)
        if (
            isinstance(value, (int, float))
            and not isinstance(value, bool)
            and 0 < value < 2**40
            and value == int(value)
        ):
            return int(value)
    return None
