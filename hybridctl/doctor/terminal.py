"""A diagnosis for people, at 80 columns and up."""

from __future__ import annotations

from typing import TYPE_CHECKING

from rich.table import Table
from rich.text import Text

from hybridctl.doctor.diagnose import Diagnosis
from hybridctl.doctor.facts.model import Facts
from hybridctl.doctor.fields import fields, whole
from hybridctl.doctor.findings import Evidence, Finding
from hybridctl.doctor.knowledge import LINE, load
from hybridctl.doctor.report import _plural, counts, subject
from hybridctl.kernels import OLDEST
from hybridctl.output import plain

if TYPE_CHECKING:
    from rich.console import RenderableType

    from hybridctl.doctor.install_line import Install

_STYLE = {"error": "bold red", "warning": "bold yellow", "info": "cyan"}
_MAX_QUOTE = 300
_MAX_STATED = 60


def render(diagnosis: Diagnosis, verbose: bool = False) -> list[RenderableType]:
    """The view, as things that a rich console prints. All foreign text is :class:`~rich.text.Text`, never markup."""
    out: list[RenderableType] = [_headline(diagnosis)]
    if any(f.origin.source == "local" for f in diagnosis.facts):
        out += ["", _machine(diagnosis)]
    loud = [f for f in diagnosis.findings if f.severity != "info"]
    quiet = [f for f in diagnosis.findings if f.severity == "info"]
    for number, finding in enumerate(loud, 1):
        out += ["", *_finding(number, finding, verbose)]
    if quiet:
        out += ["", Text("For information", style="bold")]
        for finding in quiet:
            out += _information(finding, verbose)
    if diagnosis.install:
        out += ["", *_install(diagnosis.install)]
    if diagnosis.log and len(diagnosis.log.phases) > 1:
        out += ["", _phases(diagnosis)]
    out += ["", *_closing(diagnosis, verbose)]
    return out


def _headline(diagnosis: Diagnosis) -> Text:
    about = subject(diagnosis)
    gpus = about["gpus"]
    unique = list(dict.fromkeys(gpus))
    parts = [
        " ".join(str(p) for p in (about["engine"], about["engine_version"]) if p),
        str(about["model"] or ""),
        ", ".join(f"{gpus.count(g)} × {g}" for g in unique),
        f"driver {about['driver']}" if about["driver"] else "",
    ]
    stated = " · ".join(_short(p, _MAX_STATED) for p in parts if p)
    total = counts(diagnosis)
    text = Text(f"{_plural(total['error'], 'error')}, {_plural(total['warning'], 'warning')}", style="bold")
    if stated:
        text.append(f"   {stated}", style="dim")
    return text


# What a person wants to see confirmed before believing a clean bill of health.
_MACHINE = (
    ("server", ("process.pid", "process.launch")),
    ("system", ("platform.distro", "platform.kernel", "platform.arch")),
    ("wsl", ("platform.wsl", "platform.wsl_version")),
    ("memory", ("platform.ram_gib", "platform.ram_limit_gib")),
    ("/dev/shm", ("platform.shm_gib",)),
    ("python", ("platform.python",)),
    ("driver", ("driver.version", "driver.cuda")),
    ("gpu", ("gpu.names", "gpu.memory_gib", "gpu.cc")),
    ("toolkit", ("cuda.toolkit", "cuda.home")),
    ("vllm", ("pkg.vllm", "vllm.cuda")),
    ("torch", ("pkg.torch", "torch.cuda")),
    ("transformers", ("pkg.transformers",)),
    ("cache", ("disk.cache", "disk.cache_fs", "disk.cache_free_gib")),
)
_OPTIONAL = ("server", "wsl", "toolkit", "cache")
_UNIT = {
    "platform.ram_gib": " GiB",
    "platform.ram_limit_gib": " GiB",
    "platform.shm_gib": " GiB",
    "gpu.memory_gib": " GiB",
    "disk.cache_free_gib": " GiB free",
}
_NAME = {
    "driver.cuda": "CUDA ",
    "vllm.cuda": "CUDA ",
    "torch.cuda": "CUDA ",
    "cuda.toolkit": "CUDA ",
    "process.pid": "process ",
    "platform.ram_limit_gib": "limited to ",
    "gpu.cc": "compute capability ",
}


