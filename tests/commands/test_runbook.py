"""``hybridctl runbook``: a page by its id, a search by a line, the list, and which language they come in."""

from __future__ import annotations

import json
import os
import pty
import re
import subprocess
import sys
from pathlib import Path

import pytest
from rich.cells import cell_len

from hybridctl import cli


def run(
    *args: str, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, lang: str = "C.UTF-8"
) -> tuple[int, str, str]:
    """Exit code, stdout and stderr, in this process."""
    for name in ("LC_ALL", "LC_MESSAGES", "COLUMNS"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("LANG", lang)
    monkeypatch.setattr(sys, "argv", ["hybridctl", *args])
    with pytest.raises(SystemExit) as stop:
        cli.main()
    out, err = capsys.readouterr()
    return int(stop.value.code or 0), out, err


@pytest.fixture
def hybridctl(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch):  # type: ignore[no-untyped-def]
    return lambda *args, **more: run(*args, capsys=capsys, monkeypatch=monkeypatch, **more)


def test_without_an_argument_all_are_listed_by_topic(hybridctl) -> None:  # type: ignore[no-untyped-def]
    code, out, err = hybridctl("runbook")
    assert (code, err) == (0, "")
    assert out.startswith("Most asked\n  garbled-output ")
    assert "\nMemory\n  kv-cache  " in out
    assert "garbled-output.zh" not in out
    assert "garbled-output.zh" in hybridctl("runbook", lang="zh_CN.UTF-8")[1]
    listed = json.loads(hybridctl("runbook", "--json")[1])["runbooks"]
    assert {"id", "name", "language", "topic", "title"} == set(listed[0])


def test_a_runbook_by_its_id(hybridctl) -> None:  # type: ignore[no-untyped-def]
    code, out, _ = hybridctl("runbook", "slow-start")
    assert code == 0
    assert out.startswith("# The start takes minutes\n\n## You see\n")
    assert "weights-3h30-load" in out
    assert "known_bad/" not in out
    document = json.loads(hybridctl("runbook", "slow-start", "--json")[1])
    assert list(document) == ["schema_version", "runbook"]
    assert "weights-3h30-load" in document["runbook"]["entries"]
    assert document["runbook"]["text"].startswith("## You see")


@pytest.mark.parametrize(
    ("args", "lang", "title"),
    [
        (("slow-start",), "C.UTF-8", "# The start takes minutes"),
        (("slow-start",), "zh_CN.UTF-8", "# 启动要好几分钟"),
        (("slow-start.zh",), "C.UTF-8", "# 启动要好几分钟"),
        (("slow-start", "--lang", "zh"), "C.UTF-8", "# 启动要好几分钟"),
        (("slow-start", "--lang", "en"), "zh_CN.UTF-8", "# The start takes minutes"),
        (("kv-cache", "--lang", "zh"), "zh_CN.UTF-8", "# The KV cache or the state pool does not fit"),
    ],
)
def test_language(hybridctl, args: tuple[str, ...], lang: str, title: str) -> None:  # type: ignore[no-untyped-def]
    assert hybridctl("runbook", *args, lang=lang)[1].partition("\n")[0] == title


def test_a_language_that_is_not_there(hybridctl) -> None:  # type: ignore[no-untyped-def]
    code, out, err = hybridctl("runbook", "oom", "--lang", "fr")
    assert (code, out) == (2, "")
    assert "'fr'" in err and "--lang en|zh" in err


def test_an_entry_says_its_runbook(hybridctl) -> None:  # type: ignore[no-untyped-def]
    _, out, _ = hybridctl("runbook", "any-oom-stage-capture")
    assert out.startswith("any-oom-stage-capture  ")
    assert "runbook  hybridctl runbook oom-with-free-memory\n" in out
    document = json.loads(hybridctl("runbook", "any-oom-stage-capture", "--json")[1])
    assert document["entry"]["runbook"] == "oom-with-free-memory"


@pytest.mark.parametrize(
    ("name", "book"),
    [("torch-pins", "torch-abi"), ("torch-not-the-pinned-one", "torch-abi"), ("slow-weight-loading", "slow-start")],
)
def test_a_check_or_what_it_finds(hybridctl, name: str, book: str) -> None:  # type: ignore[no-untyped-def]
    code, out, _ = hybridctl("runbook", name)
    assert code == 0
    assert out.startswith(f"{name}  ")
    assert f"hybridctl runbook {book}\n" in out
    document = json.loads(hybridctl("runbook", name, "--json")[1])
    assert book in document["check"]["runbooks"]


def test_an_id_of_two_things_says_so(hybridctl, monkeypatch: pytest.MonkeyPatch) -> None:  # type: ignore[no-untyped-def]
    from hybridctl.doctor import knowledge, runbooks

    entry = knowledge.load().entries["any-oom-stage-capture"]
    same = runbooks.Runbook("any-oom-stage-capture", "en", "Same", "## You see\n")
    monkeypatch.setattr(knowledge, "load", lambda: knowledge.Knowledge([entry]))
    monkeypatch.setattr(runbooks, "load", lambda: runbooks.Library([same]))
    _, out, _ = hybridctl("runbook", "any-oom-stage-capture")
    assert out.startswith("any-oom-stage-capture names an entry and a runbook. One after the other:\n")
    assert "\n# Same\n" in out
    assert set(json.loads(hybridctl("runbook", "any-oom-stage-capture", "--json")[1])) >= {"entry", "runbook"}


def test_a_pasted_line(hybridctl) -> None:  # type: ignore[no-untyped-def]
    line = "ValueError: max_num_seqs (1024) exceeds available Mamba cache blocks (856)."
    _, out, _ = hybridctl("runbook", line)
    first = out.index("kv-cache  ")
    assert first < out.index("max-num-seqs-exceeds-mamba-blocks  this line")
    document = json.loads(hybridctl("runbook", "--json", *line.split())[1])
    assert document["query"] == line
    assert (document["runbooks"][0]["id"], document["runbooks"][0]["match"]) == ("kv-cache", "line")
    assert (document["entries"][0]["id"], document["entries"][0]["match"]) == (
        "max-num-seqs-exceeds-mamba-blocks",
        "line",
    )


def test_a_chinese_question_is_answered_in_chinese(hybridctl) -> None:  # type: ignore[no-untyped-def]
    _, out, _ = hybridctl("runbook", "WSL2 段错误")
    assert out.index("排障手册") < out.index("wsl2-segfault.zh  症状吻合") < out.index("知识库条目")


def test_nothing_found(hybridctl) -> None:  # type: ignore[no-untyped-def]
    code, out, err = hybridctl("runbook", "qqqqqqqq")
    assert (code, out, err.count("\n")) == (2, "", 1)
    assert "next: hybridctl runbook" in err


def test_explain_is_the_same(hybridctl) -> None:  # type: ignore[no-untyped-def]
    assert hybridctl("explain", "oom")[1] == hybridctl("runbook", "oom")[1]


def on_a_terminal(*args: str, columns: int) -> str:
    """What a terminal of that width shows."""
    main, side = pty.openpty()
    environment = {**os.environ, "COLUMNS": str(columns), "TERM": "xterm", "NO_COLOR": "1", "LANG": "C.UTF-8"}
    command = [sys.executable, "-m", "hybridctl", *args]
    root = Path(__file__).parents[2]
    with subprocess.Popen(command, stdin=side, stdout=side, stderr=side, env=environment, cwd=root) as process:
        os.close(side)
        shown = b""
        while True:
            try:
                part = os.read(main, 65536)
            except OSError:  # Linux ends a pseudo-terminal this way
                break
            if not part:
                break
            shown += part
        process.wait(timeout=60)
    os.close(main)
    return re.sub(r"\x1b\[[0-9;]*m", "", shown.decode().replace("\r\n", "\n"))


@pytest.mark.parametrize("name", ["garbled-output", "garbled-output.zh"])
def test_terminal(name: str) -> None:
    shown = on_a_terminal("runbook", name, columns=60)
    lines = shown.splitlines()
    assert lines[0].startswith(f"{name}  ")
    assert "## " not in shown and "**" not in shown
    assert any(
        line.startswith("    $ vllm serve MODEL --dtype bfloat16 --kv-cache-dtype auto --no-enable") for line in lines
    )
    text = [line for line in lines if not line.startswith("    ") and "http" not in line]
    assert max(map(cell_len, text)) <= 60
