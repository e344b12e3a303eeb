"""Whatever people paste about a machine, as facts."""

from __future__ import annotations

import json
from collections.abc import Iterable

from hybridctl.doctor.facts import collect_env, env_vars, gpu_lines, hf_env, loose, nvidia_smi, pip_list, remarks
from hybridctl.doctor.facts.clean import clean_lines
from hybridctl.doctor.facts.gpu_facts import gpu_statements
from hybridctl.doctor.facts.model import Facts, Origin
from hybridctl.doctor.facts.statements import STATED, Statement

_PARSERS = (
    collect_env.parse,
    nvidia_smi.parse,
    gpu_lines.parse,
    pip_list.parse,
    hf_env.parse,
    env_vars.parse,
    loose.parse,
    remarks.parse,
)


def parse_env_text(text: str, source: str = "env") -> Facts:
    """The facts of a paste: our own facts JSON, or any mixture of collect_env, nvidia-smi, lists of packages, loose lines.

    What the text states comes first, in its order; what follows from a name (CUDA of ``+cu129``, memory of a GPU) is
    added only where nothing states it. Two different statements of one key stay both; the first one counts.

    Args:
        text: any text. What can't be read says nothing; this never raises.
        source: the input that it came from, for the origin of each fact.
    """
    own = _own_document(text)
    if own is not None:
        return own
    lines = clean_lines(text)
    statements: list[Statement] = []
    for parse in _PARSERS:
        found = parse(lines)
        statements += found.statements
        for listing in found.gpus:
            statements += gpu_statements(listing)
    facts = Facts()
    for s in _that_count(statements):
        facts.add(s.key, s.value, Origin(source, s.line, s.quote))
    return facts


def _own_document(text: str) -> Facts | None:
    text = text.lstrip("\ufeff \t\r\n")
    if not text.startswith("{") or '"schema_version"' not in text:
        return None
    try:
        return Facts.from_json(json.loads(text))
    except (ValueError, RecursionError):
        return None  # some other program's JSON, or a part of ours: its lines may still say something


def _that_count(statements: Iterable[Statement]) -> list[Statement]:
    ordered = sorted(statements, key=lambda s: (s.rank, s.line))
    best: dict[str, int] = {}
    kept: list[Statement] = []
    seen: set[tuple[str, str, str]] = set()
    for s in ordered:
        if s.rank > best.setdefault(s.key, s.rank) >= STATED:
            continue
        if (s.key, repr(s.value), s.quote) in seen:
            continue
        seen.add((s.key, repr(s.value), s.quote))
        kept.append(s)
    return kept
