"""The manifest of a prepared overlay, and folders that only look like one."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import pytest
from fake_overlay import make
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from hybridctl import overlays
from hybridctl.overlays import Manifest, OverlayError


@pytest.fixture(autouse=True)
def home(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    monkeypatch.setenv("HYBRIDCTL_HOME", str(tmp_path))
    return tmp_path


def test_the_place_follows_the_directory_rules(monkeypatch: pytest.MonkeyPatch, home: Path) -> None:
    assert overlays.root() == home / "share" / "overlays"
    monkeypatch.delenv("HYBRIDCTL_HOME")
    monkeypatch.setenv("XDG_DATA_HOME", "/data")
    assert overlays.root() == Path("/data/hybridctl/overlays")
    monkeypatch.delenv("XDG_DATA_HOME")
    monkeypatch.setenv("HOME", "/home/a")
    assert overlays.root() == Path("/home/a/.local/share/hybridctl/overlays")


def test_what_is_written_is_read_again(home: Path) -> None:
    folder = make(home, "one")
    manifest = overlays.read_manifest(folder)
    assert (manifest.model, manifest.routing, manifest.vllm) == ("owner/one", "article", "0.32.0")
    assert manifest.created.isoformat() == "2026-11-01T12:00:00+00:00"
    assert Manifest.model_validate_json(manifest.text()) == manifest
    (found,) = overlays.listing()
    assert (found.name, found.folder, found.problem) == ("one", folder, "")


def test_a_key_that_a_later_writer_adds_is_no_fault(home: Path) -> None:
    file = make(home, "one") / overlays.MANIFEST
    file.write_text(json.dumps({**json.loads(file.read_text()), "flags": ["--port"]}))
    assert overlays.listing()[0].problem == ""


def test_nothing_prepared(home: Path) -> None:
    assert overlays.listing() == []
    assert overlays.named("one") is None
    (home / "share").mkdir()
    (home / "share" / "overlays").write_text("a file")
    assert overlays.listing() == []


def test_drafts_and_files_are_no_overlays(home: Path) -> None:
    make(home, ".one.part")
    (overlays.root() / "notes.txt").write_text("")
    assert overlays.listing() == []
    assert overlays.named(".one.part") is None


@pytest.mark.parametrize("name", ["", ".", "..", "a/b", "../one", "/etc", "x\0y"])
def test_a_name_never_leads_elsewhere(home: Path, name: str) -> None:
    make(home, "one")
    assert overlays.named(name) is None


def change(folder: Path, **changed: Any) -> None:
    file = folder / overlays.MANIFEST
    file.write_text(json.dumps({**json.loads(file.read_text()), **changed}))


FAULTS = [
    (lambda f: (f / "hybridctl.json").unlink(), "no hybridctl.json in it"),
    (lambda f: (f / "hybridctl.json").write_text(""), "is no JSON"),
    (lambda f: (f / "hybridctl.json").write_text("[1]"), "not hybridctl's"),
    (lambda f: (f / "hybridctl.json").write_text("{}"), "not hybridctl's"),
    (lambda f: (f / "hybridctl.json").write_bytes(b"\xff\xfe\0"), "is no JSON"),
    (lambda f: (f / "hybridctl.json").write_text("[" * 200_000), "is no JSON"),
    (lambda f: (f / "hybridctl.json").write_text('{"schema_version": 1, "model": "\\ud800"}'), "hybridctl.json"),
    (lambda f: change(f, schema_version=2), "schema_version 2; this hybridctl reads 1"),
    (lambda f: change(f, model=3), "model"),
    (lambda f: change(f, created="yesterday"), "created"),
    (lambda f: change(f, created="2026-11-29T12:00:00"), "created"),  # whose noon?
    (lambda f: change(f, files={}), "config.json is missing"),
    (lambda f: change(f, files={"config.json": {"size": -1}}), "files.config.json.size"),
    (lambda f: change(f, files={"config.json": {"size": 1, "sha256": "x"}}), "files.config.json.sha256"),
    (lambda f: change(f, files={"config.json": {"size": 1}, "../x": {"size": 1}}), "no path within the folder"),
    (lambda f: change(f, files={"config.json": {"size": 1}, "/etc/passwd": {"size": 1}}), "no path within the folder"),
    (lambda f: (f / "config.json").write_text("{}"), "config.json has 2 bytes, not"),
    (lambda f: (f / "config.json").unlink(), "config.json is missing"),
    (lambda f: (f / "config.json").unlink() or (f / "config.json").mkdir(), "config.json has"),
]


@pytest.mark.parametrize(("spoil", "words"), FAULTS)
def test_a_damaged_folder_is_listed_with_the_reason(home: Path, spoil: Any, words: str) -> None:
    make(home, "good")
    spoil(make(home, "spoilt"))
    good, spoilt = overlays.listing()
    assert (good.problem, spoilt.name) == ("", "spoilt")
    assert words in spoilt.problem


def test_links_that_lead_nowhere(home: Path) -> None:
    folder = make(home, "one")
    (folder / "model.safetensors").unlink()
    (folder / "model.safetensors").symlink_to(home / "gone")
    (overlays.root() / "two").symlink_to(home / "elsewhere")
    one, two = overlays.listing()
    assert one.problem == f"model.safetensors links to {home / 'gone'}, which is gone"
    assert two.problem == f"links to {home / 'elsewhere'}, which is gone"


@pytest.mark.skipif(os.geteuid() == 0, reason="root may read everything")
def test_a_folder_that_may_not_be_read(home: Path) -> None:
    folder = make(home, "one")
    folder.chmod(0)
    try:
        assert "Permission denied" in overlays.listing()[0].problem
    finally:
        folder.chmod(0o755)


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=3),
    max_leaves=8,
)


@given(key=st.sampled_from(sorted(Manifest.model_fields)), value=JSON)
@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_any_value_in_any_field_is_read_or_refused(
    tmp_path_factory: pytest.TempPathFactory, key: str, value: Any
) -> None:
    folder = tmp_path_factory.mktemp("overlay")
    good = {
        "schema_version": 1,
        "model": "owner/name",
        "revision": None,
        "created": "2026-11-29T12:00:00Z",
        "routing": "none",
        "vllm": "0.32.0",
        "files": {"config.json": {"size": 1}},
    }
    (folder / overlays.MANIFEST).write_text(json.dumps({**good, key: value}))
    try:
        overlays.read_manifest(folder)
    except OverlayError as error:
        assert overlays.look(folder).problem == str(error)
