"""Do the ranks' shares of expert and feed-forward widths hold whole quantisation blocks?

A block-wise FP8 checkpoint has one scale for each 128 x 128 block. If a rank's share of an expert's width is no multiple of 128,
SGLang refuses it, and so do vLLM's dense layers; vLLM's expert kernels tolerate shares down to their own tile of 32. Expert
parallelism leaves the experts whole.
"""

from __future__ import annotations

from hybridctl.doctor.checks import Check, Context
from hybridctl.doctor.checks import _reading as read
from hybridctl.doctor.checks._parallel import Layout, layout
from hybridctl.doctor.checks._reading import Quantity
from hybridctl.doctor.facts.model import Facts
from hybridctl.doctor.findings import Finding, Fix, Outcome, Severity

_SOURCES = [
    "https://github.com/vllm-project/vllm/issues/54178",
    "https://github.com/vllm-project/vllm/pull/55867",
    "https://recipes.vllm.ai/Qwen/Qwen3.8-Flash-Next",
]
_SHARED_SOURCES = [
    "https://github.com/vllm-project/vllm/pull/52915",
    "https://github.com/vllm-project/vllm/issues/52997",
]
_EXPERT_ENDS = [
    "any-fp8-block-not-divisible",
    "any-sglang-moe-block-not-divisible",
    "flashnext-fp8-tp-block128",
    "sglang-flashnext-fp8-needs-ep",
]
_NVFP4_GROUP = 64  # CUTLASS lays NVFP4 scales out in groups of this width


def _block(facts: Facts) -> Quantity | None:
    """Edge of the FP8 blocks: as config.json states it, else 128 where the checkpoint is known to be block-wise FP8."""
    if fact := facts.get("config.quantization_config.weight_block_size"):
        first = (
            fact.value[0]
            if isinstance(fact.value, list) and fact.value
            else str(fact.value).strip("[]() ").split(",")[0]
        )
        if str(first).strip().isdecimal() and int(str(first)) > 0:
            return Quantity(int(str(first)), read.quote(fact))
    blockwise, fact = read.matching(facts, "model.quant", "fp8-block")
    return Quantity(128, read.quote(fact)) if blockwise and fact else None


def _width(facts: Facts, name: str) -> Quantity | None:
    width = read.number(facts, (f"config.{name}",))
    return width if width and width.value > 0 else None


def _skipped(facts: Facts, part: str) -> bool:
    """Whether the checkpoint keeps a part unquantised."""
    keys = ("modules_to_not_convert", "ignore", "ignored_layers")
    found = (facts.get(f"config.quantization_config.{key}") for key in keys)
    return any(part in str(f.value) for f in found if f)


def _experts(facts: Facts, width: Quantity, pieces: Quantity, block: Quantity) -> Finding | bool:
    from hybridctl.fit.parallel import expert_share

    becomes = expert_share(width.value, pieces.value, block.value)
    if becomes == "whole":
        return True
    strict = read.engine(facts) == "sglang" or becomes == "refused"
    severity: Severity = "error" if strict else "info"
    return read.finding(
        "expert-width-not-in-blocks",
        f"An expert's share of {width.value}/{pieces.value} is no multiple of the FP8 block {block.value}",
        "parallelism",
        severity,
        f"Tensor parallelism cuts each expert of width {width.value} into {pieces.value} pieces, and a piece of "
        f"{width.value / pieces.value:g} does not hold whole blocks of {block.value} that share one scale. "
        + (
            "The layer is refused when it is built."
            if strict
            else "vLLM's Triton kernel re-tiles it, other expert backends refuse it."
        ),
        [width.evidence, block.evidence, pieces.evidence],
        _keep_experts_whole(facts, pieces),
        _SOURCES,
        "maintainer-confirmed",
        explains=_EXPERT_ENDS if strict else [],
    )


def _nvfp4(facts: Facts, width: Quantity, pieces: Quantity) -> Finding | bool | None:
    is_nvfp4, fact = read.matching(facts, "model.quant", "nvfp4")
    gpu = read.capability(facts)
    if not is_nvfp4 or fact is None or gpu is None or not facts.flags_known():
        return None
    if gpu[1][0] != 12 or read.flag(facts, "moe-backend"):
        return True
    if width.value % (pieces.value * _NVFP4_GROUP) == 0:
        return True
    return read.finding(
        "nvfp4-expert-width-not-in-groups",
        f"An NVFP4 expert's share of {width.value}/{pieces.value} is no multiple of {_NVFP4_GROUP}",
        "parallelism",
        "info" if read.past(facts, "load") else "warning",
        f"On SM12x the CUTLASS kernel for NVFP4 experts lays scales out in groups of {_NVFP4_GROUP}; a share of "
        f"{width.value / pieces.value:g} does not fill them.",
        [width.evidence, pieces.evidence, read.quote(fact), read.quote(gpu[0])],
        [
            *_keep_experts_whole(facts, pieces),
            Fix(
                "Or take the Marlin kernel, which has no such groups.",
                f"vllm serve {facts.value('model.name') or 'MODEL'} --moe-backend marlin",
            ),
        ],
        _SOURCES[2:],
        "maintainer-confirmed",
        explains=["flashnext-nvfp4-tp4-group64"],
    )


