"""Is the module of ``python -m`` in the vLLM that is started, and is it the server that was meant?"""

from __future__ import annotations

from typing import TYPE_CHECKING

from hybridctl.doctor.checks import Check, Context
from hybridctl.doctor.checks import _reading as read
from hybridctl.doctor.findings import Fix, Outcome

if TYPE_CHECKING:
    from hybridctl.flags import Module


def _run(context: Context) -> Outcome:
    facts = context.facts
    named = facts.get("command.module")
    if named is None:
        if facts.get("command.form") is None:
            return CHECK.unknown("the launch line of the engine")
        return CHECK.not_applicable("the engine is not started with python -m")
    if not str(named.value).startswith("vllm."):
        return CHECK.not_applicable(f"{named.value} is no module of vLLM")
    if read.past(facts, "import"):
        return CHECK.not_applicable("the log shows that the module was found")
    from hybridctl.flags import modules

    module = modules().get(str(named.value))
    if module is None:
        return CHECK.unknown(f"which releases have {named.value}")
    have = read.version(facts, "pkg.vllm")
    if have is None:
        return CHECK.unknown(f"the version of vLLM, to tell whether it has {module.name}")
    held = module.window.holds(have.versions)
    if held is None:
        return CHECK.unknown(f"whether vLLM {have.text} has {module.name}: it is no release that was looked at")
    if held:
        return CHECK.ok(f"vLLM {have.text} has {module.name}. {module.note}".rstrip())
    gone = bool(module.gone) and have.within(f">={module.gone}") is True
    return CHECK.found(
        read.finding(
            "module-removed" if gone else "module-too-new",
            f"vLLM {have.text} has no module {module.name}",
            "config",
            "error",
            _cause(module, have.text, gone),
            [read.quote(named, "a module of this release"), have.evidence()],
            _fixes(module, str(facts.value("model.name") or "MODEL"), gone),
            module.source,
            "measured",
        )
    )


def _cause(module: Module, have: str, gone: bool) -> str:
    if gone:
        return (
            f"{module.name} is in releases up to {module.window.last} and not in {module.gone}. {module.note}".rstrip()
        )
    return f"{module.name} came with {module.window.first}; vLLM {have} is older."


def _fixes(module: Module, model: str, gone: bool) -> list[Fix]:
    if gone:
        return [Fix("Start the OpenAI-compatible server instead.", f"vllm serve {model}")]
    return [Fix(f"Upgrade vLLM to {module.window.first} or newer, or use vllm serve.", f"vllm serve {model}")]


CHECK = Check("launch-module", "Module of the launch line", _run, phase="import")
