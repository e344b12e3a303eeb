"""Do the flags suit the large blocks that recurrent state forces on a hybrid model?

One attention page must hold at least one state, so the block grows to hundreds or thousands of tokens. From 0.16 until 0.27.1 vLLM
refused a prefill budget below one block when prefix caching was on; prefix caching needs chunked prefill in every release.
"""

from __future__ import annotations

from hybridctl.doctor.checks import Check, Context
from hybridctl.doctor.checks import _reading as read
from hybridctl.doctor.checks._parallel import layout
from hybridctl.doctor.facts.model import Facts
from hybridctl.doctor.findings import Evidence, Finding, Fix, Outcome, Severity

_SOURCES = [
    "https://github.com/vllm-project/vllm/pull/34445",
    "https://github.com/vllm-project/vllm/blob/v0.33.0/vllm/model_executor/models/config.py",
]
_NUMBERS = (
    "linear_num_value_heads", "linear_num_key_heads", "linear_value_head_dim", "linear_key_head_dim", "linear_conv_kernel_dim",
    "num_key_value_heads", "head_dim",
)  # fmt: skip


def aligned_block(facts: Facts) -> int | None:
    """Tokens of one attention block of a Gated DeltaNet hybrid on a GPU, by fit's rules; ``None`` when a number is missing."""
    from hybridctl.fit.blocks import align
    from hybridctl.model.plan import Attention
    from hybridctl.model.states import NotDivisible, state_shape

    numbers = {name: read.number(facts, (f"config.{name}",)) for name in _NUMBERS}
    text = {name: q.value for name, q in numbers.items() if q and q.value > 0}
    ranks, drafts, state, cache = layout(facts).tp, _draft_tokens(facts), _state_dtype(facts), _cache_bytes(facts)
    shape = state_shape(text, "gdn", [])
    if ranks is None or drafts is None or state is None or cache is None or shape is None or len(text) < len(_NUMBERS):
        return None
    attention = Attention(text["num_key_value_heads"], text["head_dim"], text["head_dim"])
    try:
        page = sum(shape.bytes(ranks.value, drafts, "bfloat16", state))
    except NotDivisible:
        return None  # another check says so
    return align(page, attention.numbers_a_token(ranks.value) * cache).block


def _draft_tokens(facts: Facts) -> int | None:
    if drafts := read.number(facts, ("flag.speculative-config.num_speculative_tokens",)):
        return drafts.value
    return 0 if facts.flags_known() and not facts.has("flag.speculative") else None


def _state_dtype(facts: Facts) -> str | None:
    """The dtype of the recurrent state: by the flag, by the config, else the model's own, which has 16 bits."""
    from hybridctl.model.states import DTYPE_BYTES

    flag = read.flag(facts, "mamba-ssm-cache-dtype")
    asked = str(flag.value if flag else "auto").lower()
    stated = facts.get("config.mamba_ssm_dtype")
    if asked == "auto":
        asked = str(stated.value).lower() if stated else "bfloat16"
    return asked if asked in DTYPE_BYTES else None


def _cache_bytes(facts: Facts) -> int | None:
    flag = read.flag(facts, "kv-cache-dtype")
    text = str(flag.value if flag else "auto").lower()
    return 1 if text.startswith("fp8") else 2 if text in ("auto", "bfloat16", "float16") else None


def _prefix_caching(facts: Facts) -> tuple[bool | None, Evidence | None]:
    """On when it is asked for, and by default on hybrids from 0.27.1."""
    on, says = read.switch(facts, "enable-prefix-caching")
    if on is not None or says is None:
        return on, says
    vllm = read.version(facts, "pkg.vllm")
    if vllm and vllm.within(">=0.27.1"):
        return True, vllm.evidence("prefix caching is on by default")
    return (False, says) if vllm and vllm.within("<=0.17.0") else (None, says)


def _budget(facts: Facts, on: Evidence) -> Finding | bool | None:
    vllm = read.version(facts, "pkg.vllm")
    budget = read.number(facts, ("flag.max-num-batched-tokens",))
    block = aligned_block(facts)
    if vllm is None or budget is None or block is None:
        return None
    refuses = vllm.within(">=0.16,<0.27.1")
    if refuses is None:
        return None
    if not refuses or budget.value >= block:
        return True
    severity: Severity = "error" if vllm.within("==0.17.0") else "warning"
    return read.finding(
        "align-block-gt-max-batched-tokens",
        f"The prefill budget of {budget.value} tokens is below one block of {block}",
        "kv-cache",
        severity,
        f"With prefix caching a prefill of this hybrid model advances by whole blocks of {block} tokens (its recurrent state sets "
        "that size). A smaller budget can never schedule one, and vLLM refuses it.",
        [
            Evidence(
                budget.evidence.fact, budget.evidence.value, f">={block}", budget.evidence.origin, budget.evidence.quote
            ),
            vllm.evidence("<0.16 or >=0.27.1"),
            on,
        ],
        [
            Fix(
                "Give at least one block, better two.",
                f"vllm serve {facts.value('model.name') or 'MODEL'} --max-num-batched-tokens {2 * block}",
            ),
            Fix("Or upgrade: 0.27.1 lifted the limit.", "uv pip install -U 'vllm>=0.27.1'"),
        ],
        _SOURCES[:1],
        "maintainer-confirmed",
    )


def _chunked(facts: Facts, on: Evidence) -> Finding | bool | None:
    vllm = read.version(facts, "pkg.vllm")
    chunked, says = read.switch(facts, "enable-chunked-prefill", default=True)
    if chunked is None or says is None or vllm is None or not vllm.within(">=0.16"):
        return None
    if not on.fact.startswith("flag."):
        return True  # where caching is only the default, vLLM may drop it by itself
    if chunked:
        return True
    return read.finding(
        "prefix-caching-needs-chunked-prefill",
        "Prefix caching of a hybrid model needs chunked prefill",
        "config",
        "error",
        "The recurrent state is saved where one chunk of a prefill ends, so without chunked prefill there is nothing to save, and "
        "the start is refused.",
        [says, on, vllm.evidence()],
        [
            Fix(
                "Leave chunked prefill on.",
                f"vllm serve {facts.value('model.name') or 'MODEL'} --enable-chunked-prefill",
            ),
            Fix(
                "Or switch prefix caching off.",
                f"vllm serve {facts.value('model.name') or 'MODEL'} --no-enable-prefix-caching",
            ),
        ],
        _SOURCES[1:],
        "maintainer-confirmed",
    )


def run(context: Context) -> Outcome:
    facts = context.facts
    hybrid = facts.value("model.hybrid")
    if hybrid is False or read.engine(facts) not in (None, "vllm"):
        return CHECK.not_applicable("no hybrid model in vLLM")
    if hybrid is None:
        return CHECK.unknown("the layers of the model")
    if read.past(facts, "kv-cache"):
        return CHECK.not_applicable("the log shows that the caches were set up")
    on, says = _prefix_caching(facts)
    if on is None or says is None:
        return CHECK.unknown("the launch line, and pkg.vllm for its default")
    if not on:
        return CHECK.not_applicable("prefix caching is off")
    results = [_budget(facts, says), _chunked(facts, says)]
    if findings := [r for r in results if isinstance(r, Finding)]:
        return CHECK.found(*findings)
    if True in results:
        return CHECK.ok("budget and chunking suit the block size")
    return CHECK.unknown("pkg.vllm and the launch line")


CHECK = Check("state-block", "Block size of hybrid models against budget and chunking", run)
