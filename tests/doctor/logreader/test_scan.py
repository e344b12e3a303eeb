"""No needle is missed, wherever it stands; what is skipped costs nothing."""

# ruff: noqa: E501  (recorded lines)
from __future__ import annotations

import io
import random

from hypothesis import given, settings
from hypothesis import strategies as st

from hybridctl.doctor.logreader import scan as scanning
from hybridctl.doctor.logreader.scan import scan

NEEDLES = dict.fromkeys(
    ["Error 803: system", "sm_120 is bad", "face-cafe", "no kernel image", "dead beef 12", "not divisible"], (0,)
)


def _filler(random_: random.Random, lines: int) -> list[str]:
    return [
        f"(APIServer pid=1) INFO 09-22 {random_.randrange(24):02}:10:{random_.randrange(60):02} [l.py:12] request "
        f"chatcmpl-{random_.getrandbits(128):032x} Error {random_.choice([801, 802, 804])}: none sm_{random_.randrange(100)} is fine"
        for _ in range(lines)
    ]


@given(st.integers(0, 2**32), st.sampled_from(sorted(NEEDLES)), st.integers(4000, 16000))
@settings(max_examples=12, deadline=None)
def test_a_needle_in_the_middle_is_found(seed: int, needle: str, place: int) -> None:
    lines = _filler(random.Random(seed), 20_000)  # about 2.5 MB: beyond head, tail and several chunks
    lines[place] = f"(EngineCore pid=2) WARNING 09-22 10:10:10 [a.py:1] see {needle} here"
    kept = dict(scan(io.BytesIO("\n".join(lines).encode()), NEEDLES).lines)
    assert needle in kept[place + 1]
    assert len(kept) < 12_000


def test_a_needle_on_a_common_shape_is_found() -> None:
    lines = [f"status Error 80{i % 3}: none of it" for i in range(200_000)]
    lines[100_000] = "status Error 803: none of it"
    kept = dict(scan(io.BytesIO("\n".join(lines).encode()), {"Error 803": (0,)}).lines)
    assert kept[100_001] == lines[100_000]


def test_lines_around_an_error_are_kept() -> None:
    lines = _filler(random.Random(1), 20_000)
    lines[10_000:10_004] = [
        "Traceback (most recent call last):",
        '  File "x", line 1',
        "    odd code",
        "weird.Thing: gone",
    ]
    kept = dict(scan(io.BytesIO("\n".join(lines).encode()), {}).lines)
    assert [kept[10_001 + i] for i in range(4)] == lines[10_000:10_004]


def test_line_numbers_survive_chunks_and_carriage_returns() -> None:
    lines = [f"row {i}" + ("\r" if i % 3 else "") for i in range(300_000)]
    lines[200_000] = "a needle here\r"
    found = scan(io.BytesIO("\n".join(lines).encode()), {"needle here": (0,)})
    assert found.total == 300_000
    assert dict(found.lines)[200_001] == "a needle here"


def test_memory_is_bounded_when_every_line_is_new(monkeypatch) -> None:  # type: ignore[no-untyped-def]
    monkeypatch.setattr(scanning, "SHAPE_BYTES", 100_000)
    source = random.Random(3)
    lines = ["".join(source.choices("ghijklmnopqrstuvwxyz ", k=60)) for _ in range(40_000)]
    lines[20_000] = "here: not divisible"
    kept = dict(scan(io.BytesIO("\n".join(lines).encode()), NEEDLES).lines)
    assert kept[20_001] == lines[20_000]
