"""A server that runs: its launch line, its variables, its interpreter, as the files of its process tell them."""

from __future__ import annotations

import os
import re
import shlex
from collections.abc import Iterable
from dataclasses import dataclass, replace
from pathlib import PurePosixPath

from hybridctl.doctor.facts.child import ChildError
from hybridctl.doctor.facts.command import parse_command
from hybridctl.doctor.facts.launchers import find_engine
from hybridctl.doctor.facts.local_container import CONTAINER_GROUP
from hybridctl.doctor.facts.local_gpus import parent_of
from hybridctl.doctor.facts.local_machine import Machine
from hybridctl.doctor.facts.local_packages import Interpreter, other_interpreter
from hybridctl.doctor.facts.local_read import local_fact
from hybridctl.doctor.facts.model import Fact
from hybridctl.doctor.facts.shell import split_commands
from hybridctl.doctor.findings import Unknown
from hybridctl.errors import UsageError
from hybridctl.secrets import hide

_SITE = re.compile(r"/\S*?/lib/python(3\.\d+)/(?:site|dist)-packages(?=/)")
_PYTHON = re.compile(r"python[\d.]*t?(?:\.exe)?")
_MAX_MAPS = 8 << 20
_MOST_STEPS = 64


@dataclass(frozen=True, slots=True)
class Server:
    """A process that an engine's launch line started."""

    pid: int
    asked: int
    """The process that the user named: this one, or one that it started or was started by."""
    launch: str
    """Its arguments as one line, without secrets."""
    machine: Machine
    foreign: bool
    """Its files are others than ours: it runs in a container."""
    closed: str = ""
    """Why its variables can't be read; empty when they can."""


def find_server(pid: int, machine: Machine) -> Server:
    """The server that process ``pid`` is, belongs to, or started.

    Raises:
        UsageError: there is no such process, this system has no ``/proc``, or nothing around it is an engine's server.
    """
    if not machine.exists("/proc/self"):
        raise UsageError(
            "--pid: needs the /proc folder of Linux", "hybridctl doctor --command 'vllm serve …' --env FILE"
        )
    if not machine.exists(f"/proc/{pid}"):
        raise UsageError(f"--pid: there is no process {pid}", "ps -ef | grep -iE 'vllm|sglang'")
    found = next((p for p in _upwards(pid, machine) if _launch(p, machine)), None) or _below(pid, machine)
    if found is None:
        name = " ".join(_arguments(pid, machine)[:3]) or machine.head(f"/proc/{pid}/comm").strip() or "a kernel thread"
        raise UsageError(
            f"--pid: process {pid} ({hide(name)[:80]}) is no server of a known engine, and none is around it",
            "ps -ef | grep -iE 'vllm|sglang'",
        )
    # A launcher (docker-init, sh -c, uv run) bears the whole line too; the Python that it started is the server.
    if not _is_python(found, machine):
        found = next((p for p in _downwards(found, machine) if _launch(p, machine) and _is_python(p, machine)), found)
    environ, closed = _environ(found, machine)
    there = replace(machine, environ=environ, proc=f"/proc/{found}")
    foreign = _is_foreign(found, machine)
    if foreign:
        root = machine.path(f"/proc/{found}/root")
        there = replace(there, root=root, outer=machine.root, libc="")
    return Server(found, pid, hide(shlex.join(_arguments(found, machine))), there, foreign, closed)


def _is_foreign(pid: int, machine: Machine) -> bool:
    """Whether it has a file system of its own. The link is closed to other users; what group it is in is not."""
    theirs, ours = machine.link(f"/proc/{pid}/ns/mnt"), machine.link("/proc/self/ns/mnt")
    if theirs and ours:
        return theirs != ours
    group = machine.head(f"/proc/{pid}/cgroup")
    return group != machine.head("/proc/self/cgroup") and CONTAINER_GROUP.search(group) is not None


def _upwards(pid: int, machine: Machine) -> Iterable[int]:
    """The process and those that started it. Workers have no arguments of their own: they show a title."""
    at: int | None = pid
    for _ in range(_MOST_STEPS):
        if not at or (at <= 1 and at != pid):
            return
        yield at
        at = parent_of(machine, at)


def _downwards(pid: int, machine: Machine) -> Iterable[int]:
    parents = {int(name): parent_of(machine, int(name)) for name in machine.names("/proc") if name.isdecimal()}
    generation = [pid]
    for _ in range(_MOST_STEPS):
        generation = [child for child, parent in parents.items() if parent in generation]
        yield from sorted(generation)
        if not generation:
            return


