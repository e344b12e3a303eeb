"""What a family's recipe adds to an overlay: flags that hold without a condition are set, the others are written down."""

from __future__ import annotations

import json

from hybridctl.model.config import read_config
from hybridctl.model.families import load_families
from hybridctl.overlays import StoredFlag
from hybridctl.patchers.recipe_flags import family_of, recipe


def flags_of(model_type: str, vllm: str = "0.32.0", given: tuple[StoredFlag, ...] = ()) -> tuple[list[str], list[str]]:
    config = read_config(json.dumps({"model_type": model_type, "architectures": ["X"]}))
    found = recipe(family_of(config, "X"), given, vllm)
    assert all(flag.reason for flag in found.flags)
    return [" ".join((f.name, *f.values)) for f in found.flags], [flag.partition(" ")[0] for flag, _ in found.others]


def test_flags_without_a_condition_are_set() -> None:
    assert flags_of("nemotron_h") == (["--mamba-ssm-cache-dtype float32"], ["--trust-remote-code"])
    assert flags_of("qwen3_next") == ([], ["--speculative-config", "--compilation-config"])
    assert flags_of("llama") == ([], [])


def test_what_is_given_wins_and_what_a_release_lacks_is_not_set() -> None:
    given = (StoredFlag(name="--mamba-ssm-cache-dtype", values=["bfloat16"], reason="as you gave it"),)
    assert flags_of("nemotron_h", given=given) == ([], ["--mamba-ssm-cache-dtype", "--trust-remote-code"])
    assert "--mamba-ssm-cache-dtype" in flags_of("nemotron_h", "0.8.0")[1]


def test_code_of_a_checkpoint_is_never_run_by_a_recipe() -> None:
    for family in load_families():
        assert not any("trust" in flag.name for flag in recipe(family, (), "0.32.0").flags)
