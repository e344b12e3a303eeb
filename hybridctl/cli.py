"""The command line: registers the commands and turns exceptions into one line and an exit code."""

from __future__ import annotations

import importlib
import os
import sys
import traceback
from typing import Annotated

import typer

from hybridctl import __version__
from hybridctl.errors import EXIT_FAILURE, EXIT_INTERRUPT, HybridctlError
from hybridctl.output import Output

# Commands live in hybridctl/commands, one module each, with a function register(app). A module loads only what its help needs.
COMMANDS = ("doctor", "serve", "verify", "runbook", "recipes")

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


def main() -> None:
    """Entry point of the ``hybridctl`` script."""
    debug = os.environ.get("HYBRIDCTL_DEBUG") == "1"
    try:
        app()
    except HybridctlError as error:
        if debug:
            traceback.print_exc()
        Output().error(str(error), error.hint)
        sys.exit(error.exit_code)
    except KeyboardInterrupt:
        Output().error("interrupted")
        sys.exit(EXIT_INTERRUPT)
    except BrokenPipeError:
        # The reader of our output went away (a pager, head): nothing is left to say, and no second error at exit.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        sys.exit(EXIT_FAILURE)
    except Exception as error:
        if debug:
            raise
        Output().error(
            f"hybridctl failed: {type(error).__name__}: {error}",
            "HYBRIDCTL_DEBUG=1 hybridctl … and report what it prints",
        )
        sys.exit(EXIT_FAILURE)
