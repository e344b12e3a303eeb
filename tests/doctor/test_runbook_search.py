"""Search by an error line or by words, in English and in Chinese."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hybridctl.data import read_toml
from hybridctl.doctor import knowledge, runbooks
from hybridctl.doctor.knowledge import Entry, Knowledge
from hybridctl.doctor.runbooks import Library, Runbook
from hybridctl.doctor.search import language_of, search
from hybridctl.doctor.words import canonical, shape, words


def books(text: str, language: str | None = None) -> list[str]:
    wanted = language or language_of(text) or "en"
    return [page.name for page, _ in search(knowledge.load(), runbooks.load(), text, wanted).runbooks]


def entries(text: str) -> list[tuple[str, str]]:
    return [(e.id, how) for e, how in search(knowledge.load(), runbooks.load(), text, "en").entries]


@pytest.mark.parametrize(
    ("asked", "page"),
    [
        ("显存不足但还有空闲", "oom-with-free-memory.zh"),
        ("显存明明够用却报显存不足", "oom-with-free-memory.zh"),
        ("显卡还有４０％显存空闲，却报ＯＯＭ！", "oom-with-free-memory.zh"),
        ("启动就爆显存了怎么办", "oom-with-free-memory.zh"),
        ("WSL2 段错误", "wsl2-segfault.zh"),
        ("WSL2里vLLM段错误（核心已转储）", "wsl2-segfault.zh"),
        ("ＷＳＬ２ 段错误", "wsl2-segfault.zh"),
        ("输出乱码", "garbled-output.zh"),
        ("模型输出全是乱码，怎么解决？", "garbled-output.zh"),
        ("回答全是感叹号！！！", "garbled-output.zh"),
        ("启动慢", "slow-start.zh"),
        ("加载慢", "slow-start.zh"),
        ("vllm 加载模型特别慢，要好几分钟", "slow-start.zh"),
        ("没有名为 vllm.hybrid 的模块", "no-module-vllm-hybrid.zh"),
        ("找不到 vllm.hybrid 模块", "no-module-vllm-hybrid.zh"),
        ("报错 ModuleNotFoundError: No module named 'vllm.hybrid' 怎么办", "no-module-vllm-hybrid.zh"),
        ("ModuleNotFoundError: No module named 'vllm.hybrid'", "no-module-vllm-hybrid"),
        ("out of memory although 40 % of the GPU memory is free", "oom-with-free-memory"),
        ("segmentation fault in WSL2", "wsl2-segfault"),
        ("the output is garbled", "garbled-output"),
        ("vllm startup takes 4 minutes", "slow-start"),
    ],
)
def test_the_five_are_found_by_what_people_say(asked: str, page: str) -> None:
    assert books(asked)[0] == page


def test_language_that_was_asked_for_wins() -> None:
    assert books("输出乱码", "en")[0] == "garbled-output"
    assert books("garbled output", "zh")[0] == "garbled-output.zh"


@pytest.mark.parametrize(
    ("line", "entry", "book"),
    [
        ("ValueError: max_num_seqs (512) exceeds available Mamba cache blocks (77).", "max-num-seqs-exceeds-mamba-blocks",
         "kv-cache"),
        ("(Worker_TP1 pid=7) ERROR 01-02 03:04:05 [core.py:9] CUDA error: the provided PTX was compiled with an unsupported "
         "toolchain.", "ptx-newer-than-driver", "driver-cuda"),
        ("ImportError: libcudart.so.13: cannot open shared object file", "libcudart13-missing", "torch-abi"),
        ("fatal error: Python.h: No such file or directory", "python-headers-missing", "kernel-compile"),
        ("vllm: error: unrecognized arguments: --foo", "cli-unrecognized-arguments", "config"),
    ],
)  # fmt: skip
def test_an_error_line_finds_its_entry_and_runbook(line: str, entry: str, book: str) -> None:
    assert entries(line)[0] == (entry, "line")
    assert books(line)[0] == book


def test_words_of_a_pattern_are_no_match_of_it() -> None:
    """The anchor stands in the line and the rest of the pattern does not: near by wording, not the known line."""
    found = dict(entries("Free memory on device was never asked for"))
    assert found["any-free-memory-below-utilization"] == "wording"


def test_a_line_of_several_is_enough() -> None:
    text = "INFO starting\nsome other line\nRuntimeError: operator torchvision::nms does not exist\nexit\n"
    assert entries(text)[0] == ("torchvision-ops-missing", "line")


def test_what_the_line_alone_proves_comes_before_what_needs_facts() -> None:
    entry = {"title": "t" * 8, "area": "oom", "severity": "error", "cause": "c", "confidence": "inferred",
             "last_verified": "", "source": []}  # fmt: skip
    symptom = [{"anchor": "the engine broke", "regex": ""}]
    both = Entry(id="a-both", fires="both", symptom=symptom, keywords=["engine", "broke", "down"], **entry)  # type: ignore[arg-type]
    alone = Entry(id="b-alone", fires="symptom", symptom=symptom, **entry)  # type: ignore[arg-type]
    found = search(Knowledge([both, alone]), Library([]), "the engine broke down", "en").entries
    assert [(e.id, how) for e, how in found] == [("b-alone", "line"), ("a-both", "line")]


def test_the_runbook_of_a_known_line_is_found_without_words_of_its_own() -> None:
    entry = Entry(
        id="an-entry", title="A title", area="oom", severity="error", fires="symptom", cause="c", confidence="inferred",
        last_verified="", source=[], symptom=[{"anchor": "zyx broke", "regex": ""}],
    )  # fmt: skip
    mine = Runbook("mine", "en", "Mine", "text", areas=["oom"], symptoms=["entirely else"])
    other = Runbook("other", "en", "Other", "text", symptoms=["broke"])
    found = search(Knowledge([entry]), Library([mine, other]), "zyx broke", "en").runbooks
    assert [page.id for page, _ in found] == ["other", "mine"]


def test_a_few_words_with_the_name_of_a_runbook_find_it() -> None:
    known, library = knowledge.load(), runbooks.load()
    assert search(known, library, "server slow", "en").runbooks[0][0].id == "slow"
    long = "the server is up and answers each request of ours, only ever so slow"  # here it is a word like others
    assert all(how == "wording" for _, how in search(known, library, long, "en").runbooks)


def test_nothing_is_near_to_nonsense() -> None:
    assert (entries("qqqqqq"), books("qqqqqq"), books("。，！"), books("")) == ([], [], [], [])


def test_words_of_both_languages() -> None:
    assert words("WSL2里的段错误") == {"wsl2", "里的", "的段", "段错", "错误"}
    assert words("ＯＯＭ，显存") == {"oom", "显存"}
    assert {"linear_attn", "linear", "attn"} <= words("linear_attn")
    assert words("段") == set()


def test_shape_of_a_line() -> None:
    assert shape("Tried  to allocate 9.38 GiB（卡０）") == "tried to allocate 0 gib(卡0)"


@given(st.text(max_size=300))
def test_any_text_can_be_asked(text: str) -> None:
    assert all(w == w.strip() and w for w in words(text))
    assert canonical(canonical(text)) == canonical(text)
    search(Knowledge([]), runbooks.load(), text, "zh")


def test_recorded_lines_find_what_they_were_recorded_for() -> None:
    """Of every fourth recorded report the line that shows the symptom is pasted, without the facts beside it."""
    known, library = knowledge.load(), runbooks.load()
    total = entry_first = entry_in_three = book_in_three = 0
    for path in sorted((Path(__file__).parents[1] / "data" / "known_bad").glob("*.toml"))[::4]:
        entry = known.entries[path.stem]
        fires = read_toml(path)["fires"]
        lines = f"{fires.get('log', '')}\n{fires.get('env', '')}".splitlines()
        line = next((x for s in entry.symptom for x in lines if s["anchor"] in x), None)
        if line is None:
            continue
        total += 1
        found = search(known, library, line, "en")
        ids = [e.id for e, _ in found.entries]
        entry_first += ids[:1] == [entry.id]
        entry_in_three += entry.id in ids[:3]
        book_in_three += library.of(entry.id, entry.area) in [page.id for page, _ in found.runbooks]
    assert total > 100
    assert entry_first / total > 0.8
    assert entry_in_three / total > 0.9
    assert book_in_three / total > 0.95