def _below(pid: int, machine: Machine) -> int | None:
    """The one server that the process started, directly or not.

    Raises:
        UsageError: there are several.
    """
    servers = [
        p for p in _downwards(pid, machine) if _launch(p, machine) and not _launch(parent_of(machine, p), machine)
    ]
    if len(servers) > 1:
        raise UsageError(
            f"--pid: process {pid} started several servers: {', '.join(map(str, servers))}",
            f"hybridctl doctor --pid {servers[0]}",
        )
    return servers[0] if servers else None


def _arguments(pid: int, machine: Machine) -> list[str]:
    return [word for word in machine.head(f"/proc/{pid}/cmdline").split("\0") if word]


def _launch(pid: int | None, machine: Machine) -> bool:
    """Whether the arguments of a process start an engine."""
    words = _arguments(pid, machine) if pid else []
    # Our own command line may name a launch line too; a title such as "VLLM::EngineCore" is one word.
    if len(words) < 2 or any("hybridctl" in word and "doctor" in words for word in words[:3]):
        return False
    commands = split_commands(shlex.join(words))
    return bool(commands) and find_engine(commands[0]) is not None


def _is_python(pid: int, machine: Machine) -> bool:
    words = _arguments(pid, machine)
    return bool(words) and _PYTHON.fullmatch(os.path.basename(words[0])) is not None  # noqa: PTH119


def _environ(pid: int, machine: Machine) -> tuple[dict[str, str], str]:
    path = machine.path(f"/proc/{pid}/environ")
    try:
        pairs = path.read_bytes().decode("utf-8", "replace").split("\0")
    except OSError as error:
        return {}, str(error.strerror or error).lower()
    return {name: value for name, _, value in (pair.partition("=") for pair in pairs) if name}, ""


def server_facts(server: Server) -> Iterable[Fact | Unknown]:
    """Its number and what its launch line says; and why its variables are not known."""
    quote = (
        f"process {server.pid}"
        if server.pid == server.asked
        else f"process {server.pid}, to which {server.asked} belongs"
    )
    yield local_fact("process.pid", server.pid, quote)
    yield local_fact("process.launch", server.launch, f"{quote}: {server.launch}")
    launch = parse_command(server.launch)
    yield from launch
    # In a text "--model /path/to/model" stands for some model; a process has opened that very path.
    if (model := launch.get("flag.model")) and launch.get("model.name") is None:
        yield Fact("model.name", str(model.value), model.origin)
    if server.closed:
        yield Unknown(
            f"variables of process {server.pid}",
            f"the rights of its user ({server.closed}): run hybridctl as that user, or with sudo",
        )


def interpreter_of(server: Server) -> Interpreter:
    """Its Python: asked where it is one of ours, else by the libraries that the process has loaded.

    Raises:
        ChildError: neither tells.
    """
    words = _arguments(server.pid, server.machine)
    problem = "it runs in a container" if server.foreign else "it belongs to another user"
    # Started by us, with our rights: only a program that the same user runs already.
    if words and not server.foreign and _is_ours(server):
        try:
            return other_interpreter(_program(words[0], server), server.machine.environ or None)
        except (UsageError, ChildError) as error:
            problem = str(error)
    found = _by_maps(server)
    if found is None:
        raise ChildError(f"{problem}, and its loaded libraries (/proc/{server.pid}/maps) name no site-packages")
    return found


def _is_ours(server: Server) -> bool:
    try:
        return server.machine.path(server.machine.proc).stat().st_uid == os.geteuid()
    except OSError:
        return False


def _program(word: str, server: Server) -> str:
    """The file of its first argument. ``/proc/N/exe`` would name the base Python of a virtual environment instead."""
    if "/" not in word:
        return server.machine.which(word) or word
    return str(PurePosixPath(server.machine.link(f"{server.machine.proc}/cwd") or "/", word))


def _by_maps(server: Server) -> Interpreter | None:
    """The folders of packages that its loaded libraries lie in."""
    text = server.machine.head(f"{server.machine.proc}/maps", _MAX_MAPS)
    folders = {found[0]: found[1] for found in _SITE.finditer(text)}
    if not folders:
        return None
    here = tuple(str(server.machine.path(folder)) for folder in folders)
    return Interpreter(next(iter(folders.values())), here, f"process {server.pid}")
