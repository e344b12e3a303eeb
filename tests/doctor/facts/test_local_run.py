"""Sources that fail, hang or refuse: what the others say is kept, and what is missing is named."""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Iterator

import pytest

from hybridctl.doctor.facts import collect_local
from hybridctl.doctor.facts.child import Child, ChildError
from hybridctl.doctor.facts.local_driver import SECONDS
from hybridctl.doctor.facts.local_read import local_fact
from hybridctl.doctor.facts.local_run import Source, ask
from hybridctl.doctor.facts.model import Fact
from hybridctl.doctor.findings import Unknown
from hybridctl.errors import UsageError

pytestmark = pytest.mark.lifecycle


def good() -> Iterator[Fact]:
    yield local_fact("platform.os", "linux", "linux")


def hangs() -> Iterator[Fact]:
    yield local_fact("platform.arch", "x86_64", "x86_64")
    time.sleep(30)
    yield local_fact("platform.kernel", "6.8", "6.8")


@pytest.mark.parametrize(
    "error", [OSError("gone"), ValueError("bad"), KeyError("k"), IndexError(), TypeError(), ZeroDivisionError()]
)
def test_a_source_that_fails_costs_its_facts_alone(error: Exception) -> None:
    def fails() -> Iterator[Fact]:
        yield local_fact("platform.arch", "x86_64", "x86_64")
        raise error

    facts, unknown = ask([Source("memory", fails), Source("system", good)])
    assert [fact.key for fact in facts] == ["platform.arch", "platform.os"]
    assert [item.check for item in unknown] == ["memory"]
    assert type(error).__name__ in unknown[0].needs


def test_a_source_that_hangs_costs_its_time_and_keeps_what_it_said() -> None:
    begin = time.monotonic()
    facts, unknown = ask([Source("disk", hangs, 0.2), Source("system", good)])
    assert time.monotonic() - begin < 2
    assert [fact.key for fact in facts] == ["platform.arch", "platform.os"]
    assert unknown == [Unknown("disk", "an answer; none came within 0.2 s")]


def test_all_sources_are_asked_side_by_side() -> None:
    begin = time.monotonic()
    _, unknown = ask([Source(str(i), hangs, 0.4) for i in range(8)])
    assert time.monotonic() - begin < 2
    assert len(unknown) == 8


def test_what_a_user_asked_wrongly_is_refused() -> None:
    def refuses() -> Iterator[Fact]:
        raise UsageError("no")
        yield

    with pytest.raises(UsageError):
        ask([Source("x", refuses), Source("system", good)])


def test_a_child_that_hangs_leaves_the_lines_that_it_wrote() -> None:
    script = "echo '{\"a\": 1}'; echo '{\"b\": 2}'; printf '{\"c\"'; exec sleep 30"
    begin = time.monotonic()
    documents, problem = Child(["/bin/sh", "-c", script], os.sep).documents(0.5)
    assert time.monotonic() - begin < 2
    assert documents == [{"a": 1}, {"b": 2}]
    assert problem == "no answer within 0.5 s"


def test_documents_of_a_child_that_ends_well_or_not() -> None:
    assert Child(["/bin/sh", "-c", "echo 1; echo [2]"], os.sep).documents(5) == ([1, [2]], "")
    assert Child(["/bin/sh", "-c", "echo 1; echo x; exit 4"], os.sep).documents(5) == ([1], "exit status 4: no message")
    assert Child(["/bin/sh", "-c", "echo 1; echo x"], os.sep).documents(5) == ([1], "its answer is no JSON")
    with pytest.raises(ChildError, match="can't run"):
        Child(["/no/such/program"], os.sep)


def test_a_driver_that_hangs_is_named_and_the_rest_is_known() -> None:
    begin = time.monotonic()
    child = Child([sys.executable, "-c", "import time; time.sleep(60)"], os.sep)
    facts, unknown = collect_local(driver=lambda: child.documents(SECONDS))
    assert time.monotonic() - begin < 2
    assert facts.value("platform.os")
    assert facts.has("pkg.")
    assert [item.needs for item in unknown if item.check == "NVIDIA driver and GPUs"] == [
        f"an answer of the driver: no answer within {SECONDS:g} s. nvidia-smi will hang or fail too"
    ]
