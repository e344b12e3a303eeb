"""Every shipped recipe is valid and reachable, and its versions agree with one another."""

from __future__ import annotations

from pathlib import Path

import pytest

from hybridctl.data import recipes_dir
from hybridctl.errors import BrokenDataError
from hybridctl.model.families import compile_family, family, family_of_architecture, family_of_type, load_families
from hybridctl.versions import parse_condition, parse_version

FILES = sorted((recipes_dir() / "models").glob("*.toml"))


@pytest.mark.parametrize("path", FILES, ids=lambda p: p.stem)
def test_recipe(path: Path) -> None:
    assert compile_family(path)["id"] == path.stem


def test_no_class_or_type_belongs_to_two_families() -> None:
    classes = [a.name for f in load_families() for a in f.architectures]
    types = [t for f in load_families() for t in f.model_types]
    assert len(classes) == len(set(classes))
    assert len(types) == len(set(types))


def test_look_ups() -> None:
    flash = family_of_architecture("Qwen4ExpForConditionalGeneration")
    assert flash is not None
    assert (flash.id, flash.first_vllm, flash.layers) == ("qwen4_exp", "0.29.0", ("gdn", "sparse"))
    assert family_of_type("qwen3_5_moe_text") == family("qwen3_5")
    assert family_of_architecture("NoSuchForCausalLM") is None


def test_text_only_classes_are_younger_than_their_family() -> None:
    found = family("qwen3_5")
    assert found is not None
    text_only = found.architecture("Qwen3_5MoeForCausalLM")
    assert text_only is not None
    assert (found.first_vllm, text_only.first_vllm, text_only.absent_vllm) == ("0.17.0", "0.27.0", "0.26.0")


def test_own_config_class_ends_where_transformers_takes_over() -> None:
    found = family("qwen4_exp")
    assert found is not None
    have = parse_condition(found.own_config_vllm)
    for version, expected in (("0.28.0", False), ("0.30.0", True), ("0.32.0", False)):
        point = parse_version(version)
        assert point is not None
        assert point.within(have) is expected


@pytest.mark.parametrize(
    "change",
    [
        ('hybrid = true', 'hybrid = false'),
        ('id = "qwen3_next"', 'id = "other"'),
        ('"gdn"', '"gated"'),
        ('first_transformers = "4.57.0"', 'first_transformers = "soon"'),
        ('title =', 'titel ='),
    ],
)  # fmt: skip
def test_a_broken_recipe_is_refused(tmp_path: Path, change: tuple[str, str]) -> None:
    text = (recipes_dir() / "models" / "qwen3_next.toml").read_text()
    assert change[0] in text
    broken = tmp_path / "qwen3_next.toml"
    broken.write_text(text.replace(*change))
    with pytest.raises(BrokenDataError, match=r"qwen3_next\.toml"):
        compile_family(broken)
