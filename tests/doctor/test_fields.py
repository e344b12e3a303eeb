"""Labelled rows: prose wraps beside its label; commands and addresses stay in one piece."""

from __future__ import annotations

import pytest
from rich.table import Table
from rich.text import Text

from hybridctl.doctor.fields import Roomy, fields, whole
from hybridctl.output import Output

COMMAND = "uv pip install 'vllm==0.22.0' --torch-backend=cu129 --extra-index-url https://example.org/0.22.0/cu129"


def test_a_command_is_neither_cut_nor_broken(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", "40")
    Output().show(
        *fields([("why", Text("word " * 20)), ("fix", whole(COMMAND)), ("", Text("after"))], indent=3, width=7, gap=1)
    )
    lines = capsys.readouterr().out.splitlines()
    assert f"   fix     {COMMAND}" in lines
    assert "           after" in lines


def test_prose_wraps_within_the_width_beside_its_label(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", "40")
    Output().show(*fields([("why", Text("word " * 20)), ("longer", Text("x"))]))
    lines = capsys.readouterr().out.splitlines()
    assert lines[0].startswith("why     word")
    assert lines[1].startswith("        word")
    assert max(map(len, lines)) <= 40
    assert lines[-1] == "longer  x"


def test_a_narrow_terminal_gets_whole_words_instead_of_columns(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    table = Table(box=None)
    for column in ("family", "layers"):
        table.add_column(column)
    table.add_row("granite", Text("full attention"))
    monkeypatch.setenv("COLUMNS", "20")
    Output().show(Roomy(table, 40), *fields([("layers", Text("16 full attention (from full_attention)"))]))
    told = capsys.readouterr().out
    assert told.startswith("granite\n  layers full\n  attention\nlayers\n  16 full attention")
    assert "(from\n  full_attention)" in told
    monkeypatch.setenv("COLUMNS", "60")
    Output().show(Roomy(table, 40))
    assert "family" in capsys.readouterr().out.splitlines()[0]
