"""What ``doctor`` and ``report`` are given, read: without typer, so that the doctor's plain run need not load it."""

from __future__ import annotations

from typing import TYPE_CHECKING, BinaryIO

if TYPE_CHECKING:
    from hybridctl.doctor.diagnose import Inputs


def read_inputs(
    *,
    model: str | None,
    env: str | None,
    log: str | BinaryIO | None,
    config: str | None,
    command: str | None,
    engine: str | None,
    local: bool,
    python: str | None,
    pid: int | None,
    stack: str | None = None,
) -> Inputs:
    """Read the files, and refuse what can't be read at all; what holds a little is read as far as it goes.

    Args:
        log: its place, or the stream itself.

    Raises:
        UsageError: options that exclude each other, a file that can't be read, a text that is nothing of its kind.
    """
    from hybridctl.doctor.diagnose import Inputs
    from hybridctl.errors import UsageError
    from hybridctl.inputs import open_binary, read_text

    if [env, log, config, command].count("-") > 1:
        raise UsageError("only one of --env, --log, --config and --command can be '-'")
    if pid is not None and (python is not None or command is not None):
        raise UsageError("--pid: the server has its own launch line and Python", "hybridctl doctor --pid N")
    pasted = any(x is not None for x in (env, log, config, command, stack))
    inputs = Inputs(
        env=None if env is None else read_text(env, "--env"),
        log=open_binary(log, "--log") if isinstance(log, str) else log,
        config=None if config is None else read_text(config, "--config"),
        command=read_text("-", "--command") if command == "-" else command,
        model=model,
        engine=engine,
        local=local or python is not None or pid is not None or not pasted,
        python=python,
        pid=pid,
        hub=model is not None and not pasted,
        stack=stack,
    )
    _check(inputs, alone=model is None and sum(x is not None for x in (env, log, config, command)) == 1)
    return inputs


def _check(inputs: Inputs, alone: bool) -> None:
    from hybridctl.errors import UsageError

    if inputs.config is not None:
        from hybridctl.model.config import read_config

        fatal = read_config(inputs.config).fatal
        if fatal:
            raise UsageError(f"--config: {fatal}", "give the model's whole config.json")
    if inputs.env is not None and inputs.env.lstrip()[:1] == "{":
        from hybridctl.doctor.facts import parse_env_text

        if not len(parse_env_text(inputs.env)):
            raise UsageError(
                "--env: a JSON document that holds no facts", "hybridctl doctor --facts OUT writes one that can be read"
            )
    if inputs.command is not None and alone:
        from hybridctl.doctor.facts.command import parse_command

        if not len(parse_command(inputs.command)):
            raise UsageError(
                "--command: no launch line found in this text",
                "give the whole line, such as: vllm serve MODEL --port 8000",
            )