def _machine(diagnosis: Diagnosis) -> Table:
    """What was found on this machine; what is missing is named as not found, never left out."""
    table = Table.grid(padding=(0, 2, 0, 0))
    table.add_column(style="dim", no_wrap=True)
    table.add_column(overflow="fold")
    for label, keys in _MACHINE:
        parts = []
        for key in keys:
            value = diagnosis.facts.value(key)
            if value is not None and value is not False:
                shown = (
                    ", ".join(value)
                    if isinstance(value, list)
                    else f"{value:.1f}"
                    if isinstance(value, float)
                    else str(value)
                )
                parts.append(_NAME.get(key, "") + shown + _UNIT.get(key, ""))
        if parts or label not in _OPTIONAL:
            table.add_row(label, Text(plain(" · ".join(parts))) if parts else Text("not found", style="dim"))
    return table


def _finding(number: int, finding: Finding, verbose: bool) -> list[RenderableType]:
    title = Text(f"{number}. ")
    title.append(finding.severity.upper(), style=_STYLE[finding.severity])
    title.append(f"  {plain(finding.title)}", style="bold")
    return [title, *fields(_rows(finding, verbose), indent=3, width=7, gap=1)]


def _rows(finding: Finding, verbose: bool) -> list[tuple[str, Text]]:
    rows = [("id", Text(f"{finding.id}  ({finding.area}, {finding.confidence})", style="dim"))]
    if finding.explained_by:
        rows.append(("follows", Text(f"from {finding.explained_by}")))
    shown = finding.evidence if verbose else _telling(finding.evidence)
    for index, item in enumerate(shown):
        rows.append(("seen" if index == 0 else "", _evidence_text(item.origin, item.fact, item.value, item.expected)))
    if len(shown) < len(finding.evidence):
        rows.append(("", Text(f"and {len(finding.evidence) - len(shown)} more (-v)", style="dim")))
    rows.append(("why", Text(plain(finding.cause))))
    for index, fix in enumerate(finding.fix):
        rows.append(("fix" if index == 0 else "", Text(plain(fix.text))))
        for line in plain(fix.command).splitlines() if fix.command else ():
            rows.append(("", whole("  " + line, style="green")))
    for index, source in enumerate(finding.source if verbose else finding.source[:1]):
        rows.append(("source" if index == 0 else "", whole(plain(source), style="dim")))
    if verbose:
        rows.append(("runbook", whole(f"hybridctl runbook {finding.runbook}", style="dim")))
    return rows


def _telling(evidence: list[Evidence]) -> list[Evidence]:
    """One line of the log and one statement a fact, four at most: other processes often repeat the same error."""
    firsts: dict[str, Evidence] = {}
    for item in evidence:
        firsts.setdefault(item.fact, item)
    return list(firsts.values())[:4]


def _short(text: str, limit: int) -> str:
    text = plain(text)
    return text if len(text) <= limit else text[: limit - 1] + "…"


def _evidence_text(origin: str, fact: str, value: str, expected: str) -> Text:
    value = _short(" ".join(value.split()), _MAX_QUOTE)
    text = Text(f"{origin}: " if origin else "", style="dim")
    if fact == LINE:
        text.append(value, style="default")
    else:
        text.append(f"{fact} {value}", style="default")
        if expected and fact != "report.said":  # its rule is a page of wordings
            text.append(f"  (rule: {expected})")
    return text


