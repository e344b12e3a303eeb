"""One run of ``hybridctl verify``: which servers it needs, and when each of them lives."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from hybridctl.errors import UsageError
from hybridctl.runtime import verify
from hybridctl.runtime.borrowed import borrowed
from hybridctl.runtime.http import Client
from hybridctl.runtime.verify_report import Report


@dataclass(frozen=True)
class Request:
    """What the user typed: a server or a model, and the options. ``extra``: flags for the vLLM that is started."""

    what: str | None = None
    model: str | None = None
    against: str | None = None
    api_key: str | None = None
    windows: int = 4
    python: str | None = None
    extra: tuple[str, ...] = ()


def run(request: Request, say: Callable[[str], None]) -> Report:
    """Verify.

    Args:
        say: takes a line before each part.

    Raises:
        HybridctlError: a server that does not come up, or does not answer.
    """
    against = request.against
    if against is not None and against != verify.NO_HYBRID and not verify.is_address(against):
        raise UsageError(f"--against {against}: allowed are {verify.NO_HYBRID} and an address", "--against no-hybrid")
    subject = verify.running(request.what, request.model)
    if subject is None:
        checkpoint = verify.named(str(request.what))
        if checkpoint.dispatcher() is None:
            raise UsageError(f"{checkpoint.name} declares no routing (hybrid_config): there is nothing to verify")
        with borrowed(checkpoint, say, request.python, extra=request.extra) as url:
            found = verify.verify(verify.Subject(url, checkpoint), request.api_key, request.windows, say)
    else:
        checkpoint = subject.checkpoint
        if against == verify.NO_HYBRID:
            _refuse_two(subject)
        elif request.extra or request.python:
            raise UsageError("a server runs already: flags and --python are for one that verify starts")
        found = verify.verify(subject, request.api_key, request.windows, say)
    report, asked = found
    if against == verify.NO_HYBRID:
        with borrowed(checkpoint, say, request.python, no_hybrid=True, extra=request.extra) as url:
            verify.compare(report, asked, Client(url, request.api_key), "--no-hybrid", say)
    elif against is not None:
        verify.compare(report, asked, Client(against, request.api_key), against, say)
    return report


def _refuse_two(subject: verify.Subject) -> None:
    """Two servers of one model beside each other: vLLM takes most of a device's memory for each. The demo on a CPU takes 1 GiB."""
    if not subject.own or subject.checkpoint.demo:
        return
    raise UsageError(
        f"{subject.url} holds the memory that a second server needs",
        f"stop it, then hybridctl verify {subject.checkpoint.location} --against {verify.NO_HYBRID}: one after the other",
    )
