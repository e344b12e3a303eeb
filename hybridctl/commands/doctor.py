"""``hybridctl doctor``."""

from __future__ import annotations

from enum import Enum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Optional

import typer

from hybridctl.commands._inputs import (
    CommandOption,
    ConfigOption,
    EngineOption,
    EnvOption,
    LocalOption,
    LogOption,
    ModelArgument,
    PidOption,
    PythonOption,
    read_inputs,
)
from hybridctl.commands._options import JsonOption, QuietOption, VerboseOption

if TYPE_CHECKING:
    from hybridctl.doctor.diagnose import Diagnosis
    from hybridctl.output import Output


class FailOn(str, Enum):
    error = "error"
    warning = "warning"
    never = "never"


class Format(str, Enum):
    text = "text"
    json = "json"
    markdown = "markdown"
    junit = "junit"


def register(app: typer.Typer) -> None:
    app.command("doctor", short_help="Find what is wrong: machine, environment, model, launch line or crash log.")(
        doctor
    )


def doctor(
    model: ModelArgument = None,
    env: EnvOption = None,
    log: LogOption = None,
    config: ConfigOption = None,
    command: CommandOption = None,
    stack: Annotated[
        Optional[str],  # noqa: UP045
        typer.Option(
            "--stack",
            metavar="NAME",
            help="A pinned set (hybridctl recipes --stacks): what contradicts in it, or its line.",
        ),
    ] = None,
    constraints: Annotated[
        Optional[str],  # noqa: UP045
        typer.Option("--constraints", metavar="OUT|-", help="Write the pins of the set to install, for pip's -c."),
    ] = None,
    engine: EngineOption = None,
    local: LocalOption = False,
    python: PythonOption = None,
    pid: PidOption = None,
    facts: Annotated[
        Path | None,
        typer.Option("--facts", metavar="OUT", help="Write the facts that were read; --env reads them again."),
    ] = None,
    fail_on: Annotated[
        FailOn, typer.Option("--fail-on", help="Lowest severity that gives exit code 1.")
    ] = FailOn.warning,
    format: Annotated[Format, typer.Option("--format", help="How to print the result.")] = Format.text,
    as_json: JsonOption = False,
    quiet: QuietOption = False,
    verbose: VerboseOption = False,
) -> None:
    """Find what is wrong with a machine, an environment, a model, a launch line or a crash log.

    Without these options, with or without MODEL, it looks at this machine. With --env, --log, --config or --command it
    looks only at what was pasted, with --stack at the set itself; --local adds this machine. Nothing is imported from the
    environment under test. Nothing is sent anywhere; only for MODEL alone may its config.json be fetched from the hub.

    Example: hybridctl doctor --log crash.txt --command "vllm serve Qwen/Qwen3.6-27B-FP8"
    """
    from hybridctl.doctor.diagnose import diagnose
    from hybridctl.errors import EXIT_FINDINGS, UsageError
    from hybridctl.output import Output

    if as_json and format not in (Format.text, Format.json):
        raise UsageError(f"--json and --format {format.value} contradict each other", "leave one of them out")
    inputs = read_inputs(
        model=model, env=env, log=log, config=config, command=command, engine=engine, local=local, python=python, pid=pid,
        stack=stack,
    )  # fmt: skip
    result = diagnose(inputs)
    chosen = Format.json if as_json else format
    out = Output("quiet" if quiet else "human" if chosen is Format.text else "json", verbose)
    if facts is not None:
        _write_facts(facts, result.facts.to_json())
        out.note(f"facts written to {' '.join(str(facts).split())}")
    limit = {FailOn.error: ("error",), FailOn.warning: ("error", "warning"), FailOn.never: ()}[fail_on]
    if not quiet and (constraints != "-" or result.install is None):
        _show(out, result, chosen, verbose, limit)
    if constraints is not None:
        _write_constraints(constraints, result, out)
    if any(f.severity in limit for f in result.findings):
        raise typer.Exit(EXIT_FINDINGS)


def _write_facts(path: Path, document: dict[str, object]) -> None:
    import json

    from hybridctl.errors import UsageError
    from hybridctl.secrets import hide_all

    try:
        path.write_text(json.dumps(hide_all(document), indent=1) + "\n", encoding="utf-8")
    except (OSError, ValueError) as error:
        why = getattr(error, "strerror", None) or error
        raise UsageError(f"--facts: can't write {path}: {why}") from error


def _write_constraints(path: str, result: Diagnosis, out: Output) -> None:
    """Pins of the set that is to be installed; ``-`` prints them in place of the report."""
    from hybridctl.errors import UsageError

    if result.install is None:
        if not result.findings:
            raise UsageError("--constraints: there is no set to install", "hybridctl recipes --stacks")
        out.note("no constraints written: see above what speaks against the set")
        return
    text = "\n".join([f"# {result.install.stack}: pip install -c FILE ...", *result.install.constraints])
    if path == "-":
        out.write(text)
        return
    try:
        Path(path).write_text(text + "\n", encoding="utf-8")
    except (OSError, ValueError) as error:
        why = getattr(error, "strerror", None) or error
        raise UsageError(f"--constraints: can't write {path}: {why}") from error
    out.note(f"constraints written to {' '.join(path.split())}")


def _show(out: Output, result: Diagnosis, chosen: Format, verbose: bool, failing: tuple[str, ...]) -> None:
    from hybridctl.doctor import report

    if chosen is Format.json:
        out.json(report.to_json(result))
    elif chosen is Format.markdown:
        out.write(report.to_markdown(result))
    elif chosen is Format.junit:
        from hybridctl.doctor.junit import to_junit

        out.write(to_junit(result, failing), hidden=True)
    else:
        from hybridctl.doctor.terminal import render

        out.show(*render(result, verbose))
