"""Does code that comes with the checkpoint import a part of vLLM that is in no release?"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from hybridctl.data import read_table
from hybridctl.doctor.checks import Check, Context
from hybridctl.doctor.checks import _reading as read
from hybridctl.doctor.facts.model import Fact, Facts
from hybridctl.doctor.findings import Evidence, Finding, Fix, Outcome, Severity


def _run(context: Context) -> Outcome:
    facts = context.facts
    imported = facts.all("model.vllm_imports")
    foreign: Mapping[str, Any] = read_table("vllm_record.toml")["foreign"]
    findings = []
    for module, row in foreign.items():
        hits = [f for f in imported if isinstance(f.value, list) and any(_of(name, module) for name in f.value)]
        if hits:
            findings.append(_finding(facts, module, hits, row["source"]))
    if findings:
        return CHECK.found(*findings)
    files = facts.get("model.code_files")
    if files is not None and isinstance(files.value, list):
        return CHECK.ok(f"nothing in {', '.join(files.value)} imports {', '.join(foreign)}")
    if facts.has("config.auto_map"):
        return CHECK.unknown(
            "the Python files that auto_map names: a local folder, or a model in the Hugging Face cache"
        )
    if facts.get("model.architecture") is None or not any(f.origin.source == "config" for f in facts):
        return CHECK.unknown("the model's config.json and the Python files beside it")
    return CHECK.not_applicable("the checkpoint names no code of its own")


def _of(name: str, module: str) -> bool:
    return name == module or name.startswith(f"{module}.")


def _finding(facts: Facts, module: str, hits: list[Fact], source: list[str]) -> Finding:
    model = str(facts.value("model.name") or "MODEL")
    # The configuration is read in every start with --trust-remote-code; the model's own class only where vLLM has none.
    always = any(f.origin.quote.startswith("configuration") for f in hits)
    severity: Severity = "error" if always and read.flag(facts, "trust-remote-code") else "warning"
    return read.finding(
        f"checkpoint-imports-{module.replace('.', '-')}",
        f"Code of the checkpoint imports {module}, which vLLM does not have",
        "arch-unknown",
        severity,
        f"No release of vLLM that was looked at has {module}, and no optional dependency brings it: where this code is executed "
        f"it ends in \"No module named '{module}'\". A model that vLLM serves natively does not need the code at all.",
        [
            Evidence(
                f.key,
                str(f.value[0]) if isinstance(f.value, list) else "",
                "a module of vLLM",
                str(f.origin),
                f.origin.quote,
            )
            for f in hits
        ],
        [
            Fix("See whether the installed vLLM knows the class without that code.", f"hybridctl doctor {model}"),
            Fix(
                "Start it without --trust-remote-code; hybridctl's dispatcher is a plugin and reads hybrid_config itself.",
                f"hybridctl serve {model} --print",
            ),
        ],
        source,
        "measured",
    )


CHECK = Check("checkpoint-code", "Code that comes with the checkpoint", _run, phase="config")
