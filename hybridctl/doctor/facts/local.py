"""Facts of this machine, of one Python environment on it, or of a server that runs on it."""

from __future__ import annotations

from collections.abc import Callable, Iterable

from hybridctl.doctor.facts.child import ChildError
from hybridctl.doctor.facts.local_container import container_facts
from hybridctl.doctor.facts.local_cuda import toolkit_facts
from hybridctl.doctor.facts.local_disk import disk_facts
from hybridctl.doctor.facts.local_dists import plugin_facts
from hybridctl.doctor.facts.local_driver import Answers, ask_driver
from hybridctl.doctor.facts.local_environ import variable_facts
from hybridctl.doctor.facts.local_hub import cached_facts, hub_facts
from hybridctl.doctor.facts.local_libraries import library_facts
from hybridctl.doctor.facts.local_machine import Machine, this_machine
from hybridctl.doctor.facts.local_memory import memory_facts
from hybridctl.doctor.facts.local_network import network_facts
from hybridctl.doctor.facts.local_nvml import gpu_source
from hybridctl.doctor.facts.local_packages import Interpreter, other_interpreter, package_facts, this_interpreter
from hybridctl.doctor.facts.local_python import python_facts
from hybridctl.doctor.facts.local_run import Asking, Source, ask
from hybridctl.doctor.facts.local_system import system_facts
from hybridctl.doctor.facts.local_vllm import vllm_facts
from hybridctl.doctor.facts.local_wsl import wsl_facts
from hybridctl.doctor.facts.model import Fact, Facts
from hybridctl.doctor.findings import Unknown

_OF_DRIVER, _OF_PYTHON = 1.4, 4.0
"""Seconds: a little more than the limits of the children that these sources wait for."""


class Look:
    """A look at the machine that has begun; what it sees is ready when it is asked for."""

    def __init__(self, asking: Asking) -> None:
        self._asking = asking

    def finish(self) -> tuple[Facts, list[Unknown]]:
        """The facts, and what could not be looked at.

        Raises:
            UsageError: the interpreter that was named is none.
        """
        facts, unknown = self._asking.answers()
        return Facts(facts), unknown


def begin_local(
    python: str | None = None,
    pid: int | None = None,
    machine: Machine | None = None,
    driver: Callable[[], Answers] | None = None,
    interpreter: Interpreter | None = None,
) -> Look:
    """Begin to look at the machine. It takes as long as its slowest source: at most 1.4 s, and 4 s for another Python.

    Args:
        python: another interpreter whose packages are to be read, or the folder of its virtual environment.
        pid: a server that runs: its variables, limits and packages count, and its launch line.
        machine: another machine than this one (tests hand over recorded ones).
        driver: waits for what the NVIDIA driver says; the question goes out now by default.
        interpreter: a Python that is known already.

    Raises:
        UsageError: ``pid`` is no server.
    """
    driver = driver or ask_driver()
    machine = machine or this_machine()
    started: list[Source] = []
    find: Callable[[], Interpreter] = lambda: interpreter or this_interpreter()  # noqa: E731
    open_to_us = True
    if pid is not None:
        from hybridctl.doctor.facts.local_process import find_server, interpreter_of, server_facts

        server = find_server(pid, machine)
        machine, open_to_us = server.machine, not server.closed
        started.append(Source("launch line", lambda: server_facts(server)))
        find = lambda: interpreter_of(server)  # noqa: E731
    elif python is not None:
        find = lambda: other_interpreter(python)  # noqa: E731

    def environment() -> Iterable[Fact | Unknown]:
        try:
            found = find()
        except ChildError as error:
            yield Unknown("installed packages", f"an answer of the interpreter: {error}")
            return
        facts, missing = package_facts(found)
        yield from facts
        yield from missing
        yield from plugin_facts(found.path)
        if open_to_us:
            yield from python_facts(found, machine)
        yield from vllm_facts(found.path)

    sources = [
        Source("NVIDIA driver and GPUs", lambda: gpu_source(machine, driver), _OF_DRIVER),
        Source("operating system", lambda: system_facts(machine)),
        Source("WSL", lambda: wsl_facts(machine)),
        Source("container", lambda: container_facts(machine)),
        Source("host memory", lambda: memory_facts(machine)),
        Source("network", lambda: network_facts(machine)),
        Source("installed packages", environment, _OF_PYTHON),
    ]
    # Of a process whose variables are closed to us, nothing is known that follows from them.
    by_variables = [
        Source("CUDA toolkit", lambda: toolkit_facts(machine)),
        Source("library path", lambda: library_facts(machine)),
        Source("cache of models", lambda: disk_facts(machine)),
        Source("hub settings", lambda: hub_facts(machine)),
        Source("variables", lambda: variable_facts(machine)),
    ]
    return Look(Asking([*started, *sources, *(by_variables if open_to_us else [])]))


def collect_local(
    python: str | None = None,
    pid: int | None = None,
    machine: Machine | None = None,
    driver: Callable[[], Answers] | None = None,
    interpreter: Interpreter | None = None,
) -> tuple[Facts, list[Unknown]]:
    """Look at the machine and wait: :func:`begin_local` and :meth:`Look.finish` at once."""
    return begin_local(python, pid, machine, driver, interpreter).finish()


def collect_cached(model: str) -> list[Fact]:
    """Whether the cache of this machine holds the model that the user speaks of."""
    return ask([Source("cache of models", lambda: cached_facts(this_machine(), model))])[0]
