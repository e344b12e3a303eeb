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


def test_without_vllm_faults_of_the_files_are_told(run: Run, model: Path) -> None:
    put(model, {"model.safetensors": shard(LAYERS[:3])})
    code, told = run(None, model, "--dry-run", "--json")
    audit = json.loads(told)["audit"]
    assert code == 0
    assert [(f["id"], f["evidence"]) for f in audit["faults"]] == [("layer-missing", ["model.layers.3"])]
    assert audit["unknown"]


def test_a_vllm_that_gives_no_answer_is_no_all_clear(run: Run, model: Path) -> None:
    code, told = run({"stage": "build", "vllm": "0.32.0", "error": "ValueError: no kernel"}, model, "--dry-run")
    assert code == 0
    assert "was not asked (vLLM 0.32.0 could not build the model: ValueError: no kernel)" in told
