"""Writes the table of docs/audit.md that says what vLLM does with each fault, from what ``in_vllm.py`` has recorded.

python tests/data/audit/table.py         # write it
python tests/data/audit/table.py --show  # print it
"""

from __future__ import annotations

import json
import re
import sys
from pathlib import Path
from typing import Any

HERE = Path(__file__).parent
RECORDED = HERE / "vllm-0.32.0.json"
DOCUMENT = HERE.parents[2] / "docs/audit.md"
BEGIN, END = "<!-- table.py: begin -->\n", "<!-- table.py: end -->\n"
_WHEN = {
    "configuration": "reading the configuration", "building": "building the model", "loading": "loading weights",
    "first pass": "after loading, first pass", "caches": "after loading, caches", "answering": "answering",
    "unknown": "not known",
}  # fmt: skip
_LONGEST = 150
_WRAPPED = re.compile(r"1 validation error for \w+ Value error, ")


def verdict(row: dict[str, Any]) -> tuple[str, str, str]:
    """Caught or silent, when, and with which words or what effect."""
    if row["verdict"] == "caught":
        text = _WRAPPED.sub("", row["message"]).replace("|", "\\|").replace("`", "'")
        return "caught", _WHEN[row["stage"]], f"`{text if len(text) <= _LONGEST else text[: _LONGEST - 1] + '…'}`"
    if row["way"] == "configuration":
        return "silent", "", "the configuration is read without a word; more was not asked"
    other, told = row["other_parameters"], f"{row['other_parameters']} of {row['parameters']} parameters are others"
    weights = told if other else "all parameters are as they should be"
    answer = {"differs": "; the answer differs", "the same": "; the same answer"}.get(row.get("answer", ""), "")
    answer = answer or ("; no answer asked" if other else "")
    warned = f"; a warning: `{row['warnings'][0].replace('|', ' ')[:_LONGEST]}`" if row["warnings"] else ""
    return "silent", "", weights + answer + warned


def table(recorded: dict[str, Any]) -> str:
    """The table in Markdown."""
    lines = ["| fault | the audit says | vLLM | when | its words, or what it serves |", "|---|---|---|---|---|"]
    for name, row in recorded["faults"].items():
        lines.append(f"| {name} ({row['family']}) | `{row['id']}` | {' | '.join(verdict(row))} |")
    silent = [row for row in recorded["faults"].values() if row["verdict"] == "silent"]
    differs = sum(row.get("answer") == "differs" for row in silent)
    about = (
        f"Recorded {recorded['made']} with vLLM {recorded['vllm']} (torch {recorded['torch']}, transformers"
        f" {recorded['transformers']}, Python {recorded['python']}, {recorded['machine']}):"
        f" {len(recorded['faults'])} faults, {len(recorded['faults']) - len(silent)} caught, {len(silent)} silent,"
        f" {differs} of those with another answer.\n\n"
    )
    return about + "\n".join(lines) + "\n"


def page(text: str, made: str) -> str:
    """The document with the table in it.

    Raises:
        ValueError: the document has no place for it.
    """
    before, rest = text[: text.index(BEGIN)], text[text.index(END) :]
    return before + BEGIN + made + rest


if __name__ == "__main__":
    made = table(json.loads(RECORDED.read_text("utf-8")))
    if "--show" in sys.argv:
        print(made)
    else:
        DOCUMENT.write_text(page(DOCUMENT.read_text("utf-8"), made), "utf-8")
