"""Is the installed vLLM the one that was installed? By what its RECORD says of each file."""

from __future__ import annotations

import shlex
from collections.abc import Mapping, Sequence
from typing import Any

from hybridctl.data import read_table
from hybridctl.doctor.checks import Check, Context
from hybridctl.doctor.checks import _reading as read
from hybridctl.doctor.checks._reinstall import reinstall
from hybridctl.doctor.facts.model import Fact, Facts
from hybridctl.doctor.findings import Evidence, Finding, Fix, Outcome

_TOLD = 6


def _run(context: Context) -> Outcome:
    facts = context.facts
    install = facts.value("vllm.install")
    if install is None:
        return _nothing_read(facts)
    owners = facts.all("vllm.distribution")
    findings = [_several(facts, owners)] if len({str(f.value) for f in owners}) > 1 else []
    if install != "wheel":
        where = facts.value("vllm.folder") or "its source"
        return CHECK.not_applicable(f"vLLM is used from {where} ({install}): no RECORD says what its files should be")
    findings += _differences(facts)
    if findings:
        return CHECK.found(*findings)
    problem, unread = facts.value("vllm.record_problem"), facts.value("vllm.record_unread")
    if problem:
        return CHECK.unknown(str(problem))
    if unread:
        return CHECK.unknown(f"a RECORD that can be read: of {unread} files this one tells no size or no hash")
    checked = facts.get("vllm.files_checked")
    return CHECK.ok(checked.origin.quote) if checked else CHECK.unknown("the sizes of the installed files")


def _nothing_read(facts: Facts) -> Outcome:
    looked = any(f.key.startswith("pkg.") and f.origin.source == "local" for f in facts)
    if looked and not facts.has("pkg.vllm"):
        return CHECK.not_applicable("there is no vLLM in this environment")
    return CHECK.unknown("the installed files: hybridctl doctor on that machine, with --python PATH if need be")


def _several(facts: Facts, owners: Sequence[Fact]) -> Finding:
    names = [str(f.value) for f in owners]
    bare = sorted({name.partition("==")[0] for name in names})
    return read.finding(
        "two-vllm-distributions",
        f"{' and '.join(names)} are installed over each other",
        "config",
        "warning",
        "Both bring the package vllm. The one installed last has overwritten files of the other, what it lacks is left over from "
        "the other, and removing one of them takes files of the one that stays.",
        [read.quote(f, "one distribution") for f in owners],
        [Fix(f"Remove {' and '.join(bare)}, then install the one you want.", f"pip uninstall -y {' '.join(bare)}")],
        _source(),
        "measured",
    )


def _differences(facts: Facts) -> list[Finding]:
    found = []
    if changed := facts.get("vllm.files_changed"):
        found.append(
            _finding(
                facts,
                "vllm-files-changed",
                "Files of the installed vLLM were changed after it was installed",
                changed,
                "as recorded",
                "What runs is no longer the release that its version names: what is known of that release may not hold, and a "
                "report of a fault will be asked to repeat it without the changes. A change that is needed belongs into a plugin "
                "(entry point vllm.general_plugins), which survives an update.",
                [reinstall(facts)],
            )
        )
    if missing := facts.get("vllm.files_missing"):
        found.append(
            _finding(
                facts,
                "vllm-files-missing",
                "Files of the installed vLLM are missing",
                missing,
                "there",
                "They were there when it was installed. An installation that broke off, a full disk or an image that was made "
                "smaller leaves such holes, and an import ends at the first one.",
                [reinstall(facts)],
            )
        )
    added = facts.get("vllm.files_added")
    if added is not None and isinstance(added.value, list):
        found += _added(facts, added, added.value)
    return found


def _added(facts: Facts, fact: Fact, paths: list[str]) -> list[Finding]:
    found, rest = [], paths
    for module, row in read_table("vllm_record.toml")["foreign"].items():
        own = [path for path in rest if _below(path, row["folder"])]
        rest = [path for path in rest if path not in own]
        if own:
            found.append(_foreign(facts, Fact(fact.key, own, fact.origin), module, row))
    if rest:
        found.append(_left_over(facts, Fact(fact.key, rest, fact.origin)))
    return found


def _below(path: str, folder: str) -> bool:
    """Whether a path as the collector writes it is that folder (a link), the module of that name, or in it."""
    return path.startswith((f"{folder}/", f"{folder}.", f"{folder} ("))


def _foreign(facts: Facts, fact: Fact, module: str, row: Mapping[str, Any]) -> Finding:
    target = f"{facts.value('vllm.folder') or 'vllm'}/{row['folder'].partition('/')[2]}"
    id = f"{module.replace('.', '-')}-by-hand"
    return _finding(
        facts,
        id,
        f"{module} was put into the installed vLLM by hand",
        fact,
        "not there",
        f"No release of vLLM that was looked at has {module}, and nothing in them calls it: such a folder is used only where other "
        "files were edited as well. The next update of vLLM loses those edits and leaves the folder. hybridctl's dispatcher is a "
        "plugin and needs no file in there.",
        [Fix("Move it out of the package.", f"mv {shlex.quote(target)} {id}"), reinstall(facts)],
        row["source"],
    )


def _left_over(facts: Facts, fact: Fact) -> Finding:
    folder = str(facts.value("vllm.folder") or "vllm")
    return _finding(
        facts,
        "vllm-files-added",
        "The installed vLLM holds code that did not come with it",
        fact,
        "not there",
        "Somebody put it there, or an older installation left it behind: installers remove only what their RECORD lists, so that a "
        "module which was dropped upstream may still be imported.",
        [
            Fix(
                "Take the package's folder away, then install the same build again.",
                f"mv {shlex.quote(folder)} vllm-before && {reinstall(facts).command}",
            )
        ],
    )


def _finding(
    facts: Facts,
    id: str,
    title: str,
    fact: Fact,
    expected: str,
    cause: str,
    fixes: list[Fix],
    source: Sequence[str] = (),
) -> Finding:
    lines = fact.value if isinstance(fact.value, list) else [str(fact.value)]
    shown = "; ".join(lines[:_TOLD]) + (f"; and {len(lines) - _TOLD} more" if len(lines) > _TOLD else "")
    told = [Evidence(fact.key, shown, expected, str(fact.origin), fact.origin.quote)]
    told += [read.quote(f) for f in facts.all("vllm.distribution")]
    return read.finding(id, title, "config", "warning", cause, told, fixes, source or _source(), "measured")


def _source() -> list[str]:
    return list(read_table("vllm_record.toml")["source"])


CHECK = Check("vllm-files", "The files of the installed vLLM", _run, phase="import")
