"""Make a suggested launch line whole: the flags that the user gave and that are not at fault stay on it."""

from __future__ import annotations

from hybridctl.doctor.facts.model import Facts
from hybridctl.doctor.findings import Finding, Fix
from hybridctl.patterns import late

_SERVE = late(r"^vllm serve \S+(?: |$)")
_FLAG = late(r"--(?:no-)?([a-z][\w-]*)")
# "Leave --quantization out": a log line blamed the flag, so no fact of the evidence names it.
_LEFT_OUT = late(r"(?i)\bleave --([a-z][\w-]*)")
# The model stands in the command already; a plain quote is one that a shell can take back as it is.
_SAFE = late(r"--?[\w.-]+(?:[ =](?:'[^'\n]*'|[\w./:,+-]+))?")


def complete(finding: Finding, facts: Facts) -> None:
    """Carry the rest of the user's flags over to each ``vllm serve`` line of the fix."""
    if facts.value("engine") != "vllm" or facts.value("command.form") not in ("serve", "module"):
        return
    blamed = {item.fact.split(".")[1] for item in finding.evidence if item.fact.startswith("flag.")}
    finding.fix = [Fix(f.text, _carry(f.command, blamed | set(_LEFT_OUT.findall(f.text)), facts)) for f in finding.fix]


def _carry(command: str | None, blamed: set[str], facts: Facts) -> str | None:
    if not command or "\n" in command or not _SERVE.match(command):
        return command
    present = set(_FLAG.findall(command)) | blamed | {"model"}
    kept: dict[str, None] = {}
    for fact in facts:
        if fact.origin.source == "command" and fact.key.startswith("flag."):
            name = fact.key.split(".")[1]
            if name not in present and _SAFE.fullmatch(fact.origin.quote):
                kept[fact.origin.quote] = None
    return " ".join([command, *kept])
