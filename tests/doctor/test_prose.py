"""Runbooks on a terminal: width in cells, Chinese line breaks, commands in one piece."""

from __future__ import annotations

import io
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st
from rich.cells import cell_len
from rich.console import Console

from hybridctl.doctor import runbooks
from hybridctl.doctor.prose import as_terminal, as_text, breaks

PAGES = runbooks.load().pages
NEVER_FIRST = "，。；：！？、）》」』】"


def drawn(markdown: str, width: int) -> list[str]:
    console = Console(file=io.StringIO(), width=width, force_terminal=False, highlight=False, markup=False)
    for item in as_terminal(markdown):
        whole = getattr(item, "no_wrap", False)
        console.print(item, **({"no_wrap": True, "overflow": "ignore", "crop": False} if whole else {}))
    out: str = console.file.getvalue()  # type: ignore[attr-defined]
    return [line.rstrip() for line in out.rstrip().splitlines()]


def test_list_items_hang_and_code_is_not_torn() -> None:
    source = "1. First run `hybridctl runbook oom` and read.\n   It goes on.\n2. Then [slow](slow.md), see [x](https://e.org/x)."
    assert drawn(source, 34) == [
        "1. First run hybridctl runbook oom", "   and read. It goes on.", "2. Then slow, see x", "   (https://e.org/x).",
    ]  # fmt: skip


def test_commands_are_printed_whole() -> None:
    command = "$ vllm serve MODEL --max-num-seqs 64 --gpu-memory-utilization 0.85 --max-model-len 65536"
    assert f"    {command}" in drawn(f"Text.\n\n```console gpu\n{command}\n```\n", 40)


def test_chinese_is_broken_between_characters_and_not_before_punctuation() -> None:
    assert drawn("启动那一刻空闲显存不够，多半是被别的进程占着。", 20) == [
        "启动那一刻空闲显存不",
        "够，多半是被别的进程",
        "占着。",
    ]
    assert drawn("一二三四五六七八九，十。", 18) == ["一二三四五六七八", "九，十。"]
    assert drawn("用 `a b` 以后再看vLLM的日志", 12) == ["用 a b 以后", "再看vLLM的日", "志"]


def test_chinese_lines_of_the_source_are_joined_without_a_blank() -> None:
    assert drawn("第一行\n第二行\nword\nword", 60) == ["第一行第二行 word word"]


@pytest.mark.parametrize("width", [40, 80])
@pytest.mark.parametrize("name", sorted(PAGES))
def test_pages_keep_to_the_width(name: str, width: int) -> None:
    page = PAGES[name]
    lines = drawn(page.text, width)
    prose = [line for line in lines if not line.startswith("    ")]
    assert max(map(cell_len, prose)) <= width
    assert [line for line in prose if line.lstrip()[:1] in NEVER_FIRST and line.strip()] == []


def test_text_for_a_pipe_keeps_commands_and_drops_our_links() -> None:
    text = as_text(PAGES["oom"].text)
    assert "$ hybridctl doctor" in text
    assert ".toml)" not in text and ".md)" not in text
    assert as_text("[a](a.md) [b](https://b.org)") == "a [b](https://b.org)"


# Without what joins its neighbours: how wide that is differs with the release of rich, and no runbook has it.
PLAIN = st.characters(exclude_categories=("Cs", "Cc", "Cf", "Mn", "Me", "Mc"))


@given(st.text(PLAIN, max_size=120), st.integers(min_value=2, max_value=60))
def test_any_text_breaks_into_pieces_that_fit(text: str, width: int) -> None:
    text = " ".join(text.split())
    places = breaks(text, width)
    assert places == sorted(set(places))
    ends = [0, *places, len(text)]
    pieces = [text[a:b] for a, b in pairwise(ends)]
    assert "".join(pieces) == text
    assert all(cell_len(piece.rstrip(" ")) <= width for piece in pieces)
