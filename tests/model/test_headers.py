"""Headers of weight files: sound ones are read, all others are refused with one clear line, whatever they hold."""

from __future__ import annotations

import json
import struct
import time
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hybridctl.errors import UsageError
from hybridctl.model.headers import BadHeader, header_length, parse_header
from hybridctl.model.inventory import part_of, read_file, read_folder


def table(**tensors: tuple[str, list[int], list[int]]) -> bytes:
    return json.dumps(
        {name: {"dtype": d, "shape": s, "data_offsets": o} for name, (d, s, o) in tensors.items()}
    ).encode()


def write(path: Path, header: bytes, data: int) -> Path:
    path.write_bytes(struct.pack("<Q", len(header)) + header + bytes(data))
    return path


SOUND = {"a.weight": ("BF16", [4, 8], [0, 64]), "b.weight": ("F8_E4M3", [16], [64, 80])}


class TestSound:
    def test_names_dtypes_and_bytes(self) -> None:
        rows = parse_header(table(**SOUND), "model.safetensors", None)
        assert [(t.name, t.dtype, t.shape, t.bytes) for t in rows] == [
            ("a.weight", "BF16", (4, 8), 64),
            ("b.weight", "F8_E4M3", (16,), 16),
        ]

    def test_half_bytes_and_scalars_and_metadata(self) -> None:
        header = json.dumps(
            {
                "__metadata__": {"format": "pt"},
                "w": {"dtype": "F4", "shape": [3], "data_offsets": [0, 2]},
                "s": {"dtype": "F32", "shape": [], "data_offsets": [2, 6]},
            }
        ).encode()
        assert [t.bytes for t in parse_header(header, "x")] == [2, 4]


HOSTILE: list[tuple[bytes, str]] = [
    (b"[" * 100_000, "nested"),
    (b'{"a":' * 50_000 + b"1" + b"}" * 50_000, "nested"),
    (b"{]", "not JSON"),
    (b"[1, 2]", "no table"),
    (b'{"a": 3}', "no entry"),
    (table(a=("BF16", [4], [0, 8]), b=("BF16", [4], [4, 12])), "overlap"),
    (table(a=("BF16", [4], [0, 7])), "takes 7 bytes"),
    (table(a=("BF16", [4], [8, 0])), "impossible place"),
    (table(a=("BF16", [-4], [0, 8])), "impossible shape"),
    (table(a=("BF16", [2**40, 2**40], [0, 8])), "impossible shape"),
    (table(a=("BF16", [1] * 20, [0, 2])), "impossible shape"),
    (table(a=("pickle", [4], [0, 8])), "dtype"),
    (table(a=("BF16", [4], [1000, 1008])), "cut off"),
    (b'{"a": %s, "a": %s}' % ((b'{"dtype": "I8", "shape": [1], "data_offsets": [0, 1]}',) * 2), "twice"),
]  # fmt: skip


ROW = b'"%d": {"dtype": "I8", "shape": [0], "data_offsets": [0, 0]}'


@pytest.mark.parametrize(
    ("header", "words"),
    [
        (b"{" + b'"data_offsets": ' * 500_001, "500001 tensors in one file are more than any checkpoint has"),
        (b"{" + b",".join(ROW % min(i, 59_998) for i in range(60_000)) + b"}", "'59998' stands twice"),
    ],
    ids=["entries", "twice"],
)
def test_a_large_header_is_refused_in_seconds(header: bytes, words: str) -> None:
    begin = time.monotonic()
    with pytest.raises(BadHeader) as caught:
        parse_header(header, "bad.safetensors", 8 + len(header))
    assert words in str(caught.value)
    assert time.monotonic() - begin < 20  # a search through all names for each would take minutes


@pytest.mark.parametrize(("header", "words"), HOSTILE, ids=[w for _, w in HOSTILE])
def test_hostile(header: bytes, words: str) -> None:
    with pytest.raises(BadHeader) as caught:
        parse_header(header, "bad.safetensors", 8 + len(header) + 100)
    assert words in str(caught.value)
    assert "bad.safetensors" in str(caught.value) and "\n" not in str(caught.value)
    assert len(str(caught.value)) < 400


@pytest.mark.parametrize(
    ("start", "size", "words"),
    [
        (b"version https://git-lfs.github.com/spec/v1", 130, "LFS pointer"),
        (b"abc", 3, "no safetensors"),
        (struct.pack("<Q", 2**62), 10**9, "not possible"),
        (struct.pack("<Q", 10**6), 1000, "longer than the file"),
        (struct.pack("<Q", 0), 1000, "not possible"),
    ],
)
def test_lengths(start: bytes, size: int, words: str) -> None:
    with pytest.raises(BadHeader, match=words):
        header_length(start, "x.safetensors", size)


