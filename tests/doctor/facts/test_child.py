"""Whatever program is asked, there is an answer or a reason, in time and in little memory."""

import os
import time

import pytest

from hybridctl.doctor.facts.child import Child, ChildError

pytestmark = pytest.mark.lifecycle


def ask(script: str, seconds: float = 5.0) -> object:
    return Child(["/bin/sh", "-c", script], os.sep).answer(seconds)


def test_the_answer_is_read_however_it_is_written() -> None:
    assert ask('printf "["; sleep 0.05; echo "1]"; echo noise >&2') == [1]


@pytest.mark.parametrize(
    ("script", "reason"),
    [
        ("cat /dev/zero", "too long"),
        ("cat /dev/zero >&2", "too long"),
        ("head -c 500000 /dev/zero | tr '\\0' '['", "no JSON"),
        ("echo x", "no JSON"),
        ("echo one >&2; echo two >&2; exit 3", "exit status 3: two"),
    ],
)
def test_what_is_no_answer_has_a_reason(script: str, reason: str) -> None:
    with pytest.raises(ChildError, match=reason):
        ask(script)


@pytest.mark.parametrize("script", ["exec sleep 20", "sleep 20 & exec sleep 20", "exec >&- 2>&-; exec sleep 20"])
def test_a_program_that_hangs_is_left(script: str) -> None:
    begin = time.monotonic()
    with pytest.raises(ChildError, match="no answer"):
        ask(script, 0.5)
    assert time.monotonic() - begin < 3
