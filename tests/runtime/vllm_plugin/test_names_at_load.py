"""Rules for names of tensors, as the plugin applies them through vLLM's WeightsMapper."""

from __future__ import annotations

import json
from pathlib import Path
from types import SimpleNamespace
from typing import Any, ClassVar

import pytest

torch = pytest.importorskip("torch")
pytest.importorskip("vllm")

from safetensors.torch import save_file

from hybridctl import overlays
from hybridctl.architectures import alias_targets
from hybridctl.model.renaming import renamed
from hybridctl.overlays import Loading, Manifest, NameRule
from hybridctl.runtime.vllm_plugin import names
from hybridctl.runtime.vllm_plugin.renaming import Renaming, empty, mapper, unexpected
from hybridctl.runtime.vllm_plugin.weights import WeightError

pytestmark = [pytest.mark.vllm, pytest.mark.core]
HEAD = "model.layers.0."


def rule(kind: Any, old: str, new: str) -> NameRule:
    return NameRule(id="x", kind=kind, old=old, new=new)


QUERY = rule("component", "linear_q_proj", "q_proj")


class Model(torch.nn.Module):
    """A hybrid's layer: fused attention, and a state layer of its own that is called linear_attn."""

    packed_modules_mapping: ClassVar = {"qkv_proj": ["q_proj", "k_proj", "v_proj"]}

    def __init__(self) -> None:
        super().__init__()
        self.model = torch.nn.Module()
        layer = torch.nn.Module()
        self.model.layers = torch.nn.ModuleList([layer])
        layer.self_attn, layer.linear_attn = torch.nn.Module(), torch.nn.Module()
        layer.self_attn.qkv_proj = torch.nn.Linear(4, 12, bias=False)
        layer.linear_attn.in_proj_qkvz = torch.nn.Linear(4, 4, bias=False)


def taken(rules: list[NameRule], *given: str) -> tuple[Renaming, list[str]]:
    stream = Renaming(rules, Model())
    return stream, [name for name, _ in stream.take((name, torch.zeros(1)) for name in given)]


@pytest.mark.parametrize(
    ("given", "name"),
    [
        (QUERY, HEAD + "self_attn.linear_q_proj.weight"),
        (QUERY, HEAD + "self_attn.linear_q_proj2.weight"),
        (QUERY, "linear_q_proj"),
        (rule("prefix", "_orig_mod.", ""), "_orig_mod.model._orig_mod.x"),
        (rule("prefix", "a.", "b."), "x.a.y"),
        (rule("suffix", ".scale", ".scale_inv"), "a.scale.scale"),
        (rule("component", "a+b", "\\1"), "x.a+b.y"),
    ],
)
def test_vllm_renames_as_prepare_does(given: NameRule, name: str) -> None:
    assert mapper(given).apply_list([name]) == [renamed(name, [given])]


def test_native_names_stay_and_the_work_is_counted() -> None:
    stream, after = taken(
        [QUERY], HEAD + "self_attn.linear_q_proj.weight", HEAD + "linear_attn.in_proj_qkvz.weight", "lm_head.weight"
    )
    assert after == [HEAD + "self_attn.q_proj.weight", HEAD + "linear_attn.in_proj_qkvz.weight", "lm_head.weight"]
    stream.check()
    (row,) = stream.document()
    assert (row["tensors"], row["example"]) == (1, [HEAD + "self_attn.linear_q_proj.weight", after[0]])


def test_a_rule_that_matches_nothing_is_an_error() -> None:
    stream, _ = taken([QUERY], HEAD + "self_attn.q_proj.weight")
    with pytest.raises(WeightError, match="linear_q_proj → q_proj matches no tensor"):
        stream.check()


def test_rules_against_the_model_are_errors() -> None:
    with pytest.raises(WeightError, match="Model has linear_attn itself"):
        Renaming([rule("component", "linear_attn", "self_attn")], Model())
    with pytest.raises(WeightError, match="Model has no gate"):
        Renaming([rule("component", "linear_gate", "gate")], Model())


