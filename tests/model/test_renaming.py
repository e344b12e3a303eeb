"""Names of tensors: which rules a checkpoint asks for, and what a rule leaves alone."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hybridctl.model.renaming import candidates, rename_all, renamed
from hybridctl.overlays import NameRule

LAYER = "model.layers.3."
GDN = "model.layers.0.linear_attn.in_proj_qkvz.weight"


def rules(names: list[str], architecture: str = "Qwen3NextForCausalLM") -> list[tuple[str, str]]:
    return [(r.old, r.new) for c in candidates(names, architecture) for r in c.rules]


def test_the_articles_prefix_is_taken_off_where_a_name_is_left() -> None:
    names = [LAYER + "self_attn.linear_q_proj.weight", LAYER + "linear_mlp.gate_proj.weight", GDN]
    found = candidates(names, "Qwen3NextForCausalLM")
    assert [(c.id, c.by_name) for c in found] == [("linear-prefix", True)]
    assert rename_all(names, found[0].rules) == {
        names[0]: LAYER + "self_attn.q_proj.weight",
        names[1]: LAYER + "mlp.gate_proj.weight",
    }


@pytest.mark.parametrize(
    "names",
    [
        [GDN, "model.layers.0.linear_attn.norm.weight"],  # the model's own
        [LAYER + "self_attn.linear_proj.weight", LAYER + "self_attn.linear_head_gate"],  # the dispatcher's own
        [LAYER + "self_attn.linear_q_proj.weight", LAYER + "self_attn.q_proj.weight"],  # the plain name is there
        [LAYER + "self_attn.linear_z.weight"],  # nothing is known to be left
    ],
)
def test_names_that_stay(names: list[str]) -> None:
    assert rules(names) == []


def test_prefixes_of_whole_names() -> None:
    assert rules(["_orig_mod.model.norm.weight", "_orig_mod.lm_head.weight"]) == [("_orig_mod.", "")]
    assert rules(["model.layers.0.mixer.D", "lm_head.weight"], "Mamba2ForCausalLM") == [("model.", "backbone.")]
    assert rules(["model.layers.0.mixer.D"], "Qwen3ForCausalLM") == []
    assert rules(["module.model.norm.weight", "model.norm.weight"]) == []  # two tensors would have one name


@pytest.mark.parametrize(
    ("names", "expected"),
    [
        ([LAYER + "mlp.up_proj.weight_scale"], [(".weight_scale", ".weight_scale_inv")]),
        ([LAYER + "mlp.up_proj.weight_scale_inv"], [(".weight_scale_inv", ".weight_scale")]),
        ([LAYER + "mlp.up_proj.act_scale"], [(".act_scale", ".input_scale")]),
        ([LAYER + f"mlp.up_proj.weight_{part}" for part in ("scale", "scale_inv")], []),  # it has both
        ([LAYER + "mlp.experts.weight_scale_2", LAYER + "self_attn.k_scale"], []),  # other scales
    ],
)
def test_scales_may_have_the_other_name(names: list[str], expected: list[tuple[str, str]]) -> None:
    assert rules(names) == expected
    assert not any(candidate.by_name for candidate in candidates(names, "X"))  # for vLLM's own model to say


def test_a_component_is_a_whole_one() -> None:
    rule = NameRule(id="x", kind="component", old="linear_norm", new="norm")
    assert renamed("a.linear_norm.weight", [rule]) == "a.norm.weight"
    for same in ("a.linear_norm2.weight", "a.my_linear_norm.weight"):
        assert renamed(same, [rule]) == same
    end = NameRule(id="x", kind="suffix", old=".weight_scale", new=".weight_scale_inv")
    assert renamed("a.weight_scale", [end]) == "a.weight_scale_inv"
    assert renamed("a.weight_scale.b", [end]) == "a.weight_scale.b"


@given(st.lists(st.text(alphabet="lqinear_proj.", min_size=1), max_size=8, unique=True))
def test_no_two_tensors_ever_get_one_name(names: list[str]) -> None:
    for candidate in candidates(names, "X"):
        for rule in candidate.rules:
            after = [renamed(name, (rule,)) for name in names]
            assert len(set(after)) == len(names)
