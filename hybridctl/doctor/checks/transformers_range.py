"""Is transformers within the range that the vLLM release asks for?"""

from __future__ import annotations

from hybridctl import tables
from hybridctl.doctor.checks import Check, Context
from hybridctl.doctor.checks import _reading as read
from hybridctl.doctor.checks._reading import Reading
from hybridctl.doctor.facts.model import Facts
from hybridctl.doctor.findings import Fix, Outcome, Severity
from hybridctl.versions import parse_condition

_SOURCES = [
    "https://github.com/rllm-org/rllm/issues/388",
    "https://github.com/modelscope/ms-swift/issues/8305",
]


def _judge(facts: Facts, vllm: Reading, transformers: Reading, wanted: str) -> tuple[Severity, str]:
    """How loud, and why. Upper bounds from 0.31 on are cautious; the step from transformers 4 to 5 broke what came before."""
    oldest = next(clause for clause in wanted.split(",") if clause.startswith(">="))
    if transformers.within(">=5"):
        if vllm.within("<0.17"):
            return (
                "error",
                "transformers 5 removed tokenizer functions that this release calls (all_special_tokens_extended).",
            )
        qwen35, _ = read.is_architecture(facts, "Qwen3_5*", "qwen3_5*")
        if qwen35 and vllm.within(">=0.17,<0.19"):
            return (
                "error",
                "This release hands transformers 5 a list where it wants a set, and Qwen3.5 ends in \"'list' and 'set'\".",
            )
        if vllm.within("<0.19.1"):
            return (
                "warning",
                "This release was made for transformers 4; transformers 5 renamed and removed what it relies on.",
            )
        if vllm.within(">=0.31") and transformers.within(oldest):
            return "info", "The bound says how far this release was tested, not that newer ones fail."
    return "warning", "Model configurations and processors that this release relies on came later or have changed."


def run(context: Context) -> Outcome:
    facts = context.facts
    vllm, transformers = read.version(facts, "pkg.vllm"), read.version(facts, "pkg.transformers")
    release = tables.release(vllm.versions) if vllm else None
    if vllm is None or transformers is None or release is None or not release.transformers:
        return CHECK.unknown("pkg.transformers and one vLLM release in pkg.vllm")
    wanted = release.transformers
    within = transformers.versions.within(parse_condition(wanted))
    if transformers.versions.exact and transformers.versions.exact.is_devrelease and within is False:
        within = None  # a build from source of unknown day
    # Without an upper bound pip takes a transformers 5 that releases before 0.19.1 never saw.
    if within and vllm.within("<0.19.1") and transformers.within(">=5"):
        within, wanted = False, f"{wanted},<5"
    if within is None:
        return CHECK.unknown("one transformers release")
    if within:
        return CHECK.ok(f"transformers {transformers.text} is within {wanted}")
    if read.past(facts, "load"):
        return CHECK.not_applicable("the log shows that the model was built")
    severity, why = _judge(facts, vllm, transformers, wanted)
    if not vllm.is_release and severity != "info":
        severity = "info"
    return CHECK.found(
        read.finding(
            "transformers-outside-range",
            f"transformers {transformers.text} is outside what vLLM {vllm.text} asks for",
            "transformers-mismatch",
            severity,
            f"vLLM {vllm.text} asks for transformers {wanted}. {why}",
            [transformers.evidence(wanted), vllm.evidence()],
            [
                Fix("Install a transformers within the range.", f"uv pip install 'transformers{wanted}'"),
                Fix("Or let a newer vLLM bring its own.", "uv pip install -U vllm --torch-backend=auto"),
            ],
            _SOURCES,
            "measured",
            explains=["transformers5-with-old-vllm", "rope-ignore-keys-list-and-set", "qwen35-rope-set-minus-list"],
        )
    )


CHECK = Check("transformers-range", "transformers against the vLLM release", run, phase="config")
