"""Does ``--quantization`` name the method in which the checkpoint is stored? The engine refuses any other."""

from __future__ import annotations

from hybridctl.doctor.checks import Check, Context
from hybridctl.doctor.checks import _reading as read
from hybridctl.doctor.facts.model import Fact, Facts
from hybridctl.doctor.findings import Fix, Outcome

# Values of the flag and of quant_method that mean one storage. What is not listed (kernels for several formats, plugins of
# other hardware, names that later releases gave) is not judged.
_STORED = {
    "awq": "awq", "awq_marlin": "awq", "gptq": "gptq", "gptq_marlin": "gptq", "fp8": "fp8",
    "compressed-tensors": "compressed-tensors", "compressed_tensors": "compressed-tensors", "bitsandbytes": "bitsandbytes",
    "modelopt": "modelopt", "modelopt_fp4": "modelopt",
}  # fmt: skip
# Methods that quantise full weights while they are loaded; the others need a checkpoint that is stored so.
_ON_THE_FLY = {"fp8", "bitsandbytes"}
_SOURCES = ["https://github.com/vllm-project/vllm/issues/5842", "https://github.com/vllm-project/vllm/issues/19050"]


def _stored(facts: Facts) -> tuple[Fact, str] | None:
    """What says how the weights are stored, and the method; ``none`` for a whole config.json without a quantisation."""
    if method := facts.get("config.quantization_config.quant_method"):
        known = _STORED.get(str(method.value).lower())
        return (method, known) if known else None
    said = facts.get("model.quant")
    if said is None or not isinstance(said.value, list):
        return None
    if said.value == ["none"]:
        return said, "none"
    # A name with AWQ or GPTQ in it may hold compressed-tensors, never the other of the two and never full weights.
    named = [q for q in said.value if q in ("awq", "gptq")]
    return (said, named[0]) if len(named) == 1 and said.origin.source == "model" else None


def run(context: Context) -> Outcome:
    facts = context.facts
    flag = facts.get("flag.quantization")
    if read.engine(facts) not in (None, "vllm", "sglang"):
        return CHECK.not_applicable("another engine")
    if flag is None:
        if facts.flags_known():
            return CHECK.not_applicable("no --quantization")
        return CHECK.unknown("the launch line")
    asked, stored = _STORED.get(str(flag.value).lower()), _stored(facts)
    if asked is None or stored is None:
        return CHECK.unknown("a --quantization and a quant_method that can be compared")
    said, method = stored
    named = said.origin.source == "model"
    if (
        asked == method
        or (method == "none" and asked in _ON_THE_FLY)
        or (named and asked in ("compressed-tensors", "modelopt"))
    ):
        return CHECK.ok(f"--quantization {flag.value} suits weights stored as {method}")
    if read.past(facts, "config"):
        return CHECK.not_applicable("the log shows that the configuration was accepted")
    model = str(facts.value("model.name") or "MODEL")
    start = (
        f"python -m sglang.launch_server --model-path {model}"
        if read.engine(facts) == "sglang"
        else f"vllm serve {model}"
    )
    what = "are not quantised" if method == "none" else f"are stored as {method}"
    return CHECK.found(
        read.finding(
            "quant-flag-mismatch",
            f"--quantization {flag.value} for weights that {what}",
            "quantization",
            "error",
            "The flag does not convert a checkpoint from one format to another: the engine compares it with config.json and "
            "stops. Only fp8 and bitsandbytes quantise full weights while they are loaded.",
            [read.quote(flag, method), read.quote(said)],
            [
                Fix("Leave --quantization out; the engine reads the method from config.json.", start),
                Fix(f"Or take a checkpoint that is stored as {asked}.", None),
            ],
            _SOURCES,
            "maintainer-confirmed",
            explains=["quant-flag-not-of-checkpoint", "config-validation-error"],
        )
    )


CHECK = Check("quant-flag", "--quantization against the checkpoint", run, phase="config")
