"""prepare, then serve, in the installed vLLM: hybrids as they are and under other names, and a plain model with a routing."""

from __future__ import annotations

import importlib.util
import json
import os
import shutil
import signal
import subprocess
import sys
import urllib.request
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from fake_vllm import Serve, serving

from hybridctl.runtime.checkpoint import DEMO

pytestmark = [
    pytest.mark.vllm,
    pytest.mark.slow,
    pytest.mark.skipif(importlib.util.find_spec("vllm") is None, reason="needs vLLM"),
]
HERE = Path(__file__).parents[1]
PROMPT = "def fibonacci(n):\n    if n < 2:\n        return n\n"
START = 900.0
# Models this small gain nothing from a second thread, and on a busy machine lose by waiting for it.
QUICK = {"VLLM_CPU_KVCACHE_SPACE": "1", "VLLM_CPU_OMP_THREADS_BIND": "nobind", "OMP_NUM_THREADS": "1"}


def tiny(folder: Path, family: str) -> Path:
    """A sound checkpoint of random weights, large enough that each of them shows in an answer, with a tokenizer."""
    sys.path[:0] = [str(HERE / "runtime" / "vllm_plugin"), str(HERE / "patchers")]
    from safetensors.torch import load_file, save_file
    from seeded import SEED
    from tiny_models import write_tokenizer

    SEED.make(family, folder)
    for file in folder.glob("*.safetensors"):
        save_file({n: t * 4 if t.dim() > 1 else t for n, t in load_file(file).items()}, file)
    write_tokenizer(folder)
    return folder


def rename(source: Path, folder: Path) -> Path:
    """The same checkpoint with the article's prefix before the projections of its attention."""
    from safetensors.torch import load_file, save_file

    def new(name: str) -> str:
        return ".".join("linear_" + part if part in ("q_proj", "o_proj") else part for part in name.split("."))

    shutil.copytree(source, folder)
    for file in folder.glob("*.safetensors"):
        save_file({new(name): tensor for name, tensor in load_file(file).items()}, file)
    index = folder / "model.safetensors.index.json"
    table = json.loads(index.read_text())
    table["weight_map"] = {new(name): file for name, file in table["weight_map"].items()}
    index.write_text(json.dumps(table))
    return folder


def prepare(root: Path, model: Path, *words: str) -> dict[str, Any]:
    environ = {**os.environ, "HYBRIDCTL_HOME": str(root / "home")}
    argv = [sys.executable, "-m", "hybridctl", "prepare", str(model), *words, "--json"]
    made = subprocess.run(argv, capture_output=True, text=True, env=environ, check=False)
    assert made.returncode == 0, made.stdout + made.stderr
    document: dict[str, Any] = json.loads(made.stdout)
    return document


@contextmanager
def ready(root: Path, overlay: str, *words: str) -> Iterator[tuple[Serve, dict[str, Any]]]:
    """A server that is ready, with what it said then. It is stopped in order."""
    line = (overlay, "--json", *words, "--", "--enforce-eager", "--max-num-seqs", "4")
    with serving(root, *line, python=Path(sys.executable), **QUICK) as server:
        server.when(lambda: server.out.endswith("\n}\n"), START)
        yield server, json.loads(server.out)
        assert server.end(signal.SIGTERM, 60) == 0


def ask(said: dict[str, Any], path: str, body: dict[str, Any] | None = None) -> Any:
    data = None if body is None else json.dumps(body).encode()
    request = urllib.request.Request(said["url"] + path, data, {"Content-Type": "application/json"})
    with urllib.request.urlopen(request, timeout=300) as answer:
        text = answer.read().decode()
    return text if path == "/metrics" else json.loads(text)


def answer(said: dict[str, Any]) -> tuple[list[str], list[float]]:
    """The tokens of a greedy answer and the logarithms of their probabilities."""
    body = {"model": said["model"], "prompt": PROMPT, "max_tokens": 24, "temperature": 0, "logprobs": 1}
    found = ask(said, "/v1/completions", {**body, "ignore_eos": True})["choices"][0]["logprobs"]
    return found["tokens"], found["token_logprobs"]


def test_a_routing_from_a_file_is_served(tmp_path: Path) -> None:
    model = tmp_path / "plain"
    shutil.copytree(DEMO, model)
    config = json.loads((model / "config.json").read_text())
    block = config.pop("hybrid_config")
    (model / "config.json").write_text(json.dumps(config, indent=2))
    (tmp_path / "block.json").write_text(json.dumps(block))
    made = prepare(tmp_path, model, "--routing", str(tmp_path / "block.json"), "--max-model-len", "1024")
    with ready(tmp_path, made["folder"], "--dtype", "float32") as (_, said):
        assert (said["injected"], said["layers"], said["model"]) == (True, 4, str(model))
        assert "Dispatcher: injected by hybridctl serve (routing block.json)." in said["summary"]
        assert ask(said, "/v1/models")["data"][0]["max_model_len"] == 1024  # the stored flag
        asked = {"model": str(model), "prompt": "def f(x):\n    return x\n" * 40, "max_tokens": 8, "temperature": 0}
        used = ask(said, "/v1/completions", asked)["usage"]["prompt_tokens"]
        assert used > block["thresholds"]["linear"]
        lines = [line for line in ask(said, "/metrics").splitlines() if line.startswith("hybridctl_")]
        for kernel in ("flash", "linear"):
            assert any(kernel in line and float(line.split()[-1]) > 0 for line in lines), lines