def _information(finding: Finding, verbose: bool) -> list[RenderableType]:
    text = Text(f"- {plain(finding.title)}")
    text.append(f"  {finding.id}", style="dim")
    out: list[RenderableType] = [text]
    rows = _rows(finding, verbose)
    # Of an unknown error the line itself is the news, so it is shown at any verbosity.
    short = [r for r in rows if r[0] in ("seen", "why")] if finding.id == "unrecognised-error" else []
    wanted = rows if verbose and not short else short
    if wanted:
        out += fields(wanted, indent=2, width=7, gap=1)
    return out


def _install(install: Install) -> list[RenderableType]:
    title = Text.assemble(("To install", "bold"), f"  {install.title}  ", (install.stack, "dim"))
    rows: list[tuple[str, Text]] = [("because" if not i else "", Text(plain(b))) for i, b in enumerate(install.because)]
    rows += [("note" if not i else "", Text(plain(note))) for i, note in enumerate(install.notes)]
    rows.append(("run", whole("  " + plain(install.command), style="green")))
    for step in install.after:
        rows += [("then", Text(plain(step.text))), ("", whole("  " + plain(step.command or ""), style="green"))]
    rows.append(("pins", Text(" ".join(install.constraints))))
    rows.append(
        ("", Text("--constraints FILE writes them for pip's -c, so that nothing installed later moves vLLM", "dim"))
    )
    return [title, *fields(rows, indent=3, width=7, gap=1)]


def _phases(diagnosis: Diagnosis) -> Table:
    assert diagnosis.log is not None
    table = Table(title="Start phases in the log", title_justify="left", title_style="bold", pad_edge=False)
    table.add_column("phase")
    table.add_column("line", justify="right")
    table.add_column("seconds", justify="right")
    for phase in diagnosis.log.phases:
        table.add_row(phase.name, str(phase.line), "" if phase.seconds is None else f"{phase.seconds:.1f}")
    return table


def _closing(diagnosis: Diagnosis, verbose: bool) -> list[RenderableType]:
    total = counts(diagnosis)
    out: list[RenderableType] = []
    out += fields([("note:", Text(plain(note), style="dim")) for note in diagnosis.notes], gap=1)
    # A source that could not be asked (named in words, unlike a check) is told at once: it may hide everything else.
    asked = [u for u in diagnosis.unknown if " " in u.check]
    out += fields([("not known:", Text(f"{u.check}: needs {plain(u.needs)}")) for u in asked], gap=1)
    out.append(
        Text(
            f"Checks of facts: {total['checks_ok']} ok, {total['checks_finding']} with findings, "
            f"{total['checks_unknown']} unknown, {total['checks_not_applicable']} not applicable.",
            style="dim",
        )
    )
    if verbose:
        ok = [o for o in diagnosis.outcomes if o.state == "ok"]
        out += fields([("ok:", Text(f"{o.check}: {plain(o.detail)}", style="dim")) for o in ok], indent=2, gap=1)
        still = [u for u in diagnosis.unknown if u not in asked]
        out += fields(
            [("unknown:", Text(f"{u.check}: needs {plain(u.needs)}", style="dim")) for u in still], indent=2, gap=1
        )
    elif diagnosis.unknown:
        out.append(
            Text(
                f"{_plural(len(diagnosis.unknown), 'check or entry', 'checks and entries')} could not be judged for want "
                "of facts: -v lists what each needs.",
                style="dim",
            )
        )
    first = next((f for f in diagnosis.findings if f.severity != "info"), None)
    if first and load().find(first.id):  # what a check alone finds has no page of its own
        out.append(Text(f"More on the first: hybridctl runbook {first.id}", style="dim"))
    if first:
        out.append(Text(f"Step by step: hybridctl runbook {first.runbook}", style="dim"))
    if takes_kernels(diagnosis.facts):
        out.append(Text("The kernels on this GPU against their reference: hybridctl kernels check", style="dim"))
    return out


def takes_kernels(facts: Facts) -> bool:
    """Whether this machine's own GPU runs the compiled kernels."""
    fact = facts.get("gpu.cc")
    return fact is not None and fact.origin.source == "local" and 10 * int(str(fact.value).partition(".")[0]) >= OLDEST
