"""What can go wrong, and what the user should type next. Only :func:`hybridctl.cli.main` turns these into text."""

from __future__ import annotations

EXIT_OK, EXIT_FINDINGS, EXIT_USAGE, EXIT_FAILURE, EXIT_INTERRUPT = 0, 1, 2, 3, 130
EXIT_PIPE = 141
"""The reader of the output went away: what a shell says of a tool that SIGPIPE ended."""


class HybridctlError(Exception):
    """A failure with a cure. One line: what, why, and the next command.

    Args:
        message: what went wrong and why.
        hint: the next thing to type, if there is one.
    """

    exit_code = EXIT_FAILURE

    def __init__(self, message: str, hint: str = "") -> None:
        super().__init__(message)
        self.hint = hint


class UsageError(HybridctlError):
    """The user gave something that can't be read."""

    exit_code = EXIT_USAGE


class BrokenDataError(HybridctlError):
    """A file that we ship, or that a user added to the knowledge, is not valid."""
