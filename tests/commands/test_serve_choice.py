"""Which model ``hybridctl serve`` takes where none, or a prepared one, is named."""

from __future__ import annotations

import json
import signal
import sys
from pathlib import Path

import pytest
from fake_overlay import make
from fake_vllm import make_environment, serving
from typer.testing import CliRunner

from hybridctl.app import COMMANDS, app
from hybridctl.errors import UsageError
from hybridctl.runtime import choice, overlay_min
from hybridctl.runtime.checkpoint import DEMO, find

pytestmark = pytest.mark.lifecycle


@pytest.fixture(autouse=True)
def home(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    monkeypatch.setenv("HYBRIDCTL_HOME", str(tmp_path / "home"))
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    monkeypatch.setenv("COLUMNS", "200")
    return tmp_path / "home"


def run(*arguments: str) -> tuple[int, str, str]:
    """Exit code, stdout, and what stopped it: its line and the next thing to type."""
    done = CliRunner().invoke(app, ["serve", *arguments])
    error = done.exception
    assert error is None or isinstance(error, (SystemExit, UsageError)), error
    told = f"{error}; next: {error.hint}" if isinstance(error, UsageError) else ""
    return (error.exit_code if isinstance(error, UsageError) else done.exit_code), done.stdout, told


def test_none_names_only_commands_that_exist() -> None:
    code, out, told = run()
    assert (code, out) == (2, "")
    assert "none is prepared" in told
    assert "hybridctl serve --demo" in told
    assert ("hybridctl prepare" in told) is ("prepare" in COMMANDS)


@pytest.mark.parametrize("there", [True, False])
def test_prepare_is_proposed_once_it_is_there(there: bool) -> None:
    with pytest.raises(choice.UnclearError) as caught:
        choice.the_prepared_one(["serve", "prepare"] if there else ["serve"])
    made = "hybridctl prepare MODEL, or hybridctl serve --demo"
    assert caught.value.hint == (made if there else "hybridctl serve --demo, or hybridctl serve MODEL")


def test_the_one_prepared_overlay_is_served(home: Path, tmp_path: Path) -> None:
    folder = make(home, "one", vllm="0.30.0")
    (home / "share" / "overlays" / "broken").mkdir()
    code, out, _ = run("--print", "--json", "--python", str(make_environment(tmp_path)), "--", "--seed", "3")
    document = json.loads(out)
    assert code == 0
    assert document["injected"] is True
    names = {row["name"]: row["values"] for row in document["flags"]}
    assert names["--served-model-name"] == ["owner/one"]
    assert document["argv"][-2:] == ["--seed", "3"]
    assert f"{folder} was prepared for vLLM 0.30.0; this one is 0.32.0" in document["notes"]


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="reads /proc, as vLLM's machines have it")
def test_it_is_named_when_it_is_ready(tmp_path: Path) -> None:
    make(tmp_path / "home", "one", architecture="HybridCtlQwen3ForCausalLM")
    with serving(tmp_path, "--force", "--host", "127.0.0.1") as server:
        server.until("hybridctl verify")
        assert "2026-11-01 12:00 UTC from owner/one at 0123456789ab for vLLM 0.32.0, routing: article" in " ".join(
            server.out.split()
        )
        assert not (server.runs[0] / "model").exists()  # it names the plugin's architecture itself


RULE = {"id": "linear-prefix", "kind": "component", "old": "linear_q_proj", "new": "q_proj"}


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="reads /proc, as vLLM's machines have it")
def test_rules_for_names_are_proved_before_it_is_ready(tmp_path: Path) -> None:
    load = {"architecture": "Qwen3ForCausalLM", "names": [RULE]}
    folder = make(tmp_path / "home", "one", architecture="HybridCtlRenamedQwen3ForCausalLM", load=load)
    with serving(tmp_path, "--force", "--no-hybrid", "--json") as server:
        server.when(lambda: server.out.endswith("\n}\n"))
        said = json.loads(server.out)
        assert (said["injected"], said["names"][0]["tensors"]) == (False, 2)
        # Inside vLLM the class has its own name; the one in the folder is for a vLLM without the rules.
        served = json.loads((server.runs[0] / "model" / "config.json").read_text())
        assert served["architectures"] == ["Qwen3ForCausalLM"]
        assert server.end(signal.SIGTERM) == 0
    with serving(tmp_path, "--force", "--no-hybrid", mode="idle-names") as server:
        code, line = server.why()
        assert code != 0
        assert "the worker of rank 0 has not applied the rule for names linear_q_proj → q_proj" in line
    assert json.loads((folder / "config.json").read_text())["architectures"] == ["HybridCtlRenamedQwen3ForCausalLM"]


def test_several_are_listed_with_the_line_to_type(home: Path) -> None:
    make(home, "older", day=1)
    make(home, "newer", day=2, routing="none")
    (home / "share" / "overlays" / "foreign").mkdir()
    code, out, told = run()
    assert code == 2
    rows = [line.split("  ") for line in out.splitlines()]
    assert [row[0].split()[0] for row in rows] == ["name", "foreign", "newer", "older"]
    assert "owner/newer" in out and "2026-11-02 12:00 UTC" in out and "article" in out
    assert "can't be served: no hybridctl.json in it" in out
    assert told.endswith("2 are prepared in " + str(home / "share" / "overlays") + "; next: hybridctl serve newer")


def test_several_as_json(home: Path) -> None:
    make(home, "a")
    make(home, "b")
    code, out, _ = run("--json")
    document = json.loads(out)
    assert code == 2
    assert [row["name"] for row in document["prepared"]] == ["a", "b"]
    assert document["prepared"][0]["created"] == "2026-11-01T12:00:00+00:00"


def test_only_damaged_ones(home: Path) -> None:
    (make(home, "one") / "config.json").unlink()
    code, out, told = run()
    assert code == 2
    assert "config.json is missing" in out
    assert "none of the 1 folders" in told


def test_one_of_several_by_its_name(home: Path, tmp_path: Path) -> None:
    make(home, "a")
    make(home, "b")
    code, out, told = run("b", "--print", "--json", "--python", str(make_environment(tmp_path)))
    assert (code, told) == (0, "")
    assert "owner/b" in json.loads(out)["argv"]
    (home / "share" / "overlays" / "a" / "model.safetensors").unlink()
    code, _, told = run("a")
    assert code == 2
    assert "model.safetensors is missing" in told


def test_a_name_that_nothing_has() -> None:
    code, _, told = run("nothing")
    assert code == 2
    assert "there is no model folder and no prepared overlay nothing" in told


def test_a_model_that_is_prepared_is_said_to_be(home: Path) -> None:
    make(home, "one", model=str(DEMO))
    (line,) = choice.prepared_from(find(str(DEMO)))
    assert line.endswith("prepared from it (routing: article): hybridctl serve one")
    assert choice.prepared_from(find("one")) == []


def test_without_the_dispatcher_the_plugins_architecture_is_taken_off(home: Path, tmp_path: Path) -> None:
    folder = make(home, "one", architecture="HybridCtlQwen3ForCausalLM")
    python = str(make_environment(tmp_path))
    routed, plain = (
        json.loads(run(*more, "--print", "--json", "--python", python)[1]) for more in ([], ["--no-hybrid"])
    )
    assert routed["argv"][4] == str(folder)
    assert plain["argv"][4] == "RUN_DIR/model"
    overlay_min.make(folder, tmp_path / "model", find("one").config, routed=False)
    assert json.loads((tmp_path / "model" / "config.json").read_text())["architectures"] == ["Qwen3ForCausalLM"]
