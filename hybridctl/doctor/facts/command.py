"""Reads a launch line: shell, PowerShell, cmd, Docker, compose, Kubernetes, a YAML of flags, pip, or a Python call."""

from __future__ import annotations

import re

from hybridctl.doctor.facts.command_docker import read_run, state_devices
from hybridctl.doctor.facts.command_install import read_install
from hybridctl.doctor.facts.command_python import read_python
from hybridctl.doctor.facts.command_yaml import read_yaml
from hybridctl.doctor.facts.draft import Draft
from hybridctl.doctor.facts.launch_facts import Resolve, state_contained, state_launch
from hybridctl.doctor.facts.launchers import Launch, find_container, find_engine, find_install, shell_script
from hybridctl.doctor.facts.model import Facts
from hybridctl.doctor.facts.shell import MAX_TEXT, Word, split_commands, words_inside
from hybridctl.patterns import late

_ANSI = late(r"\x1b\[[0-9;?]{0,32}[ -/]?[@-~]")
_ASSIGNMENT = late(r"(?:\$env:)?([A-Za-z_]\w{0,127})=(.*)", re.DOTALL)
_REFERENCE = late(r"\$(?:env:)?\{?([A-Za-z_]\w{0,127})(?::?-([^{}]{0,200}))?\}?|%([A-Za-z_]\w{0,127})%")
_EXPORTS = {"export", "set", "declare", "typeset", "env", "setenv", "setx"}
# Variables that mean something to an engine even where nobody wrote "export".
_KNOWN_VARIABLES = late(
    r"(?:VLLM|NCCL|CUDA|HF|TORCH|TORCHINDUCTOR|PYTORCH|SGLANG|SGL|TRITON|HIP|ROCR|HSA|GLOO|FLASHINFER|TRANSFORMERS|OLLAMA|LLAMA|OMP|"
    r"RAY|NVIDIA|DG)_\w+|(?:LD_LIBRARY_PATH|PYTHONPATH|MAX_JOBS)"
)
_MAX_VARIABLE, _MAX_RESOLVED = 2000, 8192


def parse_command(text: str, source: str = "command") -> Facts:
    """Every fact that a launch line states, each quoted verbatim from the text (without ANSI codes). Never raises.

    Text that starts no engine and installs nothing gives no facts.
    """
    text = _ANSI.sub("", text[:MAX_TEXT])
    draft = Draft(text, source)
    if read_yaml(text, draft):
        return draft.facts
    commands = _with_scripts(split_commands(text), text)
    variables = _variables(commands)
    launched = _launch(commands, draft, _resolver(variables))
    if not launched:
        launched = read_python(text, draft)
    installed = _install(commands, draft, launched)
    if launched or installed or len(draft.facts):
        _exported(commands, draft)
    return draft.facts


def looks_like_command(text: str) -> bool:
    """Whether the text starts an engine or installs one."""
    return parse_command(text).get("command.form") is not None


def _with_scripts(commands: list[list[Word]], text: str) -> list[list[Word]]:
    """The commands, and those inside ``bash -c "…"``, in order. A container's script stays with its container."""
    out: list[list[Word]] = []
    for words in commands:
        script = shell_script(words)
        if script is not None and find_container(words) is None:
            out += words_inside(script, text)
        else:
            out.append(words)
    return out


def _launch(commands: list[list[Word]], draft: Draft, resolve: Resolve) -> bool:
    """State the first command that serves; one that only measures counts when none does."""
    measuring: tuple[Launch, list[Word]] | None = None
    container: Draft | None = None
    for words in commands:
        at = find_container(words)
        if at is not None:
            inside = draft.branch()
            if state_contained(read_run(words[at:], inside), "docker", inside, resolve):
                draft.facts.extend(inside.facts)
                return True
            container = container or inside
            continue
        launch = find_engine(words)
        if launch is None:
            continue
        if launch.form == "bench":
            measuring = measuring or (launch, words)
        elif state_launch(launch, words, launch.form, draft, resolve):
            _prefix(words[: launch.start], draft)
            return True
    if measuring is not None and state_launch(*measuring, "bench", draft, resolve):
        return True
    if container is not None:
        draft.facts.extend(container.facts)
    return False


def _install(commands: list[list[Word]], draft: Draft, launched: bool) -> bool:
    installed = False
    for words in commands:
        at = find_install(words)
        if at is not None and read_install(words[at:], draft):
            installed = True
            if not launched:
                draft.say("command.form", "pip", words[0].start, words[at - 1].end)
    return installed


def _prefix(words: list[Word], draft: Draft) -> None:
    """``VAR=1`` before the program, also behind ``env``, ``sudo`` and the like."""
    for word in words:
        if m := _ASSIGNMENT.fullmatch(word.value):
            _say_variable(m[1], m[2], word.start, word.end, draft)


def _say_variable(name: str, value: str, start: int, end: int, draft: Draft) -> None:
    draft.say_env(name, value, start, end)
    state_devices(name, value, start, end, draft)


def _assignments(words: list[Word]) -> list[tuple[str, str, Word, Word, bool]]:
    """``(name, value, first word, last word, exported)`` of a command that only sets variables."""
    while words and words[0].value in ("$", "#", ">", "%"):
        words = words[1:]
    if not words:
        return []
    head = words[0].value
    if head in _EXPORTS or head == "ENV":
        found = [(m[1], m[2], w, w, True) for w in words[1:] if (m := _ASSIGNMENT.fullmatch(w.value))]
        if not found and len(words) == 3 and head in ("setenv", "setx", "ENV"):
            found = [(words[1].value, words[2].value, words[1], words[2], True)]
        return found
    if head.startswith("$env:"):
        joined = "".join(w.value for w in words)
        m = _ASSIGNMENT.fullmatch(joined)
        return [(m[1], m[2], words[0], words[-1], True)] if m else []
    plain = [
        (m[1], m[2], w, w, bool(_KNOWN_VARIABLES.fullmatch(m[1])))
        for w in words
        if (m := _ASSIGNMENT.fullmatch(w.value))
    ]
    return plain if len(plain) == len(words) else []


def _exported(commands: list[list[Word]], draft: Draft) -> None:
    for words in commands:
        for name, value, first, last, exported in _assignments(words):
            if exported:
                _say_variable(name, value, first.start, last.end, draft)


def _variables(commands: list[list[Word]]) -> dict[str, str]:
    found: dict[str, str] = {}
    for words in commands:
        for name, value, _, _, _ in _assignments(words):
            if len(value) <= _MAX_VARIABLE:
                found[name] = value
    return found


def _resolver(variables: dict[str, str]) -> Resolve:
    """Puts in the variables that the text itself sets; others stay as they are."""

    def replace(match: re.Match[str]) -> str:
        known = variables.get(match[1] or match[3] or "")
        return known if known is not None else match[2] if match[2] is not None else match[0]

    def resolve(value: str) -> str:
        if ("$" not in value and "%" not in value) or len(value) > _MAX_VARIABLE:
            return value
        once = _REFERENCE.sub(replace, value)[:_MAX_RESOLVED]
        return _REFERENCE.sub(replace, once)[:_MAX_RESOLVED] if len(once) <= _MAX_VARIABLE else once

    return resolve
