"""Projections of a checkpoint and names with the article's prefix."""

from __future__ import annotations

import pytest

torch = pytest.importorskip("torch")

from hybridctl.runtime.vllm_plugin.weights import OperatorWeights, WeightError, rename

pytestmark = pytest.mark.core
PACKED = {"qkv_proj": ["q_proj", "k_proj", "v_proj"]}
NAME = "model.layers.0.self_attn."


class Model(torch.nn.Module):
    packed_modules_mapping = PACKED

    def __init__(self, groups: int | None = 2) -> None:
        super().__init__()
        self.model = torch.nn.Module()
        self.model.layers = torch.nn.ModuleList([torch.nn.Module()])
        block = self.model.layers[0].self_attn = torch.nn.Module()
        block.qkv_proj = torch.nn.Linear(4, 12, bias=False)
        if groups:
            block.linear_proj = torch.nn.Module()
            block.linear_proj.weight = torch.nn.Parameter(torch.full((groups, 3, 4), float("nan")))


def test_the_groups_of_a_rank_are_taken() -> None:
    model, full = Model(), torch.arange(48.0).view(4, 3, 4)
    own = OperatorWeights(model, (1, 3))
    rest = list(own.take([(NAME + "linear_proj.weight", full), (NAME + "q_proj.weight", torch.zeros(1))]))
    own.check()
    assert [name for name, _ in rest] == [NAME + "q_proj.weight"]
    assert torch.equal(model.model.layers[0].self_attn.linear_proj.weight, full[[1, 3]])


def test_missing_extra_and_misshapen_projections_are_errors() -> None:
    own = OperatorWeights(Model(), (0, 1))
    list(own.take([]))
    with pytest.raises(WeightError, match=r"no model\.layers\.\*\.self_attn\.linear_proj\.weight \(1\)"):
        own.check()
    with pytest.raises(WeightError, match="asks for no projection"):
        list(OperatorWeights(Model(None), (0, 1)).take([(NAME + "linear_proj.weight", torch.zeros(2, 3, 4))]))
    for shape in ((2, 4, 3), (3, 4), (1, 3, 4)):
        with pytest.raises(WeightError, match="has shape"):
            list(OperatorWeights(Model(), (0, 1)).take([(NAME + "linear_proj.weight", torch.zeros(shape))]))


def test_the_prefix_goes_only_where_the_model_has_the_plain_name() -> None:
    targets = frozenset({NAME + "qkv_proj.weight", "model.linear_attn.in_proj.weight", "model.norm.weight"})
    assert rename(NAME + "linear_q_proj.weight", targets, PACKED) == NAME + "q_proj.weight"
    assert rename("model.linear_norm.weight", targets, PACKED) == "model.norm.weight"
    for same in (
        "model.linear_attn.in_proj.weight",
        NAME + "linear_proj.weight",
        NAME + "linear_z.weight",
        "x.linear_b",
    ):
        assert rename(same, targets, PACKED) == same


def test_a_tensor_under_both_names_is_an_error() -> None:
    twice = [(NAME + "q_proj.weight", torch.zeros(1)), (NAME + "linear_q_proj.weight", torch.zeros(1))]
    with pytest.raises(WeightError, match="twice"):
        list(OperatorWeights(Model(None), (0,)).take(twice))


def gated(heads: int) -> Model:
    model = Model(None)
    model.model.layers[0].self_attn.linear_head_gate = torch.nn.Parameter(torch.full((heads,), float("nan")))
    return model


def test_the_gates_of_a_rank_and_of_its_linear_groups_are_taken() -> None:
    name, full = NAME + "linear_head_gate", torch.arange(8.0)
    model = gated(4)
    own = OperatorWeights(model, (0, 1), by_name={name: (3, 1)}, num_kv_heads=4)
    list(own.take([(name, full)]))
    own.check()
    assert model.model.layers[0].self_attn.linear_head_gate.tolist() == [6, 7, 2, 3]
    # Two ranks share a group of four heads: the second has its last two.
    model = gated(2)
    list(OperatorWeights(model, (1,), num_kv_heads=2, first_head=2).take([(name, full)]))
    assert model.model.layers[0].self_attn.linear_head_gate.tolist() == [6, 7]


def test_gates_that_miss_or_that_nobody_asked_for_are_errors() -> None:
    own = OperatorWeights(gated(4), (0, 1), num_kv_heads=2)
    list(own.take([]))
    with pytest.raises(WeightError, match=r"linear_head_gate \(1\), which hybrid_config\.linear_head_gate asks for"):
        own.check()
    with pytest.raises(WeightError, match="linear_head_gate asks for no gate"):
        list(OperatorWeights(Model(None), (0,)).take([(NAME + "linear_head_gate", torch.zeros(4))]))
    with pytest.raises(WeightError, match="has shape"):
        list(OperatorWeights(gated(4), (0, 1), num_kv_heads=2).take([(NAME + "linear_head_gate", torch.zeros(7))]))


def test_other_tensors_pass_a_last_change() -> None:
    own = OperatorWeights(Model(None), (0,), change=lambda name, tensor: tensor + len(name))
    (got,) = own.take([(NAME + "linear_q_proj.weight", torch.zeros(1))])
    assert got[0] == NAME + "q_proj.weight"
    assert got[1].item() == len(got[0])
