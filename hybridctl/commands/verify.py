"""``hybridctl verify``."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Optional

import typer

from hybridctl.commands._options import JsonOption, QuietOption

if TYPE_CHECKING:
    from hybridctl.output import Output
    from hybridctl.runtime.verify import Report


def register(app: typer.Typer) -> None:
    app.command("verify", short_help="Check that a server routes as configured and answers as the reference does.")(
        verify
    )


def verify(
    what: Annotated[
        Optional[str],  # noqa: UP045
        typer.Argument(
            metavar="[URL|MODEL]", help="A running server, or a model to start for this.", show_default=False
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
    as_json: JsonOption = False,
    quiet: QuietOption = False,
) -> None:
    """Send prompts below, between and above the thresholds, and read from the server's counters which kernel computed them.

    Where torch and transformers are installed, greedy answers are held against the reference, and for the demo model the
    perplexity of other routings is measured. Nothing else should use the server meanwhile. Exit code 1: something does not hold.

    Example: hybridctl verify http://localhost:8000
    """
    from hybridctl.errors import EXIT_FINDINGS
    from hybridctl.output import Output
    from hybridctl.runtime import verify as checks

    out = Output("quiet" if quiet else "json" if as_json else "human")
    subject = checks.running(what, model)
    if subject is None:
        from hybridctl.runtime.borrowed import borrowed

        with borrowed(str(what), out.note) as subject:
            report = checks.verify(subject, api_key, windows, out.note)
    else:
        report = checks.verify(subject, api_key, windows, out.note)
    if out.mode == "json":
        out.json(report.to_json())
    else:
        _show(out, report)
    if not report.passed:
        raise typer.Exit(EXIT_FINDINGS)


def _show(out: Output, report: Report) -> None:
    from rich.table import Table
    from rich.text import Text

    table = Table(title="Kernel by prompt length", title_justify="left", pad_edge=False)
    for name in ("prompt tokens", "last token", "flash", "linear", "as configured"):
        table.add_column(name, justify="right" if name == "prompt tokens" else "left")
    for row in report.rows:
        total = sum(row.shares.values()) or 1
        shares = (f"{row.shares[kernel] / total:.1%}" for kernel in ("flash", "linear"))
        state = (
            "by entropy" if row.expected is None else "yes" if row.right else f"no: {row.expected_last}, {row.expected}"
        )
        table.add_row(str(row.length), row.last, *shares, state)
    out.show(
        "",
        Text(f"{report.model} at {report.url}", style="bold"),
        *(Text(f"  {line}") for line in report.rule),
        "",
        table,
    )
    if report.agreement is not None:
        a = report.agreement
        out.show(
            "",
            Text(
                f"Reference: {a.tokens} greedy tokens ({a.distinct} distinct), {a.different} differ, "
                f"log-probabilities within {a.worst:.1e}"
            ),
        )
    if report.perplexities:
        table = Table(title="Perplexity a byte of held-out text", title_justify="left", pad_edge=False)
        for name in ("routing", "perplexity", "against served", "95 % interval"):
            table.add_column(name)
        for p in report.perplexities:
            more = ("", "") if p.factor is None else (f"{p.factor[0]:.2f}×", f"{p.factor[1]:.2f} to {p.factor[2]:.2f}")
            table.add_row(p.name, f"{p.value:.2f}", *more)
        out.show("", table)
    for line in report.skipped:
        out.show(Text(f"not looked at: {line}", style="dim"))
    out.show("", Text("Verdict: " + "; ".join(report.verdict()) + ".", style="bold"))
