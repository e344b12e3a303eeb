"""What prepare makes of its audit: shown, refused without --force where vLLM was asked, told only where there is no vLLM."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from fake_checkpoints import put, qwen3, shard

from hybridctl import cli
from hybridctl.commands import prepare as command
from hybridctl.errors import UsageError
from hybridctl.patchers import audit_model
from hybridctl.patchers.config import Versions
from hybridctl.runtime.target import Target

Run = Callable[..., tuple[int, str]]
LAYERS = [f"model.layers.{i}.input_layernorm.weight" for i in range(4)]
DONE: dict[str, Any] = {"stage": "done", "vllm": "0.32.0", "model_class": "X", "refused": [], "short": {}, "unused": []}


@pytest.fixture
def model(tmp_path: Path) -> Path:
    return put(tmp_path / "models" / "Tiny", {**qwen3(), "model.safetensors": shard(LAYERS)})


@pytest.fixture
def run(monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> Run:
    """The command with the answer of a vLLM 0.32.0; ``None``: there is none here."""
    monkeypatch.setenv("HYBRIDCTL_HOME", str(tmp_path / "home"))
    monkeypatch.setenv("COLUMNS", "400")
    monkeypatch.delenv("VLLM_USE_MODELSCOPE", raising=False)

    def no_gpu() -> Any:
        raise UsageError("no GPU was found here")

    monkeypatch.setattr("hybridctl.commands.fit._local", no_gpu)
    program = tmp_path / "program.py"
    monkeypatch.setattr(audit_model, "PROGRAM", program)

    def running(answer: dict[str, Any] | None, *words: object) -> tuple[int, str]:
        target = Target(sys.executable, "vllm", "0.32.0") if answer else None
        monkeypatch.setattr(command, "_versions", lambda *_: (Versions("0.32.0", "5.19.0"), target, []))
        program.write_text(f"print({json.dumps(json.dumps(answer))})")
        monkeypatch.setattr(sys, "argv", ["hybridctl", "prepare", *map(str, words)])
        with pytest.raises(SystemExit) as end:
            cli.main()
        return int(end.value.code or 0), capsys.readouterr().out

    return running


def overlays_made(tmp_path: Path) -> list[Path]:
    return list(tmp_path.glob("home/share/overlays/*/config.json"))


def test_a_sound_checkpoint_is_said_to_be_asked(run: Run, model: Path) -> None:
    code, told = run(DONE, model, "--dry-run")
    assert code == 0
    assert "nothing found; 4 tensors, names and shapes asked of vLLM's X" in told


def test_what_vllm_would_not_take_is_shown_and_refused(run: Run, model: Path, tmp_path: Path) -> None:
    answer = {**DONE, "short": {"lm_head.weight": [0, 8]}}
    code, told = run(answer, model, "--dry-run")
    assert code == 1
    assert "tensor-missing: lm_head.weight (1): this parameter of X would get nothing" in told
    code, told = run(answer, model)
    assert code == 1
    assert "refused: the audit found faults" in told
    assert overlays_made(tmp_path) == []
    code, _ = run(answer, model, "--force")
    assert code == 0
    assert len(overlays_made(tmp_path)) == 1


def test_without_vllm_faults_that_any_reader_meets_stop_it(run: Run, model: Path, tmp_path: Path) -> None:
    put(model, {"model.safetensors": shard(LAYERS[:3])})
    code, told = run(None, model, "--json")
    audit = json.loads(told)["audit"]
    assert code == 1
    assert [(f["id"], f["evidence"]) for f in audit["faults"]] == [("layer-missing", ["model.layers.3"])]
    assert audit["unknown"]
    assert overlays_made(tmp_path) == []
    code, told = run(None, model, "--force")
    assert code == 0
    assert "not judged are tensors that all layers lack" in told


def test_without_vllm_what_depends_on_the_release_is_told_only(run: Run, model: Path) -> None:
    index = {"weight_map": dict.fromkeys(LAYERS[:3], "model.safetensors")}
    put(model, {"model.safetensors.index.json": json.dumps(index).encode()})
    code, told = run(None, model, "--dry-run", "--json")
    assert code == 0
    assert [f["id"] for f in json.loads(told)["audit"]["faults"]] == ["index-lacks-tensor"]


def test_a_missing_shard_is_all_that_is_told_of_it(run: Run, model: Path) -> None:
    (model / "model.safetensors").unlink()
    put(model, {"model-00001-of-00002.safetensors": shard(LAYERS[:2])})
    code, told = run(None, model, "--dry-run", "--json")
    assert code == 1
    assert [f["id"] for f in json.loads(told)["audit"]["faults"]] == ["shard-missing"]


def test_a_folder_that_can_not_be_read_through_is_told_with_all_its_faults(model: Path) -> None:
    put(model, {"model.safetensors": shard(LAYERS)[:-9], "model.safetensors.index.json": b"{"})
    with pytest.raises(
        UsageError, match=r"audit: index-unreadable: .*; shard-truncated: model\.safetensors is cut off"
    ):
        command._found(str(model), None)


def test_a_vllm_that_gives_no_answer_is_no_all_clear(run: Run, model: Path) -> None:
    code, told = run({"stage": "build", "vllm": "0.32.0", "error": "ValueError: no kernel"}, model, "--dry-run")
    assert code == 0
    assert "was not asked (vLLM 0.32.0 could not build the model: ValueError: no kernel)" in told


PLAIN = [
    n for i in range(4) for n in (f"model.layers.{i}.input_layernorm.weight", f"model.layers.{i}.mlp.up_proj.weight")
]
PREFIXED = [n.replace("up_proj", "linear_up_proj") for n in PLAIN]


def renaming(program: Path, sound: list[str]) -> None:
    """In place of vLLM: a model that takes these names, and nothing else."""
    program.write_text(
        "import json, sys\n"
        f"done, sound = {DONE!r}, {sound!r}\n"
        "for path in sys.argv[2:]:\n"
        "    given = [row[0] for row in json.load(open(path))]\n"
        "    short = {n: [0, 1] for n in sound if n not in given}\n"
        "    print(json.dumps({**done, 'short': short, 'unused': [n for n in given if n not in sound]}))\n"
    )


@pytest.fixture
def asked(run: Run, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> Run:
    """The command with a vLLM whose model takes the names that it is given, and nothing else."""

    def running(sound: dict[str, Any] | None, *words: object) -> tuple[int, str]:
        target = Target(sys.executable, "vllm", "0.32.0") if sound else None
        monkeypatch.setattr(command, "_versions", lambda *_: (Versions("0.32.0", "5.19.0"), target, []))
        renaming(audit_model.PROGRAM, (sound or {}).get("names", []))
        monkeypatch.setattr(sys, "argv", ["hybridctl", "prepare", *map(str, words)])
        with pytest.raises(SystemExit) as end:
            cli.main()
        return int(end.value.code or 0), capsys.readouterr().out

    return running


def test_the_articles_names_become_rules_of_the_overlay(asked: Run, model: Path, tmp_path: Path) -> None:
    put(model, {"model.safetensors": shard(PREFIXED)})
    code, told = asked({"names": PLAIN}, model, "--dry-run")
    assert code == 0
    assert "component linear_up_proj → up_proj: 4 tensors, such as model.layers.*.mlp.linear_up_proj.weight" in told
    assert '+    "HybridCtlRenamedQwen3ForCausalLM"' in told and "HYBRIDCTL_NAMES=" in told
    assert "nothing found; 8 tensors" in told and overlays_made(tmp_path) == []
    code, told = asked({"names": PLAIN}, model)
    assert code == 0 and "names of 4 tensors (linear_up_proj → up_proj)" in " ".join(told.split())
    assert "vllm serve" not in told  # which would refuse the folder
    folder = overlays_made(tmp_path)[0].parent
    manifest = json.loads((folder / "hybridctl.json").read_text())
    assert manifest["load"]["architecture"] == "Qwen3ForCausalLM"
    assert [(r["kind"], r["old"], r["new"]) for r in manifest["load"]["names"]] == [
        ("component", "linear_up_proj", "up_proj")
    ]
    assert "unchanged" in asked({"names": PLAIN}, model)[1]
    put(model, {"model.safetensors": shard(PLAIN)})  # put right: the rules go
    assert "prepared:" in asked({"names": PLAIN}, model)[1]
    assert json.loads((folder / "hybridctl.json").read_text())["load"] is None
    assert json.loads((folder / "config.json").read_text())["architectures"] == ["Qwen3ForCausalLM"]


def test_a_rule_is_taken_only_where_vllm_then_takes_more(asked: Run, model: Path) -> None:
    names = [n.replace("model.", "model.language_model.") for n in PLAIN]
    put(model, {"model.safetensors": shard(names)})
    code, told = asked({"names": PLAIN}, model, "--dry-run", "--json")
    assert code == 0
    assert [(r["id"], r["old"], r["new"], r["tensors"]) for r in json.loads(told)["names"]] == [
        ("text-of-a-vision-model", "model.language_model.", "model.", 8)
    ]
    code, told = asked({"names": names}, model, "--dry-run", "--json")
    assert code == 0 and json.loads(told)["names"] == []
    code, told = asked({"names": ["other"]}, model, "--dry-run", "--json")  # no rule helps
    assert code == 1 and json.loads(told)["names"] == []


def test_both_kinds_of_rules_may_be_needed(asked: Run, model: Path) -> None:
    put(model, {"model.safetensors": shard([n.replace("model.", "_orig_mod.model.language_model.") for n in PREFIXED])})
    code, told = asked({"names": PLAIN}, model, "--dry-run", "--json")
    assert code == 0
    assert [r["old"] for r in json.loads(told)["names"]] == ["linear_up_proj", "_orig_mod.", "model.language_model."]


def test_names_that_prove_themselves_need_no_vllm(asked: Run, model: Path) -> None:
    put(model, {"model.safetensors": shard(PREFIXED)})
    code, told = asked(None, model, "--dry-run", "--json")
    assert code == 0 and [r["old"] for r in json.loads(told)["names"]] == ["linear_up_proj"]


SCALED = [*PLAIN, *(f"model.layers.{i}.mlp.up_proj.weight_scale_inv" for i in range(4))]


def test_scales_under_the_other_name_become_a_rule_only_where_vllm_asks_for_it(asked: Run, model: Path) -> None:
    plain = [name.removesuffix("_inv") for name in SCALED]
    for stored, taken, rule in (
        (plain, SCALED, [("block-scale-plain", ".weight_scale", ".weight_scale_inv", 4)]),
        (SCALED, plain, [("tensor-scale-inverse", ".weight_scale_inv", ".weight_scale", 4)]),
        (plain, plain, []),
        (SCALED, SCALED, []),
    ):
        put(model, {"model.safetensors": shard(stored)})
        code, told = asked({"names": taken}, model, "--dry-run", "--json")
        assert code == 0
        assert [(r["id"], r["old"], r["new"], r["tensors"]) for r in json.loads(told)["names"]] == rule
    code, told = asked({"names": PLAIN}, model, "--dry-run", "--json")  # a vLLM that has no scales at all
    assert code == 1 and json.loads(told)["names"] == []
