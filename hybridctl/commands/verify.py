"""``hybridctl verify``."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Optional

import typer

from hybridctl.commands._options import JsonOption, QuietOption

if TYPE_CHECKING:
    from rich.console import RenderableType

    from hybridctl.runtime.answers import Agreement
    from hybridctl.runtime.verify_report import Report


def register(app: typer.Typer) -> None:
    app.command("verify", short_help="Check that a server routes as configured and answers as the reference does.")(
        verify
    )


def verify(
    what: Annotated[
        Optional[str],  # noqa: UP045
        typer.Argument(
            metavar="[URL|MODEL]",
            help="A running server, or a model to start for this (hybridctl-demo: the small one that comes along).",
            show_default=False,
        ),
    ] = None,
    extra: Annotated[
        Optional[list[str]],  # noqa: UP045
        typer.Argument(
            metavar="-- VLLM FLAGS", help="Flags for the vLLM that is started, after --.", show_default=False
        ),
    ] = None,
    against: Annotated[
        Optional[str],  # noqa: UP045
        typer.Option(
            "--against",
            metavar="no-hybrid|URL",
            help="Compare with the same checkpoint served without the dispatcher, or with another server.",
        ),
    ] = None,
    model: Annotated[
        Optional[str],  # noqa: UP045
        typer.Option("--model", metavar="MODEL", help="The checkpoint behind a URL that hybridctl did not start."),
    ] = None,
    api_key: Annotated[
        Optional[str],  # noqa: UP045
        typer.Option("--api-key", help="Key of the server.", envvar="VLLM_API_KEY"),
    ] = None,
    windows: Annotated[int, typer.Option("--windows", help="Windows of the demo's held-out text; 0: none.", min=0)] = 4,
    python: Annotated[
        Optional[str],  # noqa: UP045
        typer.Option("--python", metavar="PATH", help="Interpreter or virtual environment that has vLLM."),
    ] = None,
    as_json: JsonOption = False,
    quiet: QuietOption = False,
) -> None:
    """Send prompts below, between and above the thresholds, and read from the server's counters which kernel computed them.

    Where torch and transformers are installed, greedy answers are held against the reference, and the perplexity of other
    routings is measured. --against no-hybrid also asks the same checkpoint without the dispatcher; where MODEL is named, one
    server after the other. Nothing else should use the server meanwhile. Exit code 1: something does not hold.

    Example: hybridctl verify http://localhost:8000
    """
    from hybridctl.errors import EXIT_FINDINGS
    from hybridctl.output import Output
    from hybridctl.runtime import verify_run

    out = Output("quiet" if quiet else "json" if as_json else "human")
    report = verify_run.run(
        verify_run.Request(what, model, against, api_key, windows, python, tuple(extra or ())), out.note
    )
    if out.mode == "json":
        out.json(report.to_json())
    else:
        out.show(*_page(report))
    if not report.passed:
        raise typer.Exit(EXIT_FINDINGS)


def _page(report: Report) -> list[RenderableType]:
    from rich.text import Text

    from hybridctl.output import plain

    page: list[RenderableType] = ["", Text(f"{report.model} at {report.url}", style="bold")]
    page += [Text(f"  {line}") for line in report.rule]
    page += ["", _kernels(report)]
    if (told := report.fibonacci) is not None:
        page += ["", Text("Fibonacci prompt (hybridctl's own wording), greedy", style="bold")]
        page.append(Text(plain(f"  prompt       {told.prompt!r}")))
        page.append(Text(plain(f"  answer       {told.answer!r}")))
        if told.other is not None and report.comparison is not None:
            page.append(Text(plain(f"  {report.comparison.name:<12} {told.other!r}")))
    if report.agreement is not None or report.comparison is not None:
        page += ["", Text("Greedy answers", style="bold")]
    if report.agreement is not None:
        page.append(Text(f"  against the reference: {_agreement(report.agreement)}"))
    if (seen := report.comparison) is not None:
        for where, each in ((f"below position {seen.first}", seen.below), (f"from {seen.first} on", seen.above)):
            if each is not None:
                page.append(Text(f"  against {seen.name}, {where}: {_agreement(each)}"))
    if report.perplexities:
        page += ["", _perplexities(report)]
    page += [Text(f"not looked at: {line}", style="dim") for line in report.skipped]
    page += ["", Text(f"Verdict: {'all holds' if report.passed else 'something does NOT hold'}", style="bold")]
    return [*page, *(Text(f"  {line}") for line in report.verdict())]


def _agreement(a: Agreement) -> str:
    return f"{a.tokens} tokens ({a.distinct} distinct), {a.different} differ, log-probabilities by up to {a.worst:.2g}"


def _kernels(report: Report) -> RenderableType:
    from rich.table import Table

    table = Table(title="Kernel by prompt length", title_justify="left", title_style="bold", box=None, pad_edge=False)
    for name in ("prompt tokens", "thresholds", "last token", "flash", "linear", "as configured"):
        right = name in ("prompt tokens", "flash", "linear")
        table.add_column(f" {name}", justify="right" if right else "left")
    for row in report.rows:
        total = sum(row.shares.values()) or 1
        shares = (f"{row.shares[kernel] / total:.1%}" for kernel in ("flash", "linear"))
        state = "by entropy" if row.expected is None else "yes"
        if not row.right:
            state = f"NO: {row.expected_last}, {row.expected}"
        table.add_row(str(row.length), f" {row.place}", f" {row.last}", *shares, f" {state}")
    return table


def _perplexities(report: Report) -> RenderableType:
    from rich.table import Table

    served = report.served
    assert served is not None
    title = f"Perplexity of held-out text by position ({report.windows} windows; lower is better)"
    table = Table(title=title, title_justify="left", title_style="bold", box=None, pad_edge=False)
    table.add_column("routing")
    for part in served.parts:
        table.add_column(part.place, justify="right")
    table.add_column(f"from {served.whole.start}", justify="right")
    table.add_column("against served (95 % interval)", justify="right")
    for p in report.perplexities:
        cells = [f"{part.value:.2f}" for part in p.parts]
        factor = p.whole.factor
        more = "" if factor is None else f"× {factor[0]:.2f} ({factor[1]:.2f} to {factor[2]:.2f})"
        table.add_row(p.name, *cells, f"{p.whole.value:.2f}", more)
    return table
