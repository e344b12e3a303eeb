"""Do the ranks' shares of a dense model's widths hold whole quantisation groups?

AWQ, GPTQ and 4-bit compressed-tensors keep one scale for each group of 32 to 128 weights along the input. Layers that are cut
along their input (down_proj, o_proj) must give each rank whole groups, or vLLM refuses them while it builds the model.
"""

from __future__ import annotations

from hybridctl.doctor.checks import Check, Context
from hybridctl.doctor.checks import _reading as read
from hybridctl.doctor.checks._parallel import layout
from hybridctl.doctor.checks._reading import Quantity
from hybridctl.doctor.facts.model import Facts
from hybridctl.doctor.findings import Fix, Outcome

_GROUP_KEYS = (
    "config.quantization_config.group_size",
    "config.quantization_config.config_groups.group_0.weights.group_size",
)
_SOURCES = [
    "https://github.com/vllm-project/vllm/issues/16173",
    "https://github.com/vllm-project/vllm/blob/v0.33.0/vllm/model_executor/layers/quantization/awq.py",
]


def _widths(facts: Facts) -> list[tuple[str, Quantity]]:
    """The inputs of the layers that are cut along their input."""
    found = []
    if (mlp := read.number(facts, ("config.intermediate_size",))) and mlp.value > 0:
        found.append(("the feed-forward layer", mlp))
    heads, dim = read.number(facts, ("config.num_attention_heads",)), read.number(facts, ("config.head_dim",))
    if heads and dim and heads.value > 0 and dim.value > 0:
        found.append(("the attention output", Quantity(heads.value * dim.value, heads.evidence)))
    return found


def run(context: Context) -> Outcome:
    facts = context.facts
    stored, quant = read.matching(facts, "model.quant", "awq", "gptq", "compressed-tensors")
    if stored is False or read.engine(facts) not in (None, "vllm"):
        return CHECK.not_applicable("no 4-bit groups, or another engine")
    if facts.value("model.moe") is True:
        return CHECK.not_applicable("expert kernels choose their own groups")
    group, tp, widths = read.number(facts, _GROUP_KEYS), layout(facts).tp, _widths(facts)
    if stored is None or quant is None or group is None or tp is None or not widths:
        return CHECK.unknown("group_size and the widths from config.json, and the tensor-parallel size")
    if tp.value == 1 or group.value <= 0:
        return CHECK.ok("each rank holds whole groups")
    if read.past(facts, "load"):
        return CHECK.not_applicable("the log shows that the model was built")
    for name, width in widths:
        share, rest = divmod(width.value, tp.value)
        if rest == 0 and share % group.value:
            return CHECK.found(
                read.finding(
                    "quant-group-cut",
                    f"{tp.value} ranks cut through the quantisation groups of {name}",
                    "quantization",
                    "error",
                    f"{width.value} / {tp.value} = {share} is no multiple of the group size {group.value}. vLLM stops with 'The "
                    "input size is not aligned with the quantized weight shape' or with a size that is not divisible.",
                    [group.evidence, width.evidence, tp.evidence, read.quote(quant)],
                    [
                        Fix(
                            "Split the model by layers instead, or use fewer ranks.",
                            f"vllm serve {facts.value('model.name') or 'MODEL'} --tensor-parallel-size 1 "
                            f"--pipeline-parallel-size {tp.value}",
                        ),
                        Fix("Or take a checkpoint with padded widths or smaller groups.", None),
                    ],
                    _SOURCES,
                    "measured",
                    explains=["quant-group-cut-by-tp", "qwen25-72b-awq-tp", "quant-method-unknown"],
                )
            )
    return CHECK.ok(f"each of {tp.value} ranks holds whole groups of {group.value}")


CHECK = Check("group-split", "Quantisation groups against the ranks", run)
