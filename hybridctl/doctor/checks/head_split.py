"""Does the tensor-parallel size divide what it has to: attention heads, KV heads, Gated DeltaNet and Mamba heads, vision heads?"""

from __future__ import annotations

from hybridctl.doctor.checks import Check, Context
from hybridctl.doctor.checks import _reading as read
from hybridctl.doctor.checks._parallel import layout
from hybridctl.doctor.checks._reading import Quantity
from hybridctl.doctor.facts.model import Facts
from hybridctl.doctor.findings import Evidence, Finding, Fix, Outcome

# What is cut evenly: the number of heads of each kind, by its names in config.json.
_EVEN = (
    ("attention heads", ("config.num_attention_heads",)),
    ("Gated DeltaNet key heads", ("config.linear_num_key_heads",)),
    ("Gated DeltaNet value heads", ("config.linear_num_value_heads",)),
    ("Mamba heads", ("config.mamba_num_heads", "config.mamba_n_heads")),
)
_SOURCES = [
    "https://github.com/vllm-project/vllm/issues/55517",
    "https://github.com/vllm-project/vllm/blob/v0.33.0/vllm/model_executor/layers/mamba/mamba_mixer2.py",
    "https://github.com/vllm-project/vllm/issues/2652",
]
_COMMON = (1, 2, 4, 8)


def _counts(facts: Facts) -> dict[str, Quantity]:
    found = {name: read.number(facts, keys) for name, keys in _EVEN}
    return {name: q for name, q in found.items() if q and q.value > 0}


def _sees_images(facts: Facts) -> Quantity | None:
    """Heads of the vision tower, unless it is left out or computed whole on each rank."""
    heads = read.number(facts, ("config.vision_config.num_heads", "config.vision_config.num_attention_heads"))
    if read.flag(facts, "language-model-only") or not facts.flags_known():
        return None
    mode = read.flag(facts, "mm-encoder-tp-mode")
    return None if mode and str(mode.value).lower() == "data" else heads


def _bad_even(counts: dict[str, Quantity], tp: int) -> dict[str, Quantity]:
    return {name: q for name, q in counts.items() if q.value % tp}


def _groups_fit(groups: int, tp: int) -> bool:
    return groups == 1 or groups % tp == 0


def run(context: Context) -> Outcome:
    facts = context.facts
    tp = layout(facts).tp
    counts = _counts(facts)
    kv = read.number(facts, ("config.num_key_value_heads",))
    groups = read.number(facts, ("config.mamba_n_groups", "config.n_groups"))
    if tp is None or not (counts or kv):
        return CHECK.unknown("flag.tensor-parallel-size and the head counts of config.json")
    if tp.value == 1:
        return CHECK.not_applicable("one tensor-parallel rank")
    if read.past(facts, "load"):
        return CHECK.not_applicable("the log shows that every layer was built")
    from hybridctl.fit.parallel import kv_heads_fit  # late: without a model and a line, fit is not asked

    vision = _sees_images(facts)
    everything = {**counts, **({"vision heads": vision} if vision and vision.value > 0 else {})}
    problems = _bad_even(everything, tp.value)
    if kv and kv.value > 0 and not kv_heads_fit(kv.value, tp.value):
        problems["KV heads"] = kv
    if groups and groups.value > 0 and counts.get("Mamba heads") and not _groups_fit(groups.value, tp.value):
        problems["Mamba groups"] = groups
    if not problems:
        return CHECK.ok(f"{', '.join([*everything, *(['KV heads'] if kv else [])])} can be split over {tp.value} ranks")
    sizes = [
        n
        for n in _COMMON
        if not _bad_even(everything, n)
        and (kv is None or kv.value < 1 or kv_heads_fit(kv.value, n))
        and (groups is None or groups.value < 1 or _groups_fit(groups.value, n))
    ]
    return CHECK.found(_finding(facts, tp, problems, sizes))


def _finding(facts: Facts, tp: Quantity, problems: dict[str, Quantity], sizes: list[int]) -> Finding:
    what = ", ".join(f"{q.value} {name}" for name, q in problems.items())
    best = max((n for n in sizes if n <= tp.value), default=1)
    name = facts.value("model.name")
    model = str(name) if name else "MODEL"
    sglang = read.engine(facts) == "sglang"
    command = (
        f"python3 -m sglang.launch_server --model-path {model} --tp-size {best}"
        if sglang
        else f"vllm serve {model} --tensor-parallel-size {best}"
    )
    fix = [
        Fix(
            f"Use a size that divides every count: {', '.join(map(str, sizes))}. Further GPUs serve as replicas.",
            command,
        )
    ]
    if set(problems) == {"vision heads"} and not sglang:
        fix.append(
            Fix(
                "Or compute the vision tower whole on each rank; the language model can be split.",
                f"vllm serve {model} --tensor-parallel-size {tp.value} --mm-encoder-tp-mode data",
            )
        )
    return read.finding(
        "tensor-parallel-does-not-divide",
        f"{what} can't be split over {tp.value} ranks",
        "parallelism",
        "info" if read.is_fork(facts) else "error",  # forks and preview builds split unevenly or pad
        "Each tensor-parallel rank takes an equal share of the heads (KV heads may be repeated instead, a single Mamba group too), "
        "so building the first layer that can't be split fails with 'is not divisible by'.",
        [tp.evidence, *(_says(q, tp.value) for q in problems.values())],
        fix,
        _SOURCES,
        "maintainer-confirmed",
        explains=["any-tp-not-divisible", "tp3-vision-or-gdn-heads"],
    )


def _says(quantity: Quantity, tp: int) -> Evidence:
    e = quantity.evidence
    return Evidence(e.fact, e.value, f"a multiple of {tp}", e.origin, e.quote)


CHECK = Check("head-split", "Heads against the tensor-parallel size", run)
