"""The tables of model classes and model types, as read from released wheels."""

from __future__ import annotations

import pytest

from hybridctl import architectures as data
from hybridctl.flags import read_table
from hybridctl.model.families import load_families
from hybridctl.versions import VersionSet, parse_version


def point(text: str) -> VersionSet:
    version = parse_version(text)
    assert version is not None
    return version


@pytest.mark.parametrize(
    ("name", "version", "expected"),
    [
        ("LlamaForCausalLM", "0.6.3", True),
        ("LlamaForCausalLM", "0.33.0", True),
        ("LlamaForCausalLM", "0.5.0", None),
        ("LlamaForCausalLM", "0.40.0", None),
        ("BaichuanForCausalLM", "0.24.0", True),
        ("BaichuanForCausalLM", "0.24.1", None),
        ("BaichuanForCausalLM", "0.25.0", False),
        ("Qwen4ExpForCausalLM", "0.28.0", False),
        ("Qwen4ExpForCausalLM", "0.29.0", True),
        ("ExaoneMoEForCausalLM", "0.26.0", True),  # gone for five releases, then back
        ("ExaoneMoEForCausalLM", "0.26.1", None),
        ("ExaoneMoEForCausalLM", "0.29.0", False),
        ("ExaoneMoEForCausalLM", "0.31.1", None),
        ("ExaoneMoEForCausalLM", "0.32.0", True),
    ],
)
def test_classes(name: str, version: str, expected: bool | None) -> None:
    row = data.registered(name)
    assert row is not None
    assert row.holds(point(version)) is expected


def test_a_name_of_no_release_is_not_listed() -> None:
    assert data.registered("NobodyForCausalLM") is None


def test_the_releases_around_one_that_lacks_a_name() -> None:
    row = data.registered("ExaoneMoEForCausalLM")
    assert row is not None
    assert row.releases_around(point("0.29.0")) == ("0.26.0", "0.32.0")
    assert row.releases_around(point("0.12.0")) == (None, "0.14.0")


@pytest.mark.parametrize(
    ("name", "vllm", "transformers", "expected"),
    [
        ("SmolLM3ForCausalLM", "0.6.6", "4.53.3", False),  # no backend yet
        ("SmolLM3ForCausalLM", "0.7.0", "4.52.4", False),
        ("SmolLM3ForCausalLM", "0.9.0", "4.52.4", False),
        ("SmolLM3ForCausalLM", "0.9.0", "4.53.0", None),
        ("SmolLM3ForCausalLM", "0.9.0", "4.53.3", True),
        ("SmolLM3ForCausalLM", "0.9.0", None, None),
        ("InternLMForCausalLM", "0.25.0", None, False),  # in no transformers
        ("BambaForCausalLM", "0.25.0", "5.18.0", False),  # there, but not for exchangeable attention
        ("BambaForCausalLM", "0.29.1", "5.18.0", None),
        ("BambaForCausalLM", "0.30.0", "5.18.0", True),
        ("BambaForCausalLM", "0.30.0", "5.0.0", False),
    ],
)
def test_the_transformers_backend(name: str, vllm: str, transformers: str | None, expected: bool | None) -> None:
    assert data.backend_takes(name, point(vllm), point(transformers) if transformers else None) is expected


def test_a_class_of_the_same_stem_may_stand_in() -> None:
    assert data.stands_in("Qwen3ForSequenceClassification", point("0.9.0")) is None
    assert data.stands_in("Qwen3ForCausalLM", point("0.6.3")) is False
    assert data.stands_in("MiniCPMV", point("0.9.0")) is False


def test_types() -> None:
    window = data.type_window("smollm3")
    assert window is not None
    assert [window.holds(point(v)) for v in ("4.52.4", "4.53.0", "4.53.3")] == [False, None, True]
    assert data.type_window("llama") is None
    assert data.vllm_reads_type("smollm3", point("0.10.0")) is False
    assert [data.vllm_reads_type("olmo2", point(v)) for v in ("0.6.6", "0.8.1", "0.9.0")] == [True, None, False]


def test_every_span_names_checked_releases_in_order() -> None:
    for table, key in (("vllm_architectures.toml", "checked"), ("transformers_types.toml", "checked")):
        raw = read_table(table)
        order = {v: i for i, v in enumerate(raw[key])}
        for name, row in raw["seen"].items():
            ends = [order[v] if v else (0 if i == 0 else len(order) - 1) for i, v in enumerate(row)]
            assert len(ends) % 2 == 0, name
            assert ends == sorted(ends), name


def test_types_are_stated_in_one_place() -> None:
    stated = {t for f in load_families() if f.absent_transformers for t in f.model_types}
    assert not stated & set(read_table("transformers_types.toml")["seen"])


def test_recipes_and_table_agree() -> None:
    for family in load_families():
        for a in family.architectures:
            row = data.registered(a.name)
            if row is None:
                continue
            if a.absent_vllm:
                assert row.holds(point(a.absent_vllm)) is not True, a.name
            if a.first_vllm:
                assert row.holds(point(a.first_vllm)) is not False, a.name
            if a.last_vllm:
                assert row.holds(point(a.last_vllm)) is not False, a.name
