"""Whole models with the reference inside, on tiny random weights."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

torch = pytest.importorskip("torch")
transformers = pytest.importorskip("transformers")
safetensors = pytest.importorskip("safetensors.torch")

from hybridctl.kernels.linear_attention.reference_model import (  # noqa: E402
    load_reference,
    reference_logits,
    rename_linear,
)

FAMILIES = {
    "qwen3": ("Qwen3Config", "Qwen3ForCausalLM"),
    "qwen2": ("Qwen2Config", "Qwen2ForCausalLM"),
    "llama": ("LlamaConfig", "LlamaForCausalLM"),
    "mistral": ("MistralConfig", "MistralForCausalLM"),
}
HYBRID = {"thresholds": {"flash": 8, "linear": 16}, "fallback_policy": "flash"}
IDS = [(7 * i * i + 3) % 61 for i in range(40)]
SIZE, GROUPS, LAYERS = 8, 2, 2


def tiny(family: str):  # type: ignore[no-untyped-def]
    config, model = (getattr(transformers, name) for name in FAMILIES[family])
    settings = config(
        vocab_size=61,
        hidden_size=32,
        intermediate_size=48,
        num_hidden_layers=LAYERS,
        num_attention_heads=4,
        num_key_value_heads=GROUPS,
        head_dim=SIZE,
        max_position_embeddings=64,
        initializer_range=0.3,
        **({"sliding_window": None} if family == "mistral" else {}),
    )
    return model(settings).double().eval()


def store(model, folder: Path, extra: dict, hybrid: object = HYBRID, rename=lambda name: name) -> Path:  # type: ignore[no-untyped-def, type-arg]
    weights = {rename(k): v.contiguous().clone() for k, v in {**model.state_dict(), **extra}.items()}
    safetensors.save_file(weights, str(folder / "model.safetensors"))
    settings = model.config.to_dict() | {"hybrid_config": hybrid}
    (folder / "config.json").write_text(json.dumps(settings))
    return folder


def projections() -> dict[str, object]:
    names = [f"model.layers.{i}.self_attn.linear_proj.weight" for i in range(LAYERS)]
    return {name: torch.randn(GROUPS, 3, SIZE, dtype=torch.float64) for name in names}


@pytest.mark.parametrize("family", FAMILIES)
def test_without_routing_it_is_the_model_itself(family: str, tmp_path: Path) -> None:
    model = tiny(family)
    with torch.no_grad():
        want = model(input_ids=torch.tensor([IDS])).logits[0]
    torch.testing.assert_close(reference_logits(store(model, tmp_path, {}), IDS, {}), want, rtol=1e-6, atol=1e-6)


@pytest.mark.parametrize("family", FAMILIES)
def test_routing_begins_at_its_position_and_uses_the_projection(family: str, tmp_path: Path) -> None:
    extra = projections()
    folder = store(tiny(family), tmp_path, extra)
    reference = load_reference(folder)
    routed = reference.logits(IDS)
    assert [mask.sum().item() for mask in reference.kernels] == [GROUPS * (len(IDS) - 16)] * LAYERS
    plain = reference_logits(folder, IDS, {})
    torch.testing.assert_close(routed[:16], plain[:16], rtol=1e-9, atol=1e-9)
    assert (routed[16:] - plain[16:]).abs().amax(-1).min() > 1e-4
    for layer in reference.layers:
        layer.linear_proj = None
    assert (reference.logits(IDS)[16:] - routed[16:]).abs().max() > 1e-3


def test_one_layer_computed_by_hand(tmp_path: Path) -> None:
    """The first layer's output projection sees exactly what the operator gives for its q, k, v."""
    from hybridctl.kernels.linear_attention.routing import Routing, hybrid_attention

    reference = load_reference(store(tiny("qwen3"), tmp_path, projections()))
    seen = {}
    attention = reference.model.model.layers[0].self_attn
    attention.o_proj.register_forward_pre_hook(lambda _, args: seen.update(o=args[0][0]))
    attention.register_forward_pre_hook(lambda _, args, kw: seen.update(kw), with_kwargs=True)
    reference.logits(IDS)
    from transformers.models.qwen3.modeling_qwen3 import apply_rotary_pos_emb

    shape = (1, len(IDS), -1, SIZE)
    x = seen["hidden_states"]
    q = attention.q_norm(attention.q_proj(x).view(shape)).transpose(1, 2)
    k = attention.k_norm(attention.k_proj(x).view(shape)).transpose(1, 2)
    q, k = apply_rotary_pos_emb(q, k, *seen["position_embeddings"])
    v = attention.v_proj(x).view(shape)[0]
    out, _ = hybrid_attention(
        q[0].transpose(0, 1),
        k[0].transpose(0, 1),
        v,
        routing=Routing(8, 16, "flash"),
        linear_proj=reference.layers[0].linear_proj,
    )
    torch.testing.assert_close(out.flatten(1), seen["o"])


def test_recorded_masks_are_replayed(tmp_path: Path) -> None:
    reference = load_reference(store(tiny("llama"), tmp_path, {}))
    routed, masks = reference.logits(IDS), reference.kernels
    plain = load_reference(tmp_path, {})
    torch.testing.assert_close(plain.logits(IDS, kernels=masks), routed)
    assert (plain.logits(IDS) - routed).abs().max() > 1e-3
    with pytest.raises(ValueError, match="1 masks for 2 layers"):
        plain.logits(IDS, kernels=masks[:1])