def test_two_tensors_under_one_name_are_an_error() -> None:
    with pytest.raises(WeightError, match="twice"):
        taken([QUERY], HEAD + "self_attn.q_proj.weight", HEAD + "self_attn.linear_q_proj.weight")


def test_what_the_model_lacks_and_what_stays_empty_is_listed_by_pattern(tmp_path: Path) -> None:
    odd = {f"model.layers.{i}.self_attn.linear_z.weight": torch.zeros(1) for i in range(3)}
    save_file({**odd, HEAD + "self_attn.linear_q_proj.weight": torch.zeros(1)}, tmp_path / "model.safetensors")
    assert unexpected(str(tmp_path), [QUERY], Model()) == "model.layers.*.self_attn.linear_z.weight (3)"
    loaded = {HEAD + "self_attn.qkv_proj.weight"}
    assert empty(Model(), loaded) == [HEAD + "linear_attn.in_proj_qkvz.weight"]
    assert empty(Model(), None) == []


@pytest.fixture
def registry(monkeypatch: pytest.MonkeyPatch) -> Any:
    monkeypatch.setattr(names, "ORIGINAL", {})
    names._loading.cache_clear()
    made = SimpleNamespace(models={"XForCausalLM": "its own"})
    made.register_model = made.models.__setitem__
    return made


def folder(path: Path, load: Loading | None) -> str:
    told = {
        "model": "a/m", "revision": None, "created": "2026-11-29T12:00:00Z", "routing": "none", "vllm": "0.32.0",
        "files": {"config.json": {"size": 1}}, "load": load.model_dump() if load else None,
    }  # fmt: skip
    (path / overlays.MANIFEST).write_text(Manifest.model_validate_json(json.dumps(told)).text())
    return str(path)


def test_one_class_gets_a_stand_in_and_only_where_an_overlay_asks(
    registry: Any, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.delenv("HYBRIDCTL_NAMES", raising=False)
    names.register(registry, "m")
    assert registry.models == {"XForCausalLM": "its own"}
    monkeypatch.setenv("HYBRIDCTL_NAMES", folder(tmp_path, Loading(architecture="XForCausalLM", names=[QUERY])))
    for _ in range(2):
        names.register(registry, "m")
    assert registry.models == {"XForCausalLM": "m:HybridCtlRenamedXForCausalLM"}
    assert names.ORIGINAL == {"XForCausalLM": "its own"}


def test_rules_that_can_not_be_applied_end_the_process(
    registry: Any, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("HYBRIDCTL_NAMES", folder(tmp_path, None))
    with pytest.raises(names.RulesError, match="no rules for names"):
        names.register(registry, "m")
    (tmp_path / "other").mkdir()
    other = folder(tmp_path / "other", Loading(architecture="YForCausalLM", names=[QUERY]))
    monkeypatch.setenv("HYBRIDCTL_NAMES", other)
    with pytest.raises(names.RulesError, match="no class YForCausalLM"):
        names.register(registry, "m")
    monkeypatch.setenv("HYBRIDCTL_NAMES", str(tmp_path / "gone"))
    with pytest.raises(overlays.OverlayError):
        names.register(registry, "m")


def test_legacy_names_stand_for_classes_of_the_installed_vllm() -> None:
    import vllm
    from vllm.model_executor.models.registry import _VLLM_MODELS

    # An engine that ran before in this process has registered the aliases; these are the names that vLLM itself brings.
    found = alias_targets(_VLLM_MODELS, vllm.__version__)
    assert found["Qwen3_8FlashNextForCausalLM"] == "Qwen4ExpForCausalLM"
    assert found["Qwen3_8FlashNextForConditionalGeneration"] == "Qwen4ExpForConditionalGeneration"
    assert not set(found) & {"Qwen3_5ForConditionalGeneration"}  # of some model types only: not for a registry
