"""Does the vLLM that is started take these flags? By what released wheels define.

A flag that no release takes is wrong in any version. One that is newer or older than the stated release needs that statement; a
fork, a nightly or another image may take what no release does, and then nothing is said.
"""

from __future__ import annotations

from hybridctl.doctor.checks import Check, Context
from hybridctl.doctor.checks import _reading as read
from hybridctl.doctor.findings import Outcome

_FORMS = {"serve", "module", "docker", "compose", "kubernetes"}
_SERVER_MODULES = ("vllm.entrypoints.openai.api_server", "vllm.entrypoints.cli.main", "vllm.entrypoints.api_server")


def _run(context: Context) -> Outcome:
    facts = context.facts
    form = facts.value("command.form")
    if form is None or read.engine(facts) is None:
        return CHECK.unknown("the launch line of the engine")
    if read.engine(facts) != "vllm" or form not in _FORMS:
        return CHECK.not_applicable("no vLLM server is started by this line")
    module = facts.value("command.module")
    if module is not None and module not in _SERVER_MODULES:
        return CHECK.not_applicable(f"{module} has flags of its own")
    if read.past(facts, "config"):
        return CHECK.not_applicable("the log shows that the flags were accepted")
    from hybridctl.doctor.checks import _flag_faults as faults  # the tables of flags are of no use without a line

    written = faults.written_flags(facts)
    have = read.version(facts, "pkg.vllm")
    findings = [f for f in (faults.unknown(written, facts, have), *faults.wrong_release(written, have)) if f]
    if findings:
        return CHECK.found(*findings)
    if have is None:
        return CHECK.unknown("the version of vLLM, to tell whether it takes each flag")
    if any(flag.window is None or flag.window.holds(have.versions) is None for flag in written):
        return CHECK.unknown(f"whether vLLM {have.text} takes each flag: it is no release that was looked at")
    return CHECK.ok(f"{len(written)} flags, all taken by vLLM {have.text}")


CHECK = Check("launch-flags", "Flags of the launch line", _run, phase="config")
