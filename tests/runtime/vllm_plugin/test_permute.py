"""KV groups in another order: attention computes the same, and layouts that can't be put in order are refused by name."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

torch = pytest.importorskip("torch")

from hybridctl.runtime.vllm_plugin.permute import Permutation, block_of, reorder
from hybridctl.runtime.vllm_plugin.routing import RefusedError
from hybridctl.runtime.vllm_plugin.weights import WeightError

pytestmark = pytest.mark.core
NAME, HIDDEN, SIZE, GROUPS, HEADS = "model.layers.0.self_attn", 6, 4, 4, 8
ORDER = (1, 3, 0, 2)


class UnquantizedLinearMethod:
    pass


def block(bias: bool = False, **extra: Any) -> torch.nn.Module:
    made = torch.nn.Module()
    made.qkv_proj = torch.nn.Linear(HIDDEN, (HEADS + 2 * GROUPS) * SIZE, bias=bias)
    made.o_proj = torch.nn.Linear(HEADS * SIZE, HIDDEN, bias=bias)
    for child in (made.qkv_proj, made.o_proj):
        child.quant_method = UnquantizedLinearMethod()
    for name, module in extra.items():
        setattr(made, name, module)
    return made


def test_rows_and_biases_of_the_inputs_and_columns_of_the_output() -> None:
    weights = {f"{kind}_proj.weight": torch.randn((HEADS if kind == "q" else GROUPS) * SIZE, HIDDEN) for kind in "qkv"}
    weights |= {f"{kind}_proj.bias": torch.randn((HEADS if kind == "q" else GROUPS) * SIZE) for kind in "qkv"}
    weights |= {"o_proj.weight": torch.randn(HIDDEN, HEADS * SIZE), "o_proj.bias": torch.randn(HIDDEN)}
    made = Permutation({NAME: block_of(block(bias=True), NAME, SIZE, ORDER)})
    moved = {name: made.take(f"{NAME}.{name}", tensor) for name, tensor in weights.items()}
    made.check()

    def answer(given: dict[str, Any], x: Any) -> Any:
        q, k, v = (torch.nn.functional.linear(x, given[f"{c}_proj.weight"], given[f"{c}_proj.bias"]) for c in "qkv")
        q, k, v = q.view(-1, GROUPS, HEADS // GROUPS, SIZE), k.view(-1, GROUPS, SIZE), v.view(-1, GROUPS, SIZE)
        scores = torch.einsum("nhgd,mhd->hgnm", q, k).softmax(-1)
        out = torch.einsum("hgnm,mhd->nhgd", scores, v).reshape(len(x), -1)
        return torch.nn.functional.linear(out, given["o_proj.weight"], given["o_proj.bias"])

    x = torch.randn(5, HIDDEN)
    torch.testing.assert_close(answer(moved, x), answer(weights, x))
    assert torch.equal(moved["k_proj.weight"][:SIZE], weights["k_proj.weight"][SIZE : 2 * SIZE])  # group 1 stands first
    assert torch.equal(moved["o_proj.bias"], weights["o_proj.bias"])


def test_other_tensors_go_through_untouched() -> None:
    made = Permutation({NAME: block_of(block(), NAME, SIZE, ORDER)})
    tensor = torch.randn(SIZE)
    for name in ("model.layers.1.self_attn.q_proj.weight", f"{NAME}.q_norm.weight", "model.norm.weight"):
        assert made.take(name, tensor) is tensor


def test_a_tensor_that_does_not_come_is_an_error() -> None:
    made = Permutation({NAME: block_of(block(), NAME, SIZE, ORDER)})
    for name in ("q_proj", "k_proj", "v_proj"):
        made.take(f"{NAME}.{name}.weight", torch.zeros(16, 4))
    with pytest.raises(WeightError, match=r"no model\.layers\.0\.self_attn\.o_proj\.weight"):
        made.check()


@pytest.mark.parametrize("name", ["qkv_proj.weight", "q_proj.qweight", "q_proj.weight_scale"])
def test_fused_and_packed_tensors_are_refused_by_name(name: str) -> None:
    made = Permutation({NAME: block_of(block(), NAME, SIZE, ORDER)})
    with pytest.raises(WeightError, match=f"{NAME}.{name} is a fused or packed tensor"):
        made.take(f"{NAME}.{name}", torch.zeros(16, 4))


def test_blocks_that_cannot_be_put_in_order_are_refused_by_name() -> None:
    quantised = block()
    quantised.qkv_proj.quant_method = SimpleNamespace()
    with pytest.raises(RefusedError, match=r"self_attn\.qkv_proj is quantised \(SimpleNamespace\)"):
        block_of(quantised, NAME, SIZE, ORDER)
    with pytest.raises(RefusedError, match="has no qkv_proj"):
        block_of(torch.nn.Module(), NAME, SIZE, ORDER)
    norm = torch.nn.LayerNorm(HEADS * SIZE, bias=False)  # one weight over all heads
    with pytest.raises(RefusedError, match=r"self_attn\.q_norm\.weight is not known"):
        block_of(block(q_norm=norm), NAME, SIZE, ORDER)
    assert block_of(block(q_norm=torch.nn.LayerNorm(SIZE, bias=False)), NAME, SIZE, ORDER).order == ORDER


def test_sizes_that_groups_do_not_divide_are_an_error() -> None:
    with pytest.raises(WeightError, match="10 rows or columns, which 4 KV groups"):
        reorder(torch.zeros(10, 2), ORDER, 0)