WORDS = (
    "Sound already mixes 2 Gated DeltaNet and 2 full layers; vLLM ≥ 0.10.2 serves it. Patched: {}. Dispatcher: not injected "
    "(no routing weights; layers can't be wrapped). To see it work: hybridctl serve --demo."
)


def serve_sound(root: Path, model: Path) -> tuple[list[str], list[float]]:
    made = prepare(root, model, "--max-model-len", "512")
    assert (made["summary"], made["names"]) == (WORDS.format("nothing"), [])
    assert made["audit"]["model_class"] == "Qwen3NextForCausalLM" and not made["audit"]["unknown"]
    with ready(root, made["folder"]) as (_, said):
        assert (said["injected"], said["names"], said["summary"]) == (False, [], WORDS.format("nothing"))
        return answer(said)


def serve_renamed(root: Path, folder: Path) -> tuple[list[str], list[float]]:
    config = json.loads((folder / "config.json").read_text())
    assert config["architectures"] == ["HybridCtlRenamedQwen3NextForCausalLM"]  # which no vLLM serves by itself
    with ready(root, str(folder)) as (server, said):
        assert (said["injected"], said["empty"]) == (False, "")
        assert [row["tensors"] for row in said["names"]] == [2, 2]
        (proof,) = (server.runs[0] / "proof").glob("names-0-*.json")
        assert json.loads(proof.read_text())["architecture"] == "Qwen3NextForCausalLM"
        return answer(said)


def refuse_idle_rules(root: Path, folder: Path) -> None:
    line = (str(folder), "--force", "--", "--enforce-eager", "--max-num-seqs", "4")
    with serving(root, *line, python=Path(sys.executable), **QUICK) as server:
        code, said = server.why(START)
        assert code != 0
        assert "the rule for names linear_o_proj → o_proj matches no tensor of the checkpoint" in said
        assert server.left == []


def put_right(root: Path, folder: Path, sound: Path) -> Path:
    """A copy of a prepared folder whose checkpoint was put right without a new prepare: the rules match nothing any more."""
    copy = shutil.copytree(folder, root / "put-right")
    for file in sound.glob("*.safetensors"):
        shutil.copy(file, copy / file.name)
    manifest = json.loads((copy / "hybridctl.json").read_text())
    for name, told in manifest["files"].items():
        told["size"] = (copy / name).stat().st_size
    (copy / "hybridctl.json").write_text(json.dumps(manifest))
    return copy


def test_a_hybrid_answers_the_same_under_other_tensor_names(tmp_path: Path) -> None:
    sound = tiny(tmp_path / "Sound", "qwen3_next")
    renamed = rename(sound, tmp_path / "Renamed")
    one, two, three = (tmp_path / name for name in ("one", "two", "three"))
    for root in (one, two, three):
        root.mkdir()
    with ThreadPoolExecutor(2) as pool:  # most of a start is one process that imports
        expected = pool.submit(serve_sound, one, sound)
        made = prepare(two, renamed, "--max-model-len", "512")
        assert {(r["old"], r["new"], r["tensors"]) for r in made["names"]} == {
            ("linear_q_proj", "q_proj", 2),
            ("linear_o_proj", "o_proj", 2),
        }
        assert made["audit"]["faults"] == [] and not made["audit"]["unknown"]
        got = pool.submit(serve_renamed, two, Path(made["folder"]))
        refused = pool.submit(refuse_idle_rules, three, put_right(tmp_path, Path(made["folder"]), sound))
        tokens, logprobs = expected.result()
        assert len(set(tokens)) > 4
        assert got.result()[0] == tokens
        assert got.result()[1] == pytest.approx(logprobs, abs=1e-2)
        refused.result()


def test_a_text_only_checkpoint_that_kept_the_vision_models_class(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    if importlib.util.find_spec("torchvision") is None:  # which vLLM's Qwen3.5 imports, also for text
        path = [str(HERE / "data" / "torchvision_stub"), *filter(None, [os.environ.get("PYTHONPATH")])]
        monkeypatch.setenv("PYTHONPATH", os.pathsep.join(path))
    model = tiny(tmp_path / "Text", "qwen3_5")
    config = json.loads((model / "config.json").read_text())
    config["architectures"] = ["Qwen3_5ForConditionalGeneration"]
    (model / "config.json").write_text(json.dumps(config, indent=2))
    made = prepare(tmp_path, model, "--max-model-len", "512")
    assert json.loads((Path(made["folder"]) / "config.json").read_text())["architectures"] == ["Qwen3_5ForCausalLM"]
    assert "Patched: architectures. Dispatcher: not injected" in made["summary"]
    assert (made["audit"]["faults"], made["audit"]["unknown"]) == ([], "")
    with ready(tmp_path, made["folder"]) as (_, said):
        assert (said["injected"], said["summary"]) == (False, made["summary"])
        assert len(set(answer(said)[0])) > 4