@given(st.binary(max_size=300))
def test_any_bytes(text: bytes) -> None:
    try:
        parse_header(text, "x")
    except BadHeader:
        return


_ANY: Any = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=5), lambda x: st.lists(x, max_size=3), max_leaves=5
)


@given(
    st.dictionaries(
        st.text(max_size=4), st.dictionaries(st.sampled_from(["dtype", "shape", "data_offsets"]), _ANY), max_size=3
    )
)
def test_any_table(document: dict[str, Any]) -> None:
    try:
        parse_header(json.dumps(document).encode(), "x")
    except BadHeader:
        return


class TestFolder:
    def test_bytes_by_dtype_and_part(self, tmp_path: Path) -> None:
        header = table(
            **{
                "model.embed_tokens.weight": ("BF16", [8, 4], [0, 64]),
                "model.layers.0.mlp.experts.0.gate_proj.weight": ("F8_E4M3", [4, 4], [64, 80]),
                "model.layers.0.mlp.experts.0.gate_proj.weight_scale_inv": ("F32", [1, 1], [80, 84]),
                "mtp.layers.0.self_attn.q_proj.weight": ("BF16", [4], [84, 92]),
            }
        )
        write(tmp_path / "model.safetensors", header, 92)
        found = read_folder(tmp_path)
        assert found and found.bytes == 92 and found.files == 1
        assert found.by_dtype == {"BF16": 72, "F8_E4M3": 16, "F32": 4}
        assert found.by_part == {"embedding": 64, "experts": 20, "draft": 8}
        assert found.draft and found.quantised == ("fp8-block",)

    def test_nothing_there(self, tmp_path: Path) -> None:
        assert read_folder(tmp_path) is None

    @pytest.mark.parametrize("name", ["../../etc/passwd", "/etc/passwd", "sub/model.safetensors", "weights.bin"])
    def test_an_index_that_points_elsewhere(self, tmp_path: Path, name: str) -> None:
        (tmp_path / "model.safetensors.index.json").write_text(json.dumps({"weight_map": {"a": name}}))
        with pytest.raises(UsageError, match="no weight file of this folder"):
            read_folder(tmp_path)

    def test_an_index_that_points_nowhere(self, tmp_path: Path) -> None:
        (tmp_path / "model.safetensors.index.json").write_text(json.dumps({"weight_map": {"a": "gone.safetensors"}}))
        with pytest.raises(UsageError, match="not there"):
            read_folder(tmp_path)

    def test_a_name_in_two_files(self, tmp_path: Path) -> None:
        for file in ("a.safetensors", "b.safetensors"):
            write(tmp_path / file, table(w=("I8", [1], [0, 1])), 1)
        with pytest.raises(UsageError, match=r"a\.safetensors and in b\.safetensors"):
            read_folder(tmp_path)

    def test_a_file_that_was_cut_off(self, tmp_path: Path) -> None:
        with pytest.raises(BadHeader, match="cut off"):
            read_file(write(tmp_path / "x.safetensors", table(**SOUND), 79))


@pytest.mark.parametrize(
    ("name", "part"),
    [
        ("model.language_model.layers.0.linear_attn.in_proj_qkvz.weight", "state"),
        ("model.layers.3.self_attn.q_proj.weight", "attention"),
        ("model.layers.3.mlp.gate.weight", "router"),
        ("model.layers.3.mlp.gate_proj.weight", "feed-forward"),
        ("model.layers.3.mlp.shared_expert.up_proj.weight", "shared expert"),
        ("model.layers.3.mlp.shared_expert_gate.weight", "router"),
        ("backbone.layers.2.mixer.in_proj.weight", "state"),
        ("backbone.layers.2.mixer.q_proj.weight", "attention"),
        ("backbone.layers.2.mixer.up_proj.weight", "feed-forward"),
        ("backbone.layers.2.mixer.experts.7.up_proj.weight", "experts"),
        ("model.layers.1.ple.ngram_embedding.weight", "table"),
        ("model.visual.blocks.0.attn.qkv.weight", "vision"),
        ("mtp.layers.0.mlp.experts.1.down_proj.weight", "draft"),
        ("lm_head.weight", "embedding"),
        ("model.layers.0.input_layernorm.weight", "other"),
        ("model.layers.1.conv.conv.weight", "state"),
    ],
)
def test_parts(name: str, part: str) -> None:
    assert part_of(name) == part
