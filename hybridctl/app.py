"""The command line as typer reads it: registers the commands, and makes our own errors of typer's."""

from __future__ import annotations

import importlib
from typing import Annotated, Any

import typer

from hybridctl import __version__
from hybridctl.errors import EXIT_INTERRUPT, EXIT_OK, EXIT_USAGE, UsageError
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


def run() -> int:
    """Do what the command line says. Returns the exit code.

    Raises:
        UsageError: wrong usage; one line, where typer would print four.
        KeyboardInterrupt: the user ended it.
        HybridctlError: whatever a command raises.
    """
    try:
        code = app(standalone_mode=False)
    except _CLICK_ERROR as error:
        if type(error).__name__ == "NoArgsIsHelpError":  # ``hybridctl`` alone asks for the help, which is no error line
            Output().note(_message(error))
            return EXIT_USAGE
        context = getattr(error, "ctx", None)
        raise UsageError(
            _message(error), f"{context.command_path if context is not None else 'hybridctl'} --help"
        ) from error
    except typer.Abort as error:
        raise KeyboardInterrupt from error
    if code == EXIT_INTERRUPT:  # typer makes this of a KeyboardInterrupt
        raise KeyboardInterrupt
    return code if isinstance(code, int) else EXIT_OK


def _message(error: Any) -> str:
    return str(error.format_message())
