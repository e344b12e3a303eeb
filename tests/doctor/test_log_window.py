"""Lines of a log by their numbers: the same numbers as the log reader counts, whatever the line ends and the size."""

from __future__ import annotations

import io

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hybridctl.doctor import log_window
from hybridctl.doctor.log_window import MAX_LINE, window
from hybridctl.doctor.logs import read_log


def lines(text: str, first: int, last: int, end: int = 0) -> list[tuple[int, str]]:
    return window(io.BytesIO(text.encode()), first, last, end)


TEN = "".join(f"line {i}\n" for i in range(1, 11))


@pytest.mark.parametrize(
    ("first", "last", "end", "numbers"),
    [
        (3, 5, 0, [3, 4, 5]),
        (1, 1, 2, [1, 9, 10]),
        (8, 12, 3, [8, 9, 10]),
        (1, 0, 0, []),
        (20, 30, 1, [10]),
        (1, 99, 99, list(range(1, 11))),
    ],
)
def test_the_lines_asked_for(first: int, last: int, end: int, numbers: list[int]) -> None:
    assert lines(TEN, first, last, end) == [(n, f"line {n}") for n in numbers]
    assert lines(TEN[:-1], first, last, end) == [(n, f"line {n}") for n in numbers]  # no break at the very end


def test_codes_and_progress_bars_and_long_lines() -> None:
    text = "a\r\n\x1b[31mred\x1b[0m\r\n 1%|\r 50%|\r100%|\n" + "x" * 5000 + "\n"
    assert lines(text, 1, 9) == [(1, "a"), (2, "red"), (3, "100%|"), (4, "x" * (MAX_LINE - 1) + "…")]


@given(
    st.text(alphabet="a\n\r🙂", max_size=60),
    st.integers(1, 12),
    st.integers(0, 12),
    st.integers(0, 5),
    st.integers(1, 7),
)
def test_pieces_of_any_size_give_the_same(text: str, first: int, last: int, end: int, size: int) -> None:
    data = text.encode()
    whole = [part.rstrip(b"\r").rpartition(b"\r")[2] for part in data.split(b"\n")]
    if not whole[-1] and not data.endswith(b"\r"):
        whole = whole[:-1]
    wanted = {n for n in range(1, len(whole) + 1) if first <= n <= last or n > len(whole) - end}
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(log_window, "CHUNK", size)
        found = window(io.BytesIO(data), first, last, end)
    if data.endswith(b"\r"):
        return  # a line that is still being written
    assert [n for n, _ in found] == sorted(wanted)
    assert all(text == whole[n - 1].decode("utf-8", "replace").rstrip() for n, text in found)


def test_the_numbers_are_those_of_the_reader() -> None:
    noise = "".join(f"INFO 11-24 09:13:32 [x.py:1] step {i}\r\n" for i in range(40_000))
    text = noise + "ValueError: max_num_seqs (1024) exceeds available Mamba cache blocks (856).\n" + noise
    reading = read_log(io.BytesIO(text.encode()), [], frozenset())
    assert reading.innermost is not None
    found = dict(lines(text, reading.innermost.line, reading.innermost.line))
    assert found == {40_001: "ValueError: max_num_seqs (1024) exceeds available Mamba cache blocks (856)."}
