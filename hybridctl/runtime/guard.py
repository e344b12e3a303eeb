"""Stands between ``serve`` and vLLM, so that nothing of vLLM outlives a server, however ``serve`` ends.

Run as a script (``python -I -S guard.py PARENT GRACE REPORT_FD -- COMMAND…``) in a session of its own, from the main thread of
the parent: standard library only, a few megabytes. It asks the kernel for SIGTERM when that parent dies, adopts whatever processes
the command leaves behind, and ends them in order: the command first, which ends its workers, then what is left, then by force.
SIGTERM and SIGHUP: end; SIGINT: end, and once ending, at once; SIGUSR1: the command serves now.
Exit code: the command's, or 128 + the signal that ended it.
"""

from __future__ import annotations

import contextlib
import ctypes
import os
import signal
import sys
import time
from collections.abc import Callable

PR_SET_PDEATHSIG, PR_SET_CHILD_SUBREAPER = 1, 36
POLL = 0.25
SHARED = "/dev/shm/vllm_dist_"
"""Shared memory of vLLM's CPU ranks, which it leaves behind even when it ends in order."""
REST = 5.0
"""Seconds that leftover processes get between SIGTERM and SIGKILL. So does a command that does not serve yet and has lost all its
processes: vLLM's front end waits for ever for an engine that has failed, and there is no request to end in order."""
AGAIN = 0.1
"""Share of the grace between two SIGTERM to a command that does not serve yet: vLLM swallows one that comes while it waits for
its engine (``zmq_socket_ctx`` of its ``network_utils.py``), and would then wait for ten minutes. Once it serves, one is enough."""
TRACKERS = 2.0
"""Seconds that Python's resource trackers get, once nobody else is left, to remove the shared memory of those that were killed."""


def prctl(option: int, value: int) -> None:
    """Nothing where the system is not Linux: there the parent is polled."""
    if sys.platform.startswith("linux"):
        ctypes.CDLL(None, use_errno=True).prctl(option, value, 0, 0, 0)


def parents() -> dict[int, int]:
    """Parent of each process of this machine."""
    out = {}
    for name in os.listdir("/proc"):  # noqa: PTH208  (pathlib costs start-up time here)
        if name.isdigit():
            try:
                with open(f"/proc/{name}/stat", "rb") as handle:  # noqa: PTH123
                    fields = handle.read().rpartition(b")")[2].split()
            except OSError:
                continue  # gone meanwhile
            if fields[0] != b"Z":
                out[int(name)] = int(fields[1])
    return out


def descendants(root: int) -> list[int]:
    """All living processes below ``root``, zombies not counted."""
    tree, found, seen = parents(), [root], {root}
    for pid in found:
        for child, parent in tree.items():
            if parent == pid and child not in seen:
                seen.add(child)
                found.append(child)
    return found[1:]


def send(pids: list[int], number: int) -> None:
    for pid in pids:
        try:
            os.kill(pid, number)
        except ProcessLookupError:
            continue


def start(command: list[str]) -> int:
    pid = os.fork()
    if pid:
        return pid
    guard = os.getppid()
    os.setpgid(0, 0)
    prctl(PR_SET_PDEATHSIG, signal.SIGTERM)
    if os.getppid() != guard:
        os._exit(143)
    signal.pthread_sigmask(signal.SIG_SETMASK, [])
    try:
        os.execvp(command[0], command)
    except OSError as error:
        os.write(2, f"hybridctl: can't start {command[0]}: {error.strerror}\n".encode())
    os._exit(127)


def reap(main: int) -> int | None:
    """Collect dead children. The exit code of ``main`` if it is among them."""
    code = None
    while True:
        try:
            pid, status = os.waitpid(-1, os.WNOHANG)
        except ChildProcessError:
            return code
        if pid == 0:
            return code
        if pid == main:
            code = os.waitstatus_to_exitcode(status)


def is_tracker(pid: int) -> bool:
    """Whether it is the process by which multiprocessing cleans up after its others. It ends by itself, as the last of them."""
    try:
        with open(f"/proc/{pid}/cmdline", "rb") as handle:  # noqa: PTH123
            return b"multiprocessing.resource_tracker" in handle.read()
    except OSError:
        return False  # gone meanwhile


