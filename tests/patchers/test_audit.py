"""The audit from files alone: right checkpoints give no complaint, every seeded fault its own, and no weight is read for it."""

from __future__ import annotations

import json
import struct
from pathlib import Path
from typing import Any

import pytest
from seeded import SEED

from hybridctl.patchers.audit import audit
from hybridctl.patchers.config import Versions

BY_FILES = [name for name, seed in SEED.FAULTS.items() if not seed.needs_vllm]


@pytest.fixture
def read_up_to(monkeypatch: pytest.MonkeyPatch) -> dict[Path, int]:
    """How far into each weight file anything was read."""
    far: dict[Path, int] = {}
    real = Path.open

    def opened(self: Path, *args: Any, **kwargs: Any) -> Any:
        stream = real(self, *args, **kwargs)
        if self.suffix == ".safetensors" and args[:1] == ("rb",):
            read = stream.read

            class Counted:
                def read(self, size: int = -1) -> bytes:
                    data = read(size)
                    far[path] = max(far.get(path, 0), stream.tell())
                    return bytes(data)

                def __enter__(self) -> Counted:
                    return self

                def __exit__(self, *_: object) -> None:
                    stream.close()

            path = self
            return Counted()
        return stream

    monkeypatch.setattr(Path, "open", opened)
    return far


def _header_end(path: Path) -> int:
    with path.open("rb") as stream:
        return 8 + int(struct.unpack("<Q", stream.read(8))[0])


@pytest.mark.parametrize("family", [*SEED.CONFIGS])
@pytest.mark.parametrize("holes", [False, True])
def test_a_right_checkpoint_gives_no_complaint(family: str, holes: bool, tmp_path: Path) -> None:
    SEED.make(family, tmp_path / "model", holes=holes)
    assert audit(tmp_path / "model", Versions("0.32.0", "5.18.0")) == []


def _tensors(made: Any) -> dict[str, Any]:
    return {name: row for shard in made.shards for name, row in shard.items()}


@pytest.mark.parametrize("name", BY_FILES)
def test_a_seeded_fault_is_named_and_nothing_else(name: str, tmp_path: Path) -> None:
    seed = SEED.FAULTS[name]
    SEED.make(seed.family, tmp_path / "model", name, holes=True)
    faults = audit(tmp_path / "model", Versions(seed.vllm, seed.transformers), seed.tp)
    assert {f.id for f in faults} == {seed.id}
    assert seed.evidence in {each for f in faults for each in (*f.evidence, f.file)}
    assert all(f.what and f.cause and f.next for f in faults)
    right, spoiled = SEED.build(seed.family), SEED.build(seed.family)
    if seed.before:
        seed.before(spoiled)
    before, after = _tensors(right), _tensors(spoiled)
    changed = {n.removesuffix("_scale_inv") for n in before | after if before.get(n) != after.get(n)}
    if changed:  # then no other tensor may be named than these, or those whose scale it is
        told = {each for f in faults for each in f.evidence if each in before | after}
        assert told <= changed


@pytest.mark.parametrize("name", ["missing-in-one-layer", "scale-missing", "wrong-dtype", "truncated-data", "split"])
def test_nothing_behind_a_header_is_read(name: str, tmp_path: Path, read_up_to: dict[Path, int]) -> None:
    name = {"wrong-dtype": "dtype-odd"}.get(name, name)
    seed = SEED.FAULTS[name]
    SEED.make(seed.family, tmp_path / "model", name)
    audit(tmp_path / "model", Versions(seed.vllm, seed.transformers))
    seen = dict(read_up_to)
    assert len(seen) == 3
    # The first bytes of a file are looked at for Git LFS's line, which is shorter than any header.
    assert all(far <= _header_end(path) for path, far in seen.items())


def test_faults_of_many_layers_are_one_line(tmp_path: Path) -> None:
    SEED.make("qwen3_next", tmp_path / "model", "split", holes=True)
    faults = audit(tmp_path / "model", Versions("0.32.0", "5.18.0"))
    assert sorted(f.what.split(" (")[0] for f in faults) == [
        f"model.layers.*.linear_attn.in_proj_{part}.weight" for part in ("a", "b", "qkv", "z")
    ]
    assert all(len(f.evidence) == 2 for f in faults)


def test_the_class_of_a_routed_model_is_not_unknown(tmp_path: Path) -> None:
    SEED.make("qwen3", tmp_path / "model", holes=True)
    config = tmp_path / "model/config.json"
    config.write_text(config.read_text().replace("Qwen3ForCausalLM", "HybridCtlQwen3ForCausalLM"))
    assert audit(tmp_path / "model", Versions("0.32.0", "5.18.0")) == []


def test_every_fault_stands_in_the_documentation() -> None:
    text = (Path(__file__).parents[2] / "docs/audit.md").read_text()
    assert {seed.id for seed in SEED.FAULTS.values()} <= {word.strip("`,") for word in text.split()}


def test_a_number_of_layers_that_no_model_has_is_told_at_once(tmp_path: Path) -> None:
    SEED.make("qwen3", tmp_path / "model")
    path = tmp_path / "model/config.json"
    path.write_text(json.dumps({**json.loads(path.read_text()), "num_hidden_layers": 10**9}))
    (fault,) = audit(tmp_path / "model", Versions("0.32.0", "5.19.0"))
    assert (fault.id, fault.evidence) == ("layer-missing", ("num_hidden_layers",))
    assert fault.what == "config.json says 1000000000 layers, and the checkpoint has 4"
