"""Does the tool-call parser read what this model writes? A wrong one starts well and loses every call."""

from __future__ import annotations

from typing import Any

from hybridctl.data import read_table
from hybridctl.doctor.checks import Check, Context
from hybridctl.doctor.checks import _reading as read
from hybridctl.doctor.findings import Fix, Outcome
from hybridctl.globs import glob


def _row(name: str, table: dict[str, Any]) -> dict[str, Any] | None:
    plain = name.lower().replace("_", "-")
    rows: list[dict[str, Any]] = table["row"]
    return next((row for row in rows if any(glob(plain, name) for name in row["names"])), None)


def run(context: Context) -> Outcome:
    facts = context.facts
    parser, model = facts.get("flag.tool-call-parser"), facts.get("model.name")
    if parser is None or model is None:
        if parser is None and facts.flags_known():
            return CHECK.not_applicable("no tool-call parser on the launch line")
        return CHECK.unknown("the tool-call parser and the model's name")
    if facts.get("flag.tool-parser-plugin"):
        return CHECK.not_applicable("the parser comes from a plugin")
    table = read_table("tool_parsers.toml")
    row = _row(str(model.value), table)
    if row is None or not row["takes"]:
        return CHECK.not_applicable("no row for this model in tables/tool_parsers.toml")
    given = str(parser.value).strip().lower().replace("-", "_")
    if given in row["takes"]:
        return CHECK.ok(f"{parser.value} reads {row['format']}")
    best = row["takes"][0]
    return CHECK.found(
        read.finding(
            "tool-parser-for-another-model",
            f"--tool-call-parser {parser.value} does not read this model's tool calls",
            "config",
            "warning",
            f"The model writes its calls as {row['format']}; {parser.value} looks for another form. The server starts and answers, "
            "but calls stay in the text, lose their arguments, or raise an error in the parser.",
            [read.quote(parser, " or ".join(row["takes"])), read.quote(model)],
            [
                Fix(
                    "Use the parser of this family.",
                    f"vllm serve {model.value} --enable-auto-tool-choice --tool-call-parser {best}",
                )
            ],
            table["sources"],
            "maintainer-confirmed",
            explains=["said-tool-calls-lost", "said-loops", "said-empty-answer"],
        )
    )


CHECK = Check("tool-parser", "Tool-call parser against the model", run, phase="serving")
