"""Does one request of the maximum length fit beside the weights? vLLM refuses to start when it does not.

Both sides are lower bounds (weights as the name says, keys and values of full-attention layers only), so what is found here
can't start; what is not found may still be too tight, which is the business of ``hybridctl fit``.
"""

from __future__ import annotations

from hybridctl.doctor.checks import Check, Context
from hybridctl.doctor.checks import _reading as read
from hybridctl.doctor.checks._parallel import layout
from hybridctl.doctor.checks._reading import Quantity
from hybridctl.doctor.checks._size import least_weights_gib
from hybridctl.doctor.facts.model import Facts
from hybridctl.doctor.findings import Evidence, Fix, Outcome

_SOURCES = [
    "https://docs.vllm.ai/en/latest/configuration/conserving_memory.html",
    "https://github.com/vllm-project/vllm/blob/v0.33.0/vllm/v1/core/kv_cache_planning.py",
]
# What makes the cache smaller than the plain product, or lets the engine choose the length.
_OTHER_LAYOUTS = (
    "config.kv_lora_rank",
    "flag.decode-context-parallel-size",
    "config.quantization_config.kv_cache_scheme",
)


def _full_layers(facts: Facts) -> int | None:
    """Layers that keep keys and values of every token."""
    layers = read.number(facts, ("config.num_hidden_layers",))
    if layers is None or layers.value < 1:
        return None
    kinds = facts.value("config.layer_types")
    if isinstance(kinds, list):
        return sum(kind == "full_attention" for kind in kinds)
    if every := read.number(facts, ("config.full_attention_interval",)):
        return layers.value // every.value if every.value > 0 else None
    slides = facts.get("config.sliding_window") and str(facts.value("config.use_sliding_window")).lower() != "false"
    if facts.value("model.hybrid") is not False or slides:
        return None
    return layers.value


def _head(facts: Facts) -> int | None:
    if stated := read.number(facts, ("config.head_dim",)):
        return stated.value
    hidden, heads = (read.number(facts, (f"config.{n}",)) for n in ("hidden_size", "num_attention_heads"))
    return hidden.value // heads.value if hidden and heads and heads.value > 0 else None


def _length(facts: Facts) -> Quantity | None:
    flag = read.flag(facts, "max-model-len")
    if flag is not None:
        return read.number(facts, ("flag.max-model-len",))
    return read.number(facts, ("config.max_position_embeddings",)) if facts.flags_known() else None


def _bytes_a_token(facts: Facts, tp: int, pp: int) -> float | None:
    """Bytes that one token takes on one rank."""
    from hybridctl.model.states import DTYPE_BYTES

    layers, head = _full_layers(facts), _head(facts)
    heads = read.number(facts, ("config.num_key_value_heads", "config.num_attention_heads"))
    dtype = read.flag(facts, "kv-cache-dtype")
    width = DTYPE_BYTES.get(str(dtype.value).lower() if dtype and str(dtype.value).lower() != "auto" else "bfloat16")
    if not layers or not head or heads is None or heads.value < 1 or width is None:
        return None
    return 2 * (layers / pp) * max(1.0, heads.value / tp) * head * width


def run(context: Context) -> Outcome:
    facts = context.facts
    if read.engine(facts) not in (None, "vllm"):
        return CHECK.not_applicable("only vLLM asks for room for one whole request")
    if read.past(facts, "kv-cache"):
        return CHECK.not_applicable("the log shows that the cache was made")
    if any(facts.get(key) for key in _OTHER_LAYOUTS) or read.flag(facts, "cpu-offload-gb", "offload-backend"):
        return CHECK.not_applicable("another layout of the cache, or weights kept elsewhere")
    ranks, memory, length = layout(facts), read.amount(facts, "gpu.memory_gib"), _length(facts)
    if ranks.tp is None or ranks.pp is None or memory is None or length is None or length.value < 1:
        return CHECK.unknown("config.json, gpu.memory_gib and the launch line")
    token = _bytes_a_token(facts, ranks.tp.value, ranks.pp.value)
    if token is None:
        return CHECK.unknown("the layers and heads of config.json")
    from hybridctl.fit.rules import DEFAULT_UTILIZATION

    share = read.amount(facts, "flag.gpu-memory-utilization")
    weights = least_weights_gib(facts)
    mine = weights[0] / (ranks.tp.value * ranks.pp.value) if weights else 0.0
    room = memory[0] * (share[0] if share and share[0] <= 1 else DEFAULT_UTILIZATION) - mine
    need = length.value * token / 2**30
    if need <= room or room <= 0:  # weights that do not fit at all are another finding
        return CHECK.ok(f"{need:.1f} GiB for one request, at most {room:.1f} GiB to be had")
    fits = int(room * 0.8 * 2**30 / token) // 1024 * 1024
    name = facts.value("model.name") or "MODEL"
    evidence = [
        Evidence(
            length.evidence.fact, length.evidence.value, f"<={fits}", length.evidence.origin, length.evidence.quote
        ),
        read.quote(memory[1]),
        ranks.tp.evidence,
        *([read.quote(weights[1])] if weights else []),
    ]
    return CHECK.found(
        read.finding(
            "context-larger-than-cache",
            f"One request of {length.value} tokens needs {need:.1f} GiB a GPU, and at most {room:.1f} GiB are left",
            "kv-cache",
            "error",
            f"Keys and values take {token / 1024:.0f} KiB a token on each GPU. With {mine:.1f} GiB of weights "
            f"{room:.1f} GiB of the share remain, and the engine refuses a maximum length that can't be served.",
            evidence,
            [
                Fix("A shorter context.", f"vllm serve {name} --max-model-len {max(fits, 1024)}"),
                Fix("Let the engine choose what fits.", f"vllm serve {name} --max-model-len auto"),
                Fix("Halve the cache with FP8.", f"vllm serve {name} --kv-cache-dtype fp8"),
            ],
            _SOURCES,
            "inferred",
            explains=["any-kv-too-small-for-max-len", "oom-told-in-words", "any-no-memory-for-cache-blocks"],
        )
    )


CHECK = Check("kv-fit", "One request of the maximum length against GPU memory", run)
