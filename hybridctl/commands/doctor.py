"""``hybridctl doctor``."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Optional

import typer

from hybridctl.commands._doctor_run import FailOn, Format, run
from hybridctl.commands._options import (
    CommandOption,
    ConfigOption,
    EngineOption,
    EnvOption,
    JsonOption,
    LocalOption,
    LogOption,
    ModelArgument,
    PidOption,
    PythonOption,
    QuietOption,
    VerboseOption,
)


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
    code = run(
        model, env, log, config, command, stack, constraints, engine, local, python, pid, facts, fail_on, format, as_json,
        quiet, verbose,
    )  # fmt: skip
    if code:
        raise typer.Exit(code)
