"""What ``hybridctl doctor`` does once its options are known. It loads no typer: see :func:`hybridctl.cli.main`."""

from __future__ import annotations

from enum import Enum
from pathlib import Path
from typing import TYPE_CHECKING

from hybridctl.commands._inputs import read_inputs
from hybridctl.errors import EXIT_FINDINGS, EXIT_OK, UsageError

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


def run(
    model: str | None = None,
    env: str | None = None,
    log: str | None = None,
    config: str | None = None,
    command: str | None = None,
    stack: str | None = None,
    constraints: str | None = None,
    engine: str | None = None,
    local: bool = False,
    python: str | None = None,
    pid: int | None = None,
    facts: Path | None = None,
    fail_on: FailOn = FailOn.warning,
    format: Format = Format.text,
    as_json: bool = False,
    quiet: bool = False,
    verbose: bool = False,
) -> int:
    """Read, judge, print; the parameters are those of the command, with its defaults. Returns the exit code.

    Raises:
        HybridctlError: as :func:`hybridctl.commands._inputs.read_inputs`, or a file can't be written.
    """
    from hybridctl.doctor.diagnose import diagnose
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
    return EXIT_FINDINGS if any(f.severity in limit for f in result.findings) else EXIT_OK


def _write_facts(path: Path, document: dict[str, object]) -> None:
    import json

    from hybridctl.secrets import hide_all

    try:
        path.write_text(json.dumps(hide_all(document), indent=1) + "\n", encoding="utf-8")
    except (OSError, ValueError) as error:
        why = getattr(error, "strerror", None) or error
        raise UsageError(f"--facts: can't write {path}: {why}") from error


def _write_constraints(path: str, result: Diagnosis, out: Output) -> None:
    """Pins of the set that is to be installed; ``-`` prints them in place of the report."""
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
