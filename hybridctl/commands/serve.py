"""``hybridctl serve``."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Optional

import typer

from hybridctl.commands._options import JsonOption, QuietOption

if TYPE_CHECKING:
    from hybridctl.doctor.diagnose import Diagnosis
    from hybridctl.doctor.findings import Finding
    from hybridctl.output import Output
    from hybridctl.overlays import Prepared
    from hybridctl.runtime.checkpoint import Checkpoint
    from hybridctl.runtime.launch import Launch
    from hybridctl.runtime.ready import Ready


def register(app: typer.Typer) -> None:
    app.command(
        "serve",
        short_help="Start vLLM with the dispatcher where the model is routed, and prove that it is in.",
        context_settings={"allow_interspersed_args": True},
    )(serve)


def serve(
    context: typer.Context,
    model: Annotated[
        Optional[str],  # noqa: UP045
        typer.Argument(
            help="Folder of a checkpoint, OWNER/NAME on the hub, or the name of a prepared overlay; "
            "left out: the one overlay that is prepared.",
            show_default=False,
        ),
    ] = None,
    extra: Annotated[
        Optional[list[str]],  # noqa: UP045
        typer.Argument(metavar="-- VLLM FLAGS", help="Flags for vLLM, after --.", show_default=False),
    ] = None,
    demo: Annotated[
        bool, typer.Option("--demo", help="Serve the small routed model that comes with hybridctl.")
    ] = False,
    port: Annotated[
        int | None, typer.Option("--port", help="Port of the HTTP server (8000).", min=1, max=65535)
    ] = None,
    host: Annotated[Optional[str], typer.Option("--host", help="Address to listen on.")] = None,  # noqa: UP045
    tensor_parallel_size: Annotated[
        Optional[int],  # noqa: UP045
        typer.Option("--tensor-parallel-size", "-tp", help="Ranks that share each layer.", min=1),
    ] = None,
    dtype: Annotated[str | None, typer.Option("--dtype", help="Type of weights and activations, such as half.")] = None,
    enable_chunked_prefill: Annotated[
        bool, typer.Option("--enable-chunked-prefill", help="Cut long prompts into chunks.")
    ] = False,
    hybrid_enabled: Annotated[
        bool, typer.Option("--hybrid-enabled", help="Inject the dispatcher (the default for a routed model).")
    ] = False,
    no_hybrid: Annotated[bool, typer.Option("--no-hybrid", help="Serve without the dispatcher.")] = False,
    keep_kv: Annotated[bool, typer.Option("--keep-kv", help="Keep K/V pages that no token will read.")] = False,
    python: Annotated[
        Optional[str],  # noqa: UP045
        typer.Option("--python", metavar="PATH", help="Interpreter or virtual environment that has vLLM."),
    ] = None,
    print_only: Annotated[bool, typer.Option("--print", help="Show the command with reasons; start nothing.")] = False,
    status: Annotated[bool, typer.Option("--status", help="List running servers; clear what dead ones left.")] = False,
    force: Annotated[bool, typer.Option("--force", help="Start in spite of errors that the doctor finds.")] = False,
    start_timeout: Annotated[
        float, typer.Option("--start-timeout", metavar="SECONDS", help="Give up on a start after this long.", min=1)
    ] = 3600.0,
    log_file: Annotated[
        Optional[Path],  # noqa: UP045
        typer.Option("--log-file", metavar="FILE", help="Write vLLM's log there and keep it."),
    ] = None,
    as_json: JsonOption = False,
    quiet: QuietOption = False,
    verbose: Annotated[bool, typer.Option("--verbose", "-v", help="Show every line of vLLM's log.")] = False,
) -> None:
    """Start vLLM's server with the dispatcher injected where the model declares a routing (hybrid_config).

    Ready means: /health answers, a prompt is completed, and every process of vLLM has proved that the dispatcher is in it.
    Ctrl-C ends all of it in order. Anything after -- goes to vLLM as it is.

    Example: hybridctl serve --demo --port 8000
    """
    from hybridctl.output import Output

    out = Output("quiet" if quiet else "json" if as_json else "human", verbose)
    if status:
        _status(out)
        return
    from hybridctl.errors import EXIT_FINDINGS, HybridctlError
    from hybridctl.runtime import launch, preflight, run_dir, target
    from hybridctl.runtime.server import Server

    rest = list(extra or [])
    if model is not None and model.startswith("-"):  # what follows -- where MODEL is left out
        rest.insert(0, model)
        model = None
    chosen = _choose(out, model, demo, context)
    where = target.look(python)
    options = launch.Options(
        hybrid_enabled, no_hybrid, keep_kv, tensor_parallel_size, dtype, enable_chunked_prefill, port, host, tuple(rest)
    )
    import os

    if print_only:
        plan = launch.plan(chosen, where, options, Path("RUN_DIR"), os.environ)
        preflight.refuse(plan)
        _print(out, plan, preflight.check(plan, python))
        return
    plan = launch.plan(chosen, where, options, run_dir.root(), os.environ)
    preflight.refuse(plan)
    preflight.check_port(plan)
    found = preflight.check(plan, python)
    _notes(out, plan, found)
    if any(f.severity == "error" for f in found.findings):
        _tell([f for f in found.findings if f.severity == "error"], out)
        if not force:
            raise typer.Exit(EXIT_FINDINGS)
    run = run_dir.create(url=plan.url, source=chosen.location, model=chosen.name, routed=plan.routed)
    kept = None
    try:
        plan = launch.plan(chosen, where, options, run.path, os.environ)
        run.note(argv=plan.argv, log=str(log_file or run.log))
        server = Server(plan, run, out, verbose=verbose, log=log_file, start_seconds=start_timeout)
        ended = server.serve(lambda ready: _banner(out, plan, ready, str(log_file or run.log)))
        if ended.failed:
            kept = ended.reason
    except HybridctlError as error:
        kept = str(error)
        raise
    finally:
        if kept is None:
            run.remove()
        else:
            run.fail(kept)
    if ended.failed:
        if ended.finding is not None:
            _tell([ended.finding], out)
        out.error(ended.reason, f"the whole log: {ended.log}" if Path(ended.log).is_file() else "-v shows the log")
    raise typer.Exit(ended.code)


def _choose(out: Output, model: str | None, demo: bool, context: typer.Context) -> Checkpoint:
    from hybridctl.errors import UsageError
    from hybridctl.runtime import checkpoint, choice

    if demo and model is not None:
        raise UsageError("--demo serves its own model; leave MODEL out", "hybridctl serve --demo")
    if demo:
        return checkpoint.demo()
    if model is not None:
        chosen = checkpoint.find(model)
        lines = choice.prepared_from(chosen)
    else:
        try:
            chosen, lines = choice.the_prepared_one(getattr(context.find_root().command, "commands", ()))
        except choice.UnclearError as unclear:
            if out.mode == "json":
                out.json({"schema_version": 1, "state": "unclear", "prepared": [choice.row(o) for o in unclear.found]})
            elif unclear.found:
                out.show(_prepared(unclear.found))
            raise
    for line in lines:
        out.note(f"note: {line}")
    return chosen


def _prepared(found: list[Prepared]) -> Any:
    from rich.table import Table
    from rich.text import Text

    from hybridctl.output import plain

    table = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0))
    for name in ("name", "model", "routing", "prepared"):
        table.add_column(name, overflow="fold")
    for overlay in found:
        known = overlay.manifest
        row = (known.model, known.routing, f"{known.created:%Y-%m-%d %H:%M %Z}") if known else ("", "", "")
        cells = [overlay.name, *row]
        if overlay.problem:
            cells[3] = f"can't be served: {overlay.problem}"
        table.add_row(*(Text(plain(cell)) for cell in cells))
    return table


def _print(out: Output, plan: Launch, found: Diagnosis) -> None:
    import shlex

    from hybridctl.runtime.banner import injection, names

    findings = [f for f in found.findings if f.severity != "info"]
    if out.mode == "json":
        rows = [{"name": s.name, "values": list(s.values), "reason": s.reason} for s in plan.flags]
        variables = [{"name": s.name, "value": s.values[0], "reason": s.reason} for s in plan.env]
        out.json(
            {
                "schema_version": 1,
                "argv": plan.argv,
                "start": plan.target.start[1],
                "flags": rows,
                "environment": variables,
                "injected": plan.routed,
                "url": plan.url,
                "notes": plan.notes,
                "findings": [f.to_json() for f in findings],
            }
        )
        return
    from rich.text import Text

    settings = [(f"{s.name}={shlex.quote(s.values[0])}", s.reason) for s in plan.env]
    settings.append((shlex.join([*plan.target.start[0], plan.model_path]), plan.target.start[1]))
    settings += [(shlex.join([w for w in (s.name, *s.values) if w]), s.reason) for s in plan.flags]
    for text, reason in settings:
        out.show(Text(text, style="bold"), Text(f"    {reason}", style="dim"))
    out.show("", _table([*injection(plan), *names(plan)]))
    _notes(out, plan, found)
    if findings:
        _tell(findings, out)


def _notes(out: Output, plan: Launch, found: Diagnosis) -> None:
    for line in plan.notes:
        out.note(f"note: {line}")
    for finding in found.findings:
        if finding.severity == "warning":
            out.note(f"warning: {finding.title} (hybridctl runbook {finding.id})")


def _tell(findings: list[Finding], out: Output) -> None:
    from hybridctl.doctor.terminal import _finding

    for number, finding in enumerate(findings, 1):
        out.show("", *_finding(number, finding, out.verbose))
    out.show("")


def _banner(out: Output, plan: Launch, ready: Ready, log: str) -> None:
    from hybridctl.runtime.banner import commands, lines, summary

    if out.mode == "json":
        proof = ready.proof
        out.json(
            {
                "schema_version": 1,
                "state": "ready",
                "url": plan.url,
                "model": ready.model,
                "injected": proof is not None and plan.routed,
                "layers": proof.layers if proof else 0,
                "summary": summary(plan),
                "names": list(proof.names[min(proof.names)]["rules"]) if proof and proof.names else [],
                "empty": str(proof.names[min(proof.names)]["empty"]) if proof and proof.names else "",
                "alias": plan.alias,
                "processes": sorted(proof.registered) if proof else [],
                "seconds": round(ready.seconds, 1),
                "generate": ready.generate,
                "log": log,
            }
        )
        return
    from rich.text import Text

    out.show("", Text(f"Ready after {ready.seconds:.0f} s", style="bold green"), _table(lines(plan, ready, log)), "")
    for line in commands(plan, ready):
        out.show(Text(line, style="green", no_wrap=True, overflow="ignore"))


def _table(rows: list[tuple[str, str]]) -> Any:
    from rich.table import Table
    from rich.text import Text

    from hybridctl.output import plain

    table = Table.grid(padding=(0, 2, 0, 0))
    table.add_column(style="dim", no_wrap=True)
    table.add_column(overflow="fold")
    for label, text in rows:
        table.add_row(label, Text(plain(text)))
    return table


def _status(out: Output) -> None:
    import time

    from hybridctl.runtime import run_dir

    alive, failed, removed = run_dir.clean()
    if out.mode == "json":
        out.json(
            {
                "schema_version": 1,
                "running": [{**r.content, "directory": str(r.path)} for r in alive],
                "failed": [{**r.content, "directory": str(r.path)} for r in failed],
                "removed": [str(r.path) for r in removed],
            }
        )
        return
    rows = []
    for run in alive:
        c = run.content
        age = time.time() - float(c.get("started") or 0)
        rows.append((str(c.get("state")), f"{c.get('model')} at {c.get('url')}, pid {c.get('pid')}, for {age:.0f} s"))
        rows.append(("", f"log {c.get('log')}"))
    for run in failed:
        rows.append(("failed", f"{run.content.get('model')}: {str(run.content.get('reason'))[:300]}"))
        rows.append(("", f"log {run.content.get('log')}"))
    rows += [("removed", f"{run.path}: its server is gone") for run in removed]
    out.show(_table(rows) if rows else "No server runs, and none left anything behind.")
