"""Options that several commands share, declared once."""

from __future__ import annotations

from typing import Annotated

import typer

JsonOption = Annotated[bool, typer.Option("--json", help="Print one JSON document.")]
QuietOption = Annotated[bool, typer.Option("--quiet", "-q", help="Print nothing but errors; the exit code tells.")]
VerboseOption = Annotated[
    bool, typer.Option("--verbose", "-v", help="Show all evidence, every source, and what stayed unknown.")
]
