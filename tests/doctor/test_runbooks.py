"""Runbooks: every finding leads to one that exists, and what they say of entries, of each other and of translations holds."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from hybridctl.data import recipes_dir
from hybridctl.doctor import check_sources, knowledge, runbooks
from hybridctl.doctor.checks import discover
from hybridctl.doctor.diagnose import Inputs, diagnose, text_stream
from hybridctl.doctor.findings import AREAS, Finding
from hybridctl.doctor.runbooks import Library, Runbook
from hybridctl.doctor.search import search
from hybridctl.errors import BrokenDataError

FOLDER = recipes_dir() / "runbooks"
PAGES = runbooks.load().pages
ENGLISH = sorted(name for name, page in PAGES.items() if page.language == "en")
CHINESE = sorted(name for name, page in PAGES.items() if page.language == "zh")
HEADINGS = {
    "en": ["You see", "Why", "Do this", "Fix", "Cured when"],
    "zh": ["现象", "原因", "排查步骤", "处理", "怎样算解决"],
}
THE_FIVE = {"oom-with-free-memory", "wsl2-segfault", "garbled-output", "slow-start", "no-module-vllm-hybrid"}
_FENCE = re.compile(r"^```.*?^```$", re.MULTILINE | re.DOTALL)
_LINK = re.compile(r"\[([^\]]+)\]\(([^)]+)\)")


def test_every_entry_leads_to_a_runbook() -> None:
    library = runbooks.load()
    lost = [e.id for e in knowledge.load().entries.values() if library.find(library.of(e.id, e.area)) is None]
    assert lost == []


@pytest.mark.parametrize("check", discover(), ids=lambda c: c.id)
def test_every_check_leads_to_runbooks(check: check_sources.Check) -> None:
    library = runbooks.load()
    areas = check_sources.areas(check)
    assert areas, "no finding with a plain area was found in the source of this check"
    assert [a for a in areas if library.find(library.of("", a)) is None] == []
    assert check_sources.find(check.id) is check


@pytest.mark.parametrize("area", AREAS)
def test_every_area_has_one_runbook_of_its_name(area: str) -> None:
    assert [name for name in ENGLISH if area in PAGES[name].areas] == [area]


def test_a_check_shares_its_id_with_nothing_else() -> None:
    checks = {check.id for check in discover()}
    assert checks & set(knowledge.load().entries) == set()
    assert checks & set(PAGES) == set()


def test_findings_of_a_diagnosis_are_linked() -> None:
    demo = Path(__file__).parents[2] / "docs" / "demo"
    inputs = Inputs(
        env=(demo / "env.txt").read_text() + "\nsymptom: the answers are garbage\n",
        log=text_stream((demo / "crash.log").read_text()),
        command="vllm serve Qwen/Qwen3.6-27B-FP8 -tp 5 --no-such-flag",
    )
    found = diagnose(inputs).findings
    assert len(found) >= 3
    assert {f.id: f.runbook for f in found}["max-num-seqs-exceeds-mamba-blocks"] == "kv-cache"
    assert {f.id: f.runbook for f in found}["said-garbage"] == "garbled-output"
    assert [f.id for f in found if f.runbook not in PAGES] == []


def test_a_finding_that_names_its_runbook_keeps_it() -> None:
    mine = Finding("x", "A title", "oom", "error", "why", runbook="slow")
    other = Finding("any-oom-stage-capture", "A title", "oom", "error", "why")
    runbooks.load().link([mine, other])
    assert (mine.runbook, other.runbook) == ("slow", "oom-with-free-memory")


def test_ids_are_claimed_once_and_exist() -> None:
    claimed = [f for name in ENGLISH for f in PAGES[name].findings]
    assert sorted(claimed) == sorted(set(claimed))
    assert [f for f in claimed if not knowledge.load().find(f) and not check_sources.find(f)] == []


@pytest.mark.parametrize("name", sorted(PAGES))
def test_page_has_its_sections_and_its_links_resolve(name: str) -> None:
    page = PAGES[name]
    prose = _FENCE.sub("", page.text)
    assert re.findall(r"^## (.+)$", prose, re.MULTILINE) == HEADINGS[page.language]
    assert page.topic and page.source and page.last_verified and page.quotes()
    for label, target in _LINK.findall(prose):
        assert (FOLDER / target).is_file(), target
        assert label == Path(target).stem
    assert "hybridctl doctor" in page.text


@pytest.mark.parametrize("name", sorted(PAGES))
def test_page_quotes_known_lines_and_is_found_by_them(name: str) -> None:
    page = PAGES[name]
    for quote in page.quotes():
        found = search(knowledge.load(), runbooks.load(), quote, page.language)
        assert page.name in [book.name for book, _ in found.runbooks[:2]], quote
        assert "line" in [how for _, how in found.entries], f"no entry knows this line: {quote}"


def test_the_five_are_there_in_chinese() -> None:
    assert {PAGES[name].id for name in CHINESE} == THE_FIVE


@pytest.mark.parametrize("name", CHINESE)
def test_translation_has_the_blocks_and_links_of_its_original(name: str) -> None:
    page, original = PAGES[name], PAGES[PAGES[name].id]
    assert _FENCE.findall(page.text) == _FENCE.findall(original.text)
    assert sorted(t for _, t in _LINK.findall(page.text)) == sorted(t for _, t in _LINK.findall(original.text))
    header = (FOLDER / f"{name}.md").read_text(encoding="utf-8").partition("-->")[0]
    assert re.findall(r"^(\w+) =", header, re.MULTILINE) == ["symptoms", "keywords"]
    assert (page.topic, page.findings, page.source) == (original.topic, original.findings, original.source)


def library(*names: str) -> Library:
    return Library(
        Runbook(id=n.partition(".")[0], language=n.partition(".")[2] or "en", title=n, text="") for n in names
    )


def test_language_of_a_page() -> None:
    books = library("a", "a.zh", "b")
    assert books.languages == ["en", "zh"]
    assert [books.find(n, "zh").name for n in ("a", "a.zh", "b")] == ["a.zh", "a.zh", "b"]  # type: ignore[union-attr]
    assert [books.find(n, "en").name for n in ("a", "a.zh", "b")] == ["a", "a.zh", "b"]  # type: ignore[union-attr]
    assert [books.find(n, "zh") for n in ("c", "b.zh", "", "a.")] == [None] * 4
    assert [page.name for page in books.all("zh")] == ["a.zh", "b"]


@pytest.mark.parametrize(
    ("variables", "language"),
    [
        ({"LANG": "zh_CN.UTF-8"}, "zh"), ({"LANG": "C.UTF-8"}, "c"), ({}, ""), ({"LANG": "en_US", "LC_ALL": "zh_TW"}, "zh"),
        ({"LANG": "zh_CN", "LC_MESSAGES": "de_DE@euro"}, "de"), ({"LC_ALL": "", "LANG": "zh"}, "zh"),
    ],
)  # fmt: skip
def test_language_of_the_locale(variables: dict[str, str], language: str, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("LC_ALL", "LC_MESSAGES", "LANG"):
        monkeypatch.delenv(name, raising=False)
    for name, value in variables.items():
        monkeypatch.setenv(name, value)
    assert runbooks.preferred_language() == language


GOOD = '<!--\nsymptoms = ["it breaks"]\nareas = ["oom"]\n-->\n\n# A title\n\n## You see\n'


@pytest.mark.parametrize(
    ("text", "complaint"),
    [
        (GOOD, None), ("# A title\n\ntext\n", "header"), (GOOD.replace("# A title\n\n", ""), "title"),
        (GOOD.replace("symptoms", "symptom"), "symptom"), (GOOD.replace('["it breaks"]', "[]"), "symptoms"),
        (GOOD.replace("it breaks", " a "), "almost any"), (GOOD.replace('"oom"', '"foo"'), "no area 'foo'"),
        (GOOD.replace("areas =", "areas"), "x.md"), ("\udcff", "x.md"),
    ],
)  # fmt: skip
def test_a_broken_file_is_named(text: str, complaint: str | None, tmp_path: Path) -> None:
    path = tmp_path / "x.md"
    path.write_bytes(text.encode("utf-8", "surrogateescape"))
    if complaint is None:
        assert runbooks._compile(path)["title"] == "A title"
    else:
        with pytest.raises(BrokenDataError, match=complaint):
            runbooks._compile(path)
