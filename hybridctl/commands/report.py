"""``hybridctl report``."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, BinaryIO, Optional

import typer

from hybridctl.commands._inputs import read_inputs
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
)

if TYPE_CHECKING:
    from hybridctl.doctor.bundle import Bundle
    from hybridctl.doctor.diagnose import Diagnosis


def register(app: typer.Typer) -> None:
    app.command("report", short_help="Make a bug report for upstream: what was found, without who and where you are.")(
        report
    )


def report(
    model: ModelArgument = None,
    env: EnvOption = None,
    log: LogOption = None,
    config: ConfigOption = None,
    command: CommandOption = None,
    engine: EngineOption = None,
    local: LocalOption = False,
    python: PythonOption = None,
    pid: PidOption = None,
    lines: Annotated[
        int, typer.Option("--lines", metavar="N", min=0, max=500, help="Lines of the log before and after the error.")
    ] = 20,
    output: Annotated[
        Optional[str],  # noqa: UP045
        typer.Option("--output", "-o", metavar="FILE|DIR", help="Write it: FILE.md, FILE.json, or both into a folder."),
    ] = None,
    force: Annotated[bool, typer.Option("--force", help="Overwrite what is there.")] = False,
    as_json: JsonOption = False,
    quiet: QuietOption = False,
) -> None:
    """Make a bug report for upstream, ready to paste: findings, versions, launch line, the error in the log.

    It says first which upstream thread the finding matches. Tokens, accounts, machines, network addresses and e-mail addresses are
    hidden and the home folder is written as ~; read it once before you post it. Nothing is sent anywhere. Without --output it is
    printed and nothing is written.

    Example: hybridctl report --log crash.txt --command "vllm serve Qwen/Qwen3.6-27B-FP8" --output report.md
    """
    from hybridctl.doctor import bundle
    from hybridctl.doctor.diagnose import diagnose
    from hybridctl.output import Output

    opened = None if log is None else _repeatable(log)
    inputs = read_inputs(
        model=model,
        env=env,
        log=opened and opened(),
        config=config,
        command=command,
        engine=engine,
        local=local,
        python=python,
        pid=pid,
    )
    result = diagnose(inputs)
    shown = _lines(opened(), result, lines) if opened else []
    texts = [text[:200_000] for text in (inputs.env, inputs.command, "\n".join(t for _, t in shown)) if text]
    made = bundle.make(result, shown, bundle.redactor_for(result, texts))
    out = Output("quiet" if quiet else "json" if as_json else "human")
    if output is None:
        out.json(made.document) if as_json else out.write(made.markdown(), hidden=True)
        out.note("nothing was written; read it before you post it, --output FILE writes it")
        return
    written = _write(output, made, force)
    if as_json:
        told = {key: made.document[key] for key in ("upstream", "hidden")}
        out.json({"schema_version": 1, "written": written, **told})
    elif not quiet:
        out.show(*_told(made.document, written))


def _repeatable(log: str) -> Callable[[], BinaryIO]:
    """Opens the log, as often as one likes: what comes through a pipe is kept in a file that has no name."""
    import shutil
    import tempfile

    from hybridctl.inputs import open_binary

    if log != "-" and Path(log).is_file():
        return lambda: open_binary(log, "--log")
    kept = tempfile.TemporaryFile()  # noqa: SIM115  (needed to the end of the run; the system removes it)
    shutil.copyfileobj(open_binary(log, "--log"), kept)

    def again() -> BinaryIO:
        kept.seek(0)
        return kept

    return again


def _lines(stream: BinaryIO, result: Diagnosis, around: int) -> list[tuple[int, str]]:
    """The innermost error with its surroundings, and the end of the log."""
    from hybridctl.doctor.log_window import window

    error = result.log.innermost if result.log else None
    if error is None:
        return window(stream, 1, 0, around)
    return window(stream, max(1, error.line - around), error.line + around, min(around, 10))


def _write(output: str, made: Bundle, force: bool) -> list[str]:
    """One file, or both in a folder. What is there already with the same content is left as it is."""
    import json

    from hybridctl.errors import UsageError

    as_json, as_text = json.dumps(made.document, indent=1) + "\n", made.markdown()
    path = Path(output)
    if not output.strip():
        raise UsageError("--output: no name", "--output report.md")
    try:
        if path.is_dir() or output.endswith(("/", "\\")):
            files = {path / "report.md": as_text, path / "report.json": as_json}
        else:
            files = {path: as_json if path.suffix.lower() == ".json" else as_text}
        same = {file: file.is_file() and file.read_bytes() == text.encode() for file, text in files.items()}
        for file in files:
            if not force and not same[file] and (file.exists() or file.is_symlink()):
                raise UsageError(f"--output: {file} is there already", "another name, or --force")
        for file, text in files.items():
            file.parent.mkdir(parents=True, exist_ok=True)
            if not same[file]:
                file.write_bytes(text.encode())
    except (OSError, ValueError) as error:
        why = getattr(error, "strerror", None) or error
        raise UsageError(f"--output: can't write {output}: {why}") from error
    return [str(file) for file in files]


def _told(document: dict[str, Any], written: list[str]) -> list[Any]:
    from rich.text import Text

    from hybridctl.doctor.fields import fields, whole

    known, rows = document["upstream"], []
    if known:
        rows += [("known", Text(f"this looks like: {known['title']}")), ("", whole(known["url"]))]
        rows.append(("", Text(f"{'read it' if known['thread'] else 'put it right'} before you file a new one")))
    else:
        rows.append(("known", Text("nothing that is known looks like this")))
    rows += [("written" if i == 0 else "", whole(path)) for i, path in enumerate(written)]
    hidden = ", ".join(f"{count} × {kind}" for kind, count in document["hidden"].items())
    rows.append(("hidden", Text(f"{hidden or 'nothing'}; read it once before you post it")))
    return fields(rows, width=8, gap=1)
