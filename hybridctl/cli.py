"""The entry point: turns exceptions into one line and an exit code.

Nothing larger is loaded before :func:`main` runs: a Ctrl-C in the first moments, while the parser of options is loaded, ends as
quietly as a later one.
"""

from __future__ import annotations

import errno
import io
import os
import sys
from typing import NoReturn

from hybridctl.errors import EXIT_FAILURE, EXIT_INTERRUPT, EXIT_PIPE, HybridctlError

_NO_ROOM = {errno.ENOSPC, errno.EDQUOT}


def main() -> None:
    """Entry point of the ``hybridctl`` script."""
    debug = os.environ.get("HYBRIDCTL_DEBUG") == "1"
    try:
        _mend_streams()
        if not (columns := os.environ.get("COLUMNS", "")).isascii() or not columns.isdigit():
            os.environ.pop("COLUMNS", None)  # rich reads every digit of Unicode and fails on some
        code = _run()
        sys.stdout.flush()
        sys.exit(code)
    except HybridctlError as error:
        if debug:
            _print_trace()
        _fail(str(error), error.hint, error.exit_code)
    except KeyboardInterrupt:
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


def _run() -> int:
    if sys.argv[1:] == ["doctor"]:
        # The one question that needs a quick answer, and no options that would have to be parsed: what typer loads for that
        # (pydantic among it) takes longer than to look at the machine.
        import gc

        from hybridctl.commands._doctor_run import run as doctor

        gc.disable()  # a run of a moment leaves next to nothing to collect, and each look for it walks over all that was loaded
        try:
            return doctor()
        finally:
            gc.enable()
    from hybridctl.app import run

    return run()


def _print_trace() -> None:
    import traceback

    traceback.print_exc()


def _mend_streams() -> None:
    """Closed streams (``>&-``) swallow what is written, and no character of a help text can fail an encoding."""
    for name in ("stdout", "stderr"):
        stream = getattr(sys, name)
        if stream is None:
            setattr(sys, name, open(os.devnull, "w", encoding="utf-8"))  # noqa: SIM115, PTH123
        elif isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="replace")


def _fail(message: str, hint: str, code: int) -> NoReturn:
    from hybridctl.output import Output

    Output().error(message, hint)
    sys.exit(code)


def _leave_quietly() -> NoReturn:
    """The reader of our output went away (a pager, head): nothing is left to say, and no second error at exit."""
    _forget_stdout()
    sys.exit(EXIT_PIPE)


def _forget_stdout() -> None:
    """What is still buffered would fail again at exit, with another exit code and another message."""
    try:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
    except (OSError, ValueError):
        return  # a stream without a descriptor has nothing to flush
