import io
import json
import sys

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hybridctl.output import Output, plain


@pytest.mark.parametrize("text", ["[core.py:1510]", "[/usr/lib]", "[bold]x[/bold]", "a [link=x] b", ":smile:"])
def test_foreign_text_is_not_markup(text: str, capsys: pytest.CaptureFixture[str]) -> None:
    Output("human").show(text)
    assert capsys.readouterr().out.strip() == text


@pytest.mark.parametrize("text", ["\x1b[31mred\x1b[0m", "\x1b]0;title\x07red", "re\x08d\x9b", "\u202ered"])
def test_control_codes_are_taken_out(text: str) -> None:
    assert not set(plain(text)) & set("\x1b\x07\x08\x9b\u202e")
    assert "re" in plain(text)


@given(st.text())
def test_plain_text_has_no_control_code_left(text: str) -> None:
    assert not any(c < " " and c not in "\t\n" for c in plain(text))


def test_json_is_the_only_thing_on_stdout(capsys: pytest.CaptureFixture[str]) -> None:
    out = Output("json")
    out.show("not this")
    out.note("a hint")
    out.json({"a": "é"})
    captured = capsys.readouterr()
    assert json.loads(captured.out) == {"a": "é"}
    assert captured.err == "a hint\n"


def test_quiet_says_errors_only(capsys: pytest.CaptureFixture[str]) -> None:
    out = Output("quiet")
    out.show("x")
    out.note("y")
    out.error("z\nz", "try this")
    assert capsys.readouterr() == ("", "error: z z; next: try this\n")


def test_ascii_streams_get_ascii(monkeypatch: pytest.MonkeyPatch) -> None:
    raw = io.BytesIO()
    monkeypatch.setattr(sys, "stdout", io.TextIOWrapper(raw, encoding="ascii"))
    out = Output("human")
    out.show("2 × H100 ≥ 580 — 驱动")
    out.write("→ done")
    sys.stdout.flush()
    text = raw.getvalue().decode("ascii")
    assert "2 x H100 >= 580 - " in text
    assert "-> done" in text


@pytest.mark.parametrize(("variable", "styled"), [("", True), ("NO_COLOR", False)])
def test_no_color_takes_bold_and_dim_too(variable: str, styled: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    from rich.text import Text

    class Terminal(io.StringIO):
        encoding = "utf-8"

        def isatty(self) -> bool:
            return True

    for name in ("NO_COLOR", "FORCE_COLOR"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("TERM", "xterm-256color")
    if variable:
        monkeypatch.setenv(variable, "1")
    stream = Terminal()
    monkeypatch.setattr(sys, "stdout", stream)
    Output().show(Text("loud", style="bold red") + Text(" soft", style="dim"))
    assert ("\x1b[" in stream.getvalue()) is styled
    assert (stream.getvalue() == "loud soft\n") is not styled


@pytest.mark.parametrize(("encoding", "bar"), [("ascii", "###---"), ("latin-1", "###---"), ("utf-8", "███···")])
def test_bars_are_drawn_with_what_the_encoding_carries(
    encoding: str, bar: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    raw = io.BytesIO()
    monkeypatch.setattr(sys, "stdout", io.TextIOWrapper(raw, encoding=encoding))
    Output().show("███···")
    sys.stdout.flush()
    assert raw.getvalue().decode(encoding).strip() == bar
