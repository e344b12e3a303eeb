"""The command line: registers the commands and turns exceptions into one line and an exit code."""

from __future__ import annotations

import errno
import importlib
import io
import os
import sys
import traceback
from pathlib import Path
from typing import Annotated, Any, NoReturn

import typer

from hybridctl import __version__
from hybridctl.errors import EXIT_FAILURE, EXIT_INTERRUPT, EXIT_OK, EXIT_USAGE, HybridctlError
from hybridctl.output import Output

# Commands live in hybridctl/commands, one module each, with a function register(app). A module loads only what its help needs.
COMMANDS = ("doctor", "fit", "prepare", "report", "serve", "verify", "kernels", "runbook", "recipes")

# The base of every usage error; which package it lives in differs with the release of typer.
_CLICK_ERROR: type[Exception] = next(
    c for c in typer.BadParameter.__mro__ if issubclass(c, Exception) and c.__name__ == "ClickException"
)

app = typer.Typer(
    name="hybridctl",
    help="From a hybrid-attention model's name to a verified vLLM server, and why it fails on the way.",
    no_args_is_help=True,
    rich_markup_mode=None,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
    epilog="Exit codes: 0 nothing found, 1 findings, 2 wrong usage, 3 hybridctl failed, 130 interrupted.",
)


def _print_version(value: bool) -> None:
    if value:
        Output().write(f"hybridctl {__version__}")
        raise typer.Exit


@app.callback()
def _root(
    version: Annotated[
        bool, typer.Option("--version", help="Print the version and exit.", callback=_print_version, is_eager=True)
    ] = False,
) -> None:
    del version


for _name in COMMANDS:
    importlib.import_module(f"hybridctl.commands.{_name}").register(app)


_NO_ROOM = {errno.ENOSPC, errno.EDQUOT}


def main() -> None:
    """Entry point of the ``hybridctl`` script."""
    debug = os.environ.get("HYBRIDCTL_DEBUG") == "1"
    _mend_streams()
    if not (columns := os.environ.get("COLUMNS", "")).isascii() or not columns.isdigit():
        os.environ.pop("COLUMNS", None)  # rich reads every digit of Unicode and fails on some
    try:
        code = app(standalone_mode=False)
        sys.stdout.flush()
        if code == EXIT_INTERRUPT:  # typer makes this of a KeyboardInterrupt
            raise KeyboardInterrupt
        sys.exit(code if isinstance(code, int) else EXIT_OK)
    except HybridctlError as error:
        if debug:
            traceback.print_exc()
        _fail(str(error), error.hint, error.exit_code)
    except _CLICK_ERROR as error:
        _refuse(error)
    except (KeyboardInterrupt, typer.Abort):
        _fail("interrupted", "", EXIT_INTERRUPT)
    except BrokenPipeError:
        _leave_quietly()
    except SystemExit as stop:
        # typer turns a broken pipe into exit code 1, which means findings here.
        if isinstance(stop.__context__, BrokenPipeError):
            _leave_quietly()
        raise
    except Exception as error:
        if debug:
            raise
        _forget_stdout()
        if isinstance(error, OSError) and error.errno in _NO_ROOM:
            _fail(f"the output can't be written in full: {os.strerror(error.errno)}", "df -h", EXIT_FAILURE)
        _fail(
            f"hybridctl failed: {type(error).__name__}: {str(error)[:500]}",
            "HYBRIDCTL_DEBUG=1 hybridctl … and report what it prints",
            EXIT_FAILURE,
        )


def _mend_streams() -> None:
    """Closed streams (``>&-``) swallow what is written, and no character of a help text can fail an encoding."""
    for name in ("stdout", "stderr"):
        stream = getattr(sys, name)
        if stream is None:
            setattr(sys, name, Path(os.devnull).open("w", encoding="utf-8"))  # noqa: SIM115
        elif isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="replace")


def _fail(message: str, hint: str, code: int) -> NoReturn:
    Output().error(message, hint)
    sys.exit(code)


def _refuse(error: Any) -> NoReturn:
    """Wrong usage: one line, where typer would print four. ``hybridctl`` alone asks for the help, which is no error line."""
    context = getattr(error, "ctx", None)
    message = error.format_message()
    if not isinstance(error, typer.BadParameter) and type(error).__name__ == "NoArgsIsHelpError":
        Output().note(message)
        sys.exit(EXIT_USAGE)
    path = context.command_path if context is not None else "hybridctl"
    _fail(message, f"{path} --help", EXIT_USAGE)


def _leave_quietly() -> NoReturn:
    """The reader of our output went away (a pager, head): nothing is left to say, and no second error at exit."""
    _forget_stdout()
    sys.exit(EXIT_FAILURE)


def _forget_stdout() -> None:
    """What is still buffered would fail again at exit, with another exit code and another message."""
    try:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
    except (OSError, ValueError):
        return  # a stream without a descriptor has nothing to flush
