"""The one object that prints. stdout carries the result and nothing else; progress, hints and warnings go to stderr.

Text that comes from a model, a log or a machine is never read as rich markup and never reaches a terminal with control codes in it.
"""

from __future__ import annotations

import json
import os
import re
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, Literal

from hybridctl.secrets import hide, hide_all

if TYPE_CHECKING:
    from rich.console import Console, RenderableType
    from rich.status import Status

Mode = Literal["human", "json", "quiet"]

# Colour and cursor sequences, operating system commands (window titles, links), other escapes; then bare control codes and the
# invisible characters that reorder text.
_CONTROL = re.compile(
    r"\x1b\[[0-9;?]*[ -/]*[@-~]|\x1b\][^\x07\x1b]*(?:\x07|\x1b\\)?|\x1b."
    r"|[\x00-\x08\x0b-\x1f\x7f-\x9f\u200b-\u200f\u202a-\u202e\u2066-\u2069]"
)
_ASCII = str.maketrans(
    {
        "—": "-",
        "–": "-",
        "…": "...",
        "→": "->",
        "≥": ">=",
        "≤": "<=",
        "×": "x",
        "·": "-",
        "’": "'",
        "“": '"',
        "”": '"',
        "•": "-",
        **dict.fromkeys("█▉▊▋▌▍▎▏▓▒░", "#"),
    }
)


def plain(text: str) -> str:
    """Text without terminal control codes, bidirectional overrides included: what a log says can't steer the terminal.

    Credentials go as well: see :mod:`hybridctl.secrets`.
    """
    return hide(_CONTROL.sub("", text))


def _encodable(stream: Any) -> bool:
    try:
        "→≥×".encode(getattr(stream, "encoding", None) or "ascii")
    except (UnicodeEncodeError, LookupError):
        return False
    return True


def _is_terminal(stream: Any) -> bool:
    return bool(stream.isatty()) and os.environ.get("TERM") != "dumb"


def _columns() -> int:
    """The width of output that goes to no terminal: ``COLUMNS`` within reason, else 100."""
    stated = os.environ.get("COLUMNS", "")
    return min(max(int(stated[:6]), 20), 1000) if stated.isascii() and stated.isdigit() else 100


class Output:
    """Where a command's result goes, decided once a run."""

    def __init__(self, mode: Mode = "human", verbose: bool = False) -> None:
        self.mode: Mode = mode
        self.verbose = verbose

    @property
    def terminal(self) -> bool:
        """Whether the result goes to a terminal that can be laid out for."""
        return _is_terminal(sys.stdout)

    def _console(self, stderr: bool = False) -> Console:
        from rich.console import Console

        stream = sys.stderr if stderr else sys.stdout
        terminal = _is_terminal(stream)
        width = None if terminal else _columns()
        return Console(
            file=stream,
            width=width,
            highlight=False,
            markup=False,
            emoji=False,
            force_terminal=terminal,
            # Without a colour system rich writes no style at all; with no_color alone, bold and dim would stay.
            color_system=None if "NO_COLOR" in os.environ or not terminal else "auto",
            safe_box=not _encodable(stream),
            soft_wrap=False,
        )

    def show(self, *renderables: RenderableType) -> None:
        """Print a result for people. Nothing in the other modes."""
        if self.mode == "human":
            console = self._console()
            for item in renderables:
                self._write(console, item)

    @staticmethod
    def _write(console: Console, item: RenderableType) -> None:
        # A command or an address is for copying: the terminal may wrap it, but nothing here may break or cut it.
        whole: dict[str, Any] = (
            {"no_wrap": True, "overflow": "ignore", "crop": False} if getattr(item, "no_wrap", False) else {}
        )
        if console.is_terminal and _encodable(console.file):
            console.print(item, **whole)
            return
        with console.capture() as capture:
            console.print(item, **whole)
        encoding = getattr(console.file, "encoding", None) or "ascii"
        text = capture.get() if _encodable(console.file) else capture.get().translate(_ASCII)
        # Tables fill their cells with blanks: in a file or a pipe those are only noise.
        text = "".join(line.rstrip(" \n") + "\n" for line in text.splitlines())
        console.file.write(text.encode(encoding, "replace").decode(encoding))

    def status(self, text: str) -> Status | None:
        """A line on stderr that changes while something lasts; start() and stop() it. None where nobody would see it change."""
        console = self._console(stderr=True)
        if self.mode != "human" or not console.is_terminal or not _encodable(console.file):
            return None
        from rich.text import Text

        return console.status(Text(plain(text)))

    @contextmanager
    def progress(self, text: str, total: int) -> Iterator[Callable[[int, str], None]]:
        """A bar of bytes on stderr. What it gives is called with the bytes so far, and a line for where no bar can be shown."""
        console = self._console(stderr=True)
        if self.mode != "human" or not console.is_terminal or not _encodable(console.file):
            yield lambda _, line: self.note(line) if line else None
            return
        from rich.progress import (
            BarColumn,
            DownloadColumn,
            Progress,
            TextColumn,
            TimeRemainingColumn,
            TransferSpeedColumn,
        )

        columns = (BarColumn(), DownloadColumn(), TransferSpeedColumn(), TimeRemainingColumn())
        with Progress(TextColumn("{task.description}", markup=False), *columns, console=console) as shown:
            task = shown.add_task(plain(text), total=total)
            yield lambda size, _: shown.update(task, completed=size)

    def write(self, text: str, hidden: bool = False) -> None:
        """Print text as it is (markdown, XML, a report file) whatever the mode.

        Args:
            hidden: credentials were taken out already, piece by piece, where doing so in the whole would break its form.
        """
        text = text if text.endswith("\n") else text + "\n"
        self._raw(sys.stdout, text if hidden else hide(text))

    def json(self, document: dict[str, Any]) -> None:
        """Print the one document of ``--json``."""
        self._raw(sys.stdout, json.dumps(hide_all(document), ensure_ascii=True, indent=2) + "\n")

    def note(self, text: str) -> None:
        """A hint or a warning: stderr, and not when quiet."""
        if self.mode != "quiet":
            self._raw(sys.stderr, plain(text) + "\n")

    def error(self, message: str, hint: str = "") -> None:
        """The one line of a failure, and the next thing to type."""
        line = " ".join(plain(message).split())
        self._raw(sys.stderr, f"error: {line}" + (f"; next: {' '.join(plain(hint).split())}" if hint else "") + "\n")

    @staticmethod
    def _raw(stream: Any, text: str) -> None:
        encoding = getattr(stream, "encoding", None) or "ascii"
        if not _encodable(stream):
            text = text.translate(_ASCII)
        stream.write(text.encode(encoding, "replace").decode(encoding))
        stream.flush()