def kill(living: Callable[[], list[int]], wait: Callable[[float], object]) -> None:
    """End by force all that ``living`` gives, and do not return before they are gone."""
    deadline = None
    while left := living():
        others = [pid for pid in left if not is_tracker(pid)]
        if deadline is None and not others:
            deadline = time.monotonic() + TRACKERS
        send(left if deadline is not None and time.monotonic() > deadline else others, signal.SIGKILL)
        wait(0.05)


def clear(seconds: float, wait: Callable[[float], object]) -> None:
    """End whatever is still below this process."""
    left = descendants(os.getpid())
    send(left, signal.SIGTERM)
    deadline = time.monotonic() + (seconds if left else 0.0)
    while left and time.monotonic() < deadline:
        wait(0.1)
        left = descendants(os.getpid())
    kill(lambda: descendants(os.getpid()), wait)


def shared_memory(pids: list[int]) -> set[str]:
    """Files of shared memory of vLLM's CPU ranks that processes have mapped."""
    found = set()
    for pid in pids:
        try:
            with open(f"/proc/{pid}/maps", encoding="utf-8", errors="replace") as handle:  # noqa: PTH123
                found |= {SHARED + line.rstrip("\n").partition(SHARED)[2] for line in handle if SHARED in line}
        except OSError:
            continue
    return {path.removesuffix(" (deleted)") for path in found}


def unlink(paths: set[str]) -> None:
    for path in paths:
        with contextlib.suppress(OSError):
            os.unlink(path)  # noqa: PTH108


def main(argv: list[str]) -> int:
    parent, grace, report = int(argv[0]), float(argv[1]), int(argv[2])
    asking = {signal.SIGTERM, signal.SIGINT, signal.SIGHUP}
    signals = {*asking, signal.SIGUSR1, signal.SIGCHLD}
    signal.pthread_sigmask(signal.SIG_BLOCK, signals)
    prctl(PR_SET_PDEATHSIG, signal.SIGTERM)
    prctl(PR_SET_CHILD_SUBREAPER, 1)
    child = start(argv[4:])
    with contextlib.suppress(OSError):  # nobody reads any more: the parent is looked for below
        os.write(report, f"{child}\n".encode())
    os.close(report)
    deadline = again = alone = float("inf")
    serves = False
    begun = time.monotonic()
    look, shared = 5.0, set[str]()
    while True:
        got = signal.sigtimedwait(signals, POLL)
        number = got.si_signo if got is not None else 0
        now = time.monotonic()
        if now - begun > look:
            look = look + 5.0 if look < 120.0 else look * 2.0  # ranks map theirs once, while they start
            shared |= shared_memory(descendants(os.getpid()))
        serves = serves or number == signal.SIGUSR1
        if deadline < float("inf"):
            if number == signal.SIGINT:
                deadline = 0.0  # asked again: no more patience
            elif now > again:
                send([child], signal.SIGTERM)
                again = now + AGAIN * grace
            if serves or any(pid != child and not is_tracker(pid) for pid in descendants(os.getpid())):
                alone = float("inf")
            elif alone == float("inf"):
                alone = now
            elif now - alone > REST:
                deadline = min(deadline, now)
        elif os.getppid() != parent or number in asking:
            shared |= shared_memory(descendants(os.getpid()))
            send([child], signal.SIGTERM)
            deadline, again = now + grace, float("inf") if serves else now + AGAIN * grace
        code = reap(child)
        if code is not None:
            shared |= shared_memory(descendants(os.getpid()))
            break
        if now > deadline:
            send([pid for pid in descendants(os.getpid()) if not is_tracker(pid)], signal.SIGKILL)

    def wait(seconds: float) -> None:
        signal.sigtimedwait({signal.SIGCHLD}, seconds)
        reap(0)

    clear(REST if deadline > 0 else 0.0, wait)
    unlink(shared)
    return code if code >= 0 else 128 - code


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
