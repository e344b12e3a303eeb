"""What a checkpoint holds, from its safetensors headers: bytes by dtype and by part of the model, and what is quantised how.

Local folders and snapshots in the Hugging Face cache are read here; for a repository on the hub see
:mod:`hybridctl.model.hub_headers`.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, field
from pathlib import Path

from hybridctl.errors import UsageError
from hybridctl.model.headers import LENGTH_BYTES, Tensor, header_length, parse_header
from hybridctl.patterns import late

_MAX_FILES = 2000
_MAX_INDEX = 64 * 1024 * 1024
_SCALES = late(r"(?:_scale(?:_inv|_2)?|\.scales|_zero_point|\.qzeros|\.g_idx|input_scale|weight_shape)$")
# Parts by the first pattern that fits a tensor's name. What is cut over the ranks, and how, depends on the part.
_PARTS = (
    ("table", late(r"(?:^|\.)(?:ngram_embeddings?|ple_embeddings?|embed_tokens_per_layer)\b")),
    ("draft", late(r"(?:^|\.)(?:mtp|nextn|eagle)[._]")),
    ("vision", late(r"(?:^|\.)(?:visual|vision_tower|vision_model|multi_modal_projector|audio_tower|image_newline)\b")),
    ("experts", late(r"\.experts\.|\.block_sparse_moe\.(?:input|output)_linear")),
    ("shared expert", late(r"\.shared_expert(?:s)?\.|\.shared_mlp\.")),
    ("router", late(r"\.(?:gate|router)(?:\.|$)(?!_proj)|shared_expert_gate|e_score_correction_bias")),
    ("embedding", late(r"(?:embed_tokens|lm_head|word_embeddings|wte)\.")),
    ("state", late(r"\.(?:linear_attn|linear_attention|mamba|short_conv|kda|conv\.)")),
    ("state", late(r"\.mixer\.(?:in_proj|out_proj|conv1d|A_log|D|dt_bias|norm)")),
    ("attention", late(r"\.(?:self_attn|attn|attention|self_attention|mixer\.[qkvo]_proj|indexer)\b")),
    ("feed-forward", late(r"\.(?:mlp|feed_forward|ffn|mixer\.(?:up|down)_proj)\b")),
)  # fmt: skip


@dataclass(frozen=True, slots=True)
class Inventory:
    """What the headers of a checkpoint say. Sizes in bytes, over the whole checkpoint."""

    tensors: tuple[Tensor, ...]
    files: int
    source: str
    """Where the headers were read: the folder, or the repository."""
    by_dtype: dict[str, int] = field(default_factory=dict)
    by_part: dict[str, int] = field(default_factory=dict)

    @property
    def bytes(self) -> int:
        return sum(t.bytes for t in self.tensors)

    def part(self, name: str) -> int:
        return self.by_part.get(name, 0)

    @property
    def draft(self) -> bool:
        """Whether there is a head for multi-token prediction."""
        return "draft" in self.by_part

    @property
    def quantised(self) -> tuple[str, ...]:
        """How weights are stored, as the tensors themselves show it: fp8, fp8-block, nvfp4, awq, gptq, int4; empty: not."""
        return _schemes(self.tensors)


def part_of(name: str) -> str:
    """The part of a model that a tensor belongs to; "other" for norms and what no pattern knows."""
    return next((part for part, pattern in _PARTS if pattern.search(name)), "other")


def inventory(tensors: Iterable[Tensor], files: int, source: str) -> Inventory:
    """Add up tensors.

    Raises:
        UsageError: the same name in two files.
    """
    rows = tuple(tensors)
    seen: dict[str, Tensor] = {}
    for tensor in rows:
        if (other := seen.setdefault(tensor.name, tensor)) is not tensor:
            raise UsageError(
                f"{tensor.name[:80]} stands in {other.file} and in {tensor.file}", "remove the file that is left over"
            )
    dtypes: Counter[str] = Counter()
    parts: Counter[str] = Counter()
    for tensor in rows:
        dtypes[tensor.dtype] += tensor.bytes
        parts[part_of(tensor.name)] += tensor.bytes
    return Inventory(rows, files, source, dict(dtypes.most_common()), dict(parts.most_common()))


def read_folder(folder: Path) -> Inventory | None:
    """The inventory of a local folder, ``None`` when it has no safetensors file.

    Files named by ``model.safetensors.index.json`` when there is one, else all of them.

    Raises:
        BadHeader: a file is not sound.
        UsageError: the index is not JSON, names a file outside the folder, or one that is not there.
    """
    names = _indexed(folder) or sorted(p.name for p in folder.glob("*.safetensors"))
    if not names:
        return None
    if len(names) > _MAX_FILES:
        raise UsageError(f"{folder}: {len(names)} weight files are more than any checkpoint has")
    tensors: list[Tensor] = []
    for name in names:
        tensors += read_file(folder / name)
    return inventory(tensors, len(names), str(folder))


def read_file(path: Path) -> list[Tensor]:
    """The tensors of one local file.

    Raises:
        BadHeader: it is not sound.
        UsageError: it can't be read.
    """
    try:
        if path.exists() and not path.is_file():  # a pipe would be waited for without end
            raise UsageError(f"{path.name}: no plain file", "do not load this checkpoint")
        size = path.stat().st_size
        with path.open("rb") as stream:
            length = header_length(stream.read(LENGTH_BYTES), path.name, size)
            return parse_header(stream.read(length), path.name, size)
    except OSError as error:
        raise UsageError(f"{path.name}: can't be read ({error.strerror or error})", f"ls -lL {path.parent}") from error


def _indexed(folder: Path) -> list[str]:
    index = folder / "model.safetensors.index.json"
    if not index.is_file():
        return []
    if index.stat().st_size > _MAX_INDEX:
        raise UsageError(f"{index.name}: larger than any index", "download the file again")
    files = indexed_files(index.read_bytes(), index.name)
    for name in files:
        if not (folder / name).exists():
            raise UsageError(f"{index.name}: names {name}, which is not there", "download the missing file")
    return files


def indexed_files(text: bytes, file: str) -> list[str]:
    """The weight files that an index names.

    Raises:
        UsageError: it is no index, or names anything but weight files beside it.
    """
    try:
        table = json.loads(text)
        files = sorted({str(name) for name in table["weight_map"].values()})
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
        raise UsageError(f"{file}: no index of weights ({type(error).__name__})", "download the file again") from error
    for name in files:
        if Path(name).name != name or not name.endswith(".safetensors"):
            raise UsageError(
                f"{file}: names {name[:80]!r}, which is no weight file of this folder", "do not load this checkpoint"
            )
    return files


def _schemes(tensors: tuple[Tensor, ...]) -> tuple[str, ...]:
    names = {t.name.rpartition(".")[2] for t in tensors}
    floats = {t.dtype for t in tensors}
    found: list[str] = []
    if {"F8_E4M3", "F8_E5M2"} & floats and ("weight_scale_inv" in names or _blocks(tensors)):
        found.append("fp8-block")
    elif {"F8_E4M3", "F8_E5M2"} & floats and "weight_scale_2" not in names:
        found.append("fp8")
    if "weight_scale_2" in names or "weight_global_scale" in names:
        found.append("nvfp4")
    if "qweight" in names:
        found.append("gptq" if "g_idx" in names else "awq")
    if "weight_packed" in names and "nvfp4" not in found:
        found.append("int4")
    if any(n.endswith("_blocks") for n in names):
        found.append("mxfp4")
    return tuple(found)


def _blocks(tensors: tuple[Tensor, ...]) -> bool:
    """Scales with two dimensions larger than one belong to blocks."""
    return any(
        t.name.endswith(("weight_scale", "scale_inv"))
        and len(t.shape) == 2
        and min(t.shape) > 1
        and t.dtype in ("F32", "BF16")
        for t in tensors
    )


def is_scale(name: str) -> bool:
    """Whether a tensor holds scales or zero points of another."""
    return _SCALES.search(name) is not None
