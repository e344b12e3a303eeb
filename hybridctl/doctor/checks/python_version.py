"""Does this Python suit the vLLM release? 0.32 and later need 3.11, 0.8.5 to 0.10.1 stop before 3.13."""

from __future__ import annotations

from hybridctl import tables
from hybridctl.doctor.checks import Check, Context
from hybridctl.doctor.checks import _reading as read
from hybridctl.doctor.findings import Fix, Outcome, Severity
from hybridctl.versions import parse_condition


def run(context: Context) -> Outcome:
    facts = context.facts
    python, vllm = read.version(facts, "platform.python"), read.version(facts, "pkg.vllm")
    release = tables.release(vllm.versions) if vllm else None
    if python is None or vllm is None or release is None or not release.python:
        return CHECK.unknown("platform.python and one vLLM release in pkg.vllm")
    if read.past(facts, "import"):
        return CHECK.not_applicable("the log shows that vLLM was imported")
    suits = python.versions.within(parse_condition(release.python))
    if suits is None:
        return CHECK.unknown("a full platform.python")
    if suits:
        return CHECK.ok(f"Python {python.text} is within {release.python}")
    # A build of one's own may run all the same; pip itself would have refused.
    severity: Severity = "error" if facts.value("command.form") == "pip" else "info"
    return CHECK.found(
        read.finding(
            "python-outside-range",
            f"Python {python.text} is outside what vLLM {vllm.text} allows",
            "config",
            severity,
            f"This release asks for Python {release.python}; pip and uv refuse it elsewhere or fall back to an older release.",
            [python.evidence(release.python), vllm.evidence()],
            [
                Fix(
                    "Make an environment with a Python that fits.",
                    "uv venv --python 3.12 && uv pip install vllm --torch-backend=auto",
                )
            ],
            tables.sources("vllm"),
            "measured",
        )
    )


CHECK = Check("python-version", "Python against the vLLM release", run, phase="import")
