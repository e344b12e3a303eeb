"""Errors that only report another one. They are read, but never taken for the error that began the fall."""

# ruff: noqa: E501  (tables of patterns read best a row a line)
from __future__ import annotations

import re

# Type (last part of the dotted name) → always a report of something that happened elsewhere.
_TYPES = frozenset({
    "EngineDeadError", "AsyncEngineDeadError", "MQEngineDeadError", "EngineGenerateError", "ChildFailedError", "SystemExit",
    "KeyboardInterrupt", "CancelledError", "ProcessExitedException", "ProcessRaisedException", "SignalException", "RayTaskError",
    "GeneratorExit", "ExceptionGroup", "BrokenProcessPool",
})  # fmt: skip
_MESSAGES = re.compile(
    r"Engine core initialization failed|Failed core proc\(s\)|Engine process failed to start|Engine loop has died"
    r"|WorkerProc initialization failed|EngineCore encountered an issue|EngineCore encountered a fatal|Background loop has errored"
    r"|Executor failed\b|See stack trace (?:\(above\) )?for (?:the )?root cause|See root cause above|died unexpectedly, shutting down"
    r"|Error raised in subprocess|Process \d+ terminated with|Rank \d+ scheduler died|scheduler died during initialization"
    r"|Received sigquit from a child|check the stack trace (?:above|for the root cause)"
    r"|[Cc]ould not initialize the engine|Engine core proc .* died"
)
# Lines that a logger prints ahead of a traceback, or that a supervisor prints after a death.
_LINES = re.compile(
    r"EngineCore (?:failed to start|hit an exception|encountered a fatal error|died)|WorkerProc (?:failed to start|hit an exception)"
    r"|Exception in worker|Error executing method|output_handler failed|Scheduler hit an exception|Received sigquit"
    r"|[Ww]orker proc .* died|died unexpectedly|Engine core proc|exited with code|[Ee]xit code|[Ee]xitcode|Main process exited"
    r"|Failed with result|Engine loop|Shutting down|shutting down|Initialization failed\. warmup error"
    r"|Worker \S+ pid \d+ died, exit code|failed \(exitcode|Sending process \d+ closing signal|Task exception was never retrieved"
    r"|Traceback \(most recent|^Process \S+:$|^[-=]{5,}$|Application startup failed|Exception in ASGI application|^\s*$"
    r"|Root Cause \(first observed|traceback : To enable traceback"
)
# Often the consequence of another process's death, or of a compiler that failed just before.
_SOFT_TYPES = frozenset({
    "CalledProcessError", "BrokenPipeError", "ConnectionResetError", "EOFError", "ActorDiedError", "RayActorError", "TimeoutError",
    "WorkerCrashedError", "RayChannelError", "RayChannelTimeoutError", "ConnectionRefusedError", "ContextTerminated", "Empty", "ResourceExhausted",
    "DistNetworkError", "UserCodeException",
})  # fmt: skip
_SOFT_MESSAGES = re.compile(
    r"Error building extension|Ninja build failed|[Cc]ompilation failed|Connection (?:closed|reset) by|Broken pipe|cancelled\b"
    r"|returned non-zero exit status|Worker failed with error|ninja: build stopped|subcommand failed|timed? ?out waiting for clients"
)
# Marks that a process or the whole run is dead.
DEATH = re.compile(
    r"EngineDeadError|Engine core initialization failed|Engine process failed to start|WorkerProc initialization failed"
    r"|EngineCore (?:failed to start|encountered a fatal error|hit an exception|died|encountered an issue)|Failed core proc"
    r"|Main process exited, code|exited with code [1-9]|died unexpectedly|core dumped|Segfault encountered|ChildFailedError"
    r"|Received sigquit|Application startup failed|Fatal Python error|^Process \S+:$|^Killed$|Engine loop has died|Failed with result"
    r"|terminate called|WorkerProc failed to start|Scheduler hit an exception|Background loop has errored|^Aborted\b"
)


def is_wrapper(type_: str | None, message: str) -> bool:
    """Whether an exception only says that something else failed."""
    short = (type_ or "").rsplit(".", 1)[-1].split("(")[0]
    return short in _TYPES or bool(_MESSAGES.search(message[:1000]))


def is_soft(type_: str | None, message: str) -> bool:
    """Whether an exception is usually the consequence of another one. Counts when it stands alone."""
    short = (type_ or "").rsplit(".", 1)[-1].split("(")[0]
    return short in _SOFT_TYPES or bool(_SOFT_MESSAGES.search(message[:1000]))


def is_announcement(body: str) -> bool:
    """Whether an ERROR line says nothing but that something failed."""
    return bool(_LINES.search(body[:1000]))