def test_layers_that_do_not_take_part_stay_full_attention(tmp_path: Path) -> None:
    hybrid = {**HYBRID, "routing_strategy": "layer_types", "layer_types": ["full_attention", "hybrid_attention"]}
    reference = load_reference(store(tiny("qwen2"), tmp_path, {}, hybrid))
    reference.logits(IDS)
    assert [bool(mask.any()) for mask in reference.kernels] == [False, True]


def test_layers_have_their_own_heads_types_and_gates(tmp_path: Path) -> None:
    kinds = ["linear_attention", "hybrid_attention"]
    hybrid = {**HYBRID, "layer_types": kinds, "linear_heads": [[1], [0]], "linear_head_gate": [1]}
    gates = {"model.layers.1.self_attn.linear_head_gate": torch.zeros(4)}
    reference = load_reference(store(tiny("qwen3"), tmp_path, gates, hybrid))
    reference.logits(IDS)
    first, second = reference.kernels
    assert first[:, 1].all() and not first[:, 0].any()
    assert second[:, 0].int().diff().nonzero()[:, 0].tolist() == [15] and not second[:, 1].any()
    assert [plan.gate is None for plan in reference.layers] == [True, False]


def test_compute_units_need_a_mask(tmp_path: Path) -> None:
    units = [{"name": "a", "kernel": "linear", "condition": "position >= 16"}]
    reference = load_reference(store(tiny("llama"), tmp_path, {}, {"compute_units": units}))
    with pytest.raises(ValueError, match="replay a recorded mask"):
        reference.logits(IDS)
    mask = (torch.arange(len(IDS)) >= 16)[:, None].repeat(1, GROUPS)
    routed = load_reference(tmp_path, {"thresholds": {"flash": 16, "linear": 16}}).logits(IDS)
    torch.testing.assert_close(reference.logits(IDS, kernels=[mask] * LAYERS), routed)


def test_a_replayed_mask_is_compared_with_the_rule(tmp_path: Path) -> None:
    ids = [(7 * i * i + 3) % 61 for i in range(100)]
    hybrid = {"thresholds": {"flash": 64, "linear": 80}, "entropy_threshold": 0.99}
    model = tiny("llama")
    model.config.max_position_embeddings = 128
    reference = load_reference(store(model, tmp_path, {}, hybrid))
    reference.logits(ids)
    masks = [mask.clone() for mask in reference.kernels]
    masks[1][70, 0] ^= True
    masks[1][90, 1] ^= True
    reference.layers[1].watch = True
    reference.logits(ids, kernels=masks)
    plan = reference.layers[1]
    assert plan.own is not None and plan.margins is not None
    assert (plan.own != masks[1]).nonzero().tolist() == [[70, 0], [90, 1]]
    assert 0 < plan.margins[0] < 1 and plan.margins[1] == torch.inf


def test_gate_is_read_and_must_be_there(tmp_path: Path) -> None:
    hybrid = {**HYBRID, "linear_head_gate": True}
    gates = {f"model.layers.{i}.self_attn.linear_head_gate": torch.full((4,), -60.0) for i in range(LAYERS)}
    model = tiny("qwen3")
    folder = store(model, tmp_path, gates, hybrid)
    torch.testing.assert_close(reference_logits(folder, IDS), reference_logits(folder, IDS, {}))
    store(model, tmp_path, {}, hybrid)
    with pytest.raises(ValueError, match="linear_head_gate"):
        load_reference(folder)


def test_a_model_in_memory(tmp_path: Path) -> None:
    model, extra = tiny("qwen3"), projections()
    want = reference_logits(store(model, tmp_path, extra), IDS)
    torch.testing.assert_close(reference_logits(model, IDS, HYBRID, weights=extra), want)


def test_the_prefix_of_the_article_goes(tmp_path: Path) -> None:
    model, extra = tiny("qwen3"), projections()
    want = reference_logits(store(model, tmp_path, extra), IDS)

    def prefixed(name: str) -> str:
        return name.replace(".q_proj", ".linear_q_proj").replace(".o_proj", ".linear_o_proj")

    torch.testing.assert_close(reference_logits(store(model, tmp_path, extra, rename=prefixed), IDS), want)


def test_prefix_rule_touches_only_what_has_nowhere_else_to_go() -> None:
    wanted = ["a.q_proj.weight", "a.linear_attn.weight", "a.k_proj.weight"]
    have = ["a.linear_q_proj.weight", "a.linear_attn.weight", "a.k_proj.weight", "a.linear_k_proj.weight", "a.linear_x"]
    assert rename_linear(have, wanted) == {"a.linear_q_proj.weight": "a.q_proj.weight"}
    own = "model.layers.0.self_attn.linear_proj.weight"
    assert rename_linear([own], ["model.layers.0.self_attn.proj.weight"]) == {}


def test_what_the_reference_is_not_for(tmp_path: Path) -> None:
    model = tiny("llama")
    folder = store(model, tmp_path, {"model.layers.0.stray": torch.ones(1)})
    with pytest.raises(ValueError, match="not known"):
        load_reference(folder)
    model.config.model_type = "gemma3"
    with pytest.raises(ValueError, match="gemma3"):
        load_reference(model)
    mistral = tiny("mistral")
    mistral.config.sliding_window = 16
    with pytest.raises(ValueError, match="sliding window"):
        load_reference(mistral)