def _shared(facts: Facts, width: Quantity, tp: Quantity, block: Quantity) -> Finding | bool | None:
    """The shared expert of Qwen3-Next and Qwen3.5 MoE is an ordinary layer, so tensor parallelism always cuts it."""
    ours, _ = read.is_architecture(facts, "Qwen3_5Moe*", "Qwen3Next*", "qwen3_5_moe*", "qwen3_next*")
    if not ours or _skipped(facts, "shared_expert"):
        return None
    if width.value % (tp.value * block.value) == 0:
        return True
    return _dense_finding(
        facts, "shared-expert-width-not-in-blocks", "shared expert", width, tp, block, _SHARED_SOURCES
    )


def _dense(facts: Facts, width: Quantity, tp: Quantity, block: Quantity) -> Finding | bool | None:
    if facts.value("model.moe") is not False or _skipped(facts, "mlp"):
        return None  # in mixtures the field may describe layers that do not exist
    if width.value % (tp.value * block.value) == 0:
        return True
    return _dense_finding(facts, "mlp-width-not-in-blocks", "feed-forward layer", width, tp, block, _SHARED_SOURCES)


def _dense_finding(
    facts: Facts, id: str, what: str, width: Quantity, tp: Quantity, block: Quantity, source: list[str]
) -> Finding:
    best = next((n for n in (8, 4, 2, 1) if n < tp.value and width.value % (n * block.value) == 0), 1)
    name = facts.value("model.name")
    return read.finding(
        id,
        f"The {what}'s share of {width.value}/{tp.value} is no multiple of the FP8 block {block.value}",
        "parallelism",
        "info" if read.past(facts, "load") else "error",
        f"The {what} is cut over {tp.value} ranks, also under expert parallelism, and {width.value / tp.value:g} columns do not "
        f"hold whole blocks of {block.value}; vLLM and SGLang refuse to build the layer.",
        [width.evidence, tp.evidence, block.evidence],
        [
            Fix(
                f"Use at most {best} tensor-parallel ranks, and data parallelism for the other GPUs.",
                f"vllm serve {name or 'MODEL'} --tensor-parallel-size {best} --data-parallel-size {max(1, tp.value // best)}"
                " --enable-expert-parallel",
            )
        ],
        source,
        "maintainer-confirmed",
        explains=["any-fp8-block-not-divisible", "qwen36-35b-fp8-tp8-shared-expert", "qwen3next-fp8-tp8-sglang"],
    )


def _keep_experts_whole(facts: Facts, pieces: Quantity) -> list[Fix]:
    name = facts.value("model.name") or "MODEL"
    if read.engine(facts) == "sglang":
        return [
            Fix(
                "Give each rank whole experts.",
                f"python3 -m sglang.launch_server --model-path {name} --tp-size {pieces.value} --ep-size {pieces.value}",
            )
        ]
    return [
        Fix(
            "Give each rank whole experts.",
            f"vllm serve {name} --tensor-parallel-size {pieces.value} --enable-expert-parallel",
        )
    ]


def _look(facts: Facts, ranks: Layout) -> list[Finding | bool | None]:
    block = _block(facts)
    experts, shared = _width(facts, "moe_intermediate_size"), _width(facts, "shared_expert_intermediate_size")
    dense = _width(facts, "intermediate_size")
    results: list[Finding | bool | None] = []
    if experts and ranks.experts and block and not read.past(facts, "load"):
        results.append(_experts(facts, experts, ranks.experts, block))
    if experts and ranks.experts:
        results.append(_nvfp4(facts, experts, ranks.experts))
    if ranks.tp and block:
        if shared:
            results.append(_shared(facts, shared, ranks.tp, block))
        if dense:
            results.append(_dense(facts, dense, ranks.tp, block))
    return results


def run(context: Context) -> Outcome:
    facts = context.facts
    ranks = layout(facts)
    if ranks.tp and ranks.tp.value == 1 and (ranks.experts is None or ranks.experts.value == 1):
        return CHECK.not_applicable("nothing is split")
    results = _look(facts, ranks)
    if findings := [r for r in results if isinstance(r, Finding)]:
        return CHECK.found(*findings)
    if True in results:
        return CHECK.ok("the ranks' shares hold whole blocks")
    return CHECK.unknown(
        "flag.tensor-parallel-size, the block size of the checkpoint and its expert or feed-forward width"
    )


CHECK = Check("block-split", "Quantisation blocks against the parallel layout", run)
