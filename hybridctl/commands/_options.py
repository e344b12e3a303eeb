"""Options that several commands share, declared once."""

from __future__ import annotations

from typing import Annotated, Optional

import typer

JsonOption = Annotated[bool, typer.Option("--json", help="Print one JSON document.")]
QuietOption = Annotated[bool, typer.Option("--quiet", "-q", help="Print nothing but errors; the exit code tells.")]
VerboseOption = Annotated[
    bool, typer.Option("--verbose", "-v", help="Show all evidence, every source, and what stayed unknown.")
]

# What doctor and report look at; hybridctl.commands._inputs reads it.
ModelArgument = Annotated[
    Optional[str],  # noqa: UP045
    typer.Argument(metavar="MODEL", help="Hugging Face name or local folder.", show_default=False),
]
EnvOption = Annotated[
    Optional[str],  # noqa: UP045
    typer.Option("--env", metavar="FILE|-", help="Pasted collect_env, nvidia-smi, pip list …, or our own facts."),
]
LogOption = Annotated[
    Optional[str],  # noqa: UP045
    typer.Option("--log", metavar="FILE|-", help="Log of a crash, of any size."),
]
ConfigOption = Annotated[
    Optional[str],  # noqa: UP045
    typer.Option("--config", metavar="FILE|-", help="The model's config.json."),
]
CommandOption = Annotated[
    Optional[str],  # noqa: UP045
    typer.Option(
        "--command", metavar="TEXT", help='Launch line ("vllm serve …"), start script or compose file, as text.'
    ),
]
EngineOption = Annotated[
    Optional[str],  # noqa: UP045
    typer.Option("--engine", metavar="NAME", help="vllm, sglang, llama.cpp, ollama, lmstudio or another."),
]
LocalOption = Annotated[bool, typer.Option("--local", help="Look at this machine as well, beside what was pasted.")]
PythonOption = Annotated[
    Optional[str],  # noqa: UP045
    typer.Option("--python", metavar="PATH", help="Look at that interpreter's packages (never imported)."),
]
PidOption = Annotated[
    Optional[int],  # noqa: UP045
    typer.Option("--pid", metavar="N", min=1, help="Look at a server that runs: its launch line, variables, packages."),
]
