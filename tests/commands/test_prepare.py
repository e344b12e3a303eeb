"""prepare on local folders: what is written, what is refused, and that all of it can be undone."""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from fake_checkpoints import put, qwen3, qwen4, shard, world

from hybridctl import cli, overlays
from hybridctl.commands import prepare as command
from hybridctl.patchers import overlay
from hybridctl.patchers.config import Versions
from hybridctl.patchers.routing import ARTICLE
from hybridctl.runtime.checkpoint import find
from hybridctl.runtime.launch import Options, plan
from hybridctl.runtime.target import Target

Run = Callable[..., tuple[int, str, str]]
POSITION = {"thresholds": {"flash": 64, "linear": 128}, "fallback_policy": "flash"}


@pytest.fixture
def run(monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> Run:
    """The command in a world of its own, with vLLM 0.32.0 and transformers 5.19.0 as installed and no GPU."""
    monkeypatch.setenv("HYBRIDCTL_HOME", str(tmp_path / "home"))
    monkeypatch.setenv("COLUMNS", "400")
    monkeypatch.delenv("VLLM_USE_MODELSCOPE", raising=False)
    monkeypatch.setattr(command, "_versions", lambda python, vllm: (Versions(vllm or "0.32.0", "5.19.0"), None, []))
    monkeypatch.setattr("hybridctl.commands.fit._local", _no_gpu)

    def running(*words: object) -> tuple[int, str, str]:
        monkeypatch.setattr(sys, "argv", ["hybridctl", "prepare", *map(str, words)])
        with pytest.raises(SystemExit) as end:
            cli.main()
        told = capsys.readouterr()
        return int(end.value.code or 0), told.out, told.err

    return running


def _no_gpu() -> Any:
    from hybridctl.errors import UsageError

    raise UsageError("no GPU was found here")


@pytest.fixture
def model(tmp_path: Path) -> Path:
    return put(tmp_path / "models" / "Tiny", qwen3())


def written(home: Path, name: str, file: str = "config.json") -> Any:
    text = (home / "share" / "overlays" / name / file).read_text()
    return json.loads(text) if file.endswith(".json") else text


def test_a_dry_run_shows_the_diff_and_writes_nothing(run: Run, tmp_path: Path) -> None:
    model = put(tmp_path / "models" / "Flash-Next", qwen4())
    before = world(tmp_path, but=("home",))
    code, out, _ = run(model, "--dry-run", "--vllm", "0.30.0")
    assert code == 0 and "nothing was written" in out
    assert '-      "indexed_attention"' in out and '+      "full_attention"' in out
    assert '+    "Qwen4ExpForConditionalGeneration"' in out and "+++ b/config.yml" in out
    assert not (tmp_path / "home" / "share").exists()
    assert world(tmp_path, but=("home",)) == before


def test_the_words_for_a_native_hybrid(run: Run, tmp_path: Path) -> None:
    model = put(tmp_path / "models" / "Qwen3.8-Flash-Next", qwen4())
    _, out, _ = run(model, "--json", "--vllm", "0.30.0")
    assert json.loads(out)["summary"] == (
        "Qwen3.8-Flash-Next already mixes 3 Gated DeltaNet and 1 sparse layers; vLLM ≥ 0.29 serves it. "
        "Patched: architectures, model_type, layer_types, output_gate_type. "
        "Dispatcher: not injected (no routing weights; layers can't be wrapped). To see it work: hybridctl serve --demo."
    )


@pytest.mark.parametrize("how", ["link", "hardlink", "copy"])
def test_prepare_twice_status_undo(run: Run, tmp_path: Path, model: Path, how: str) -> None:
    before = world(model)
    code, out, _ = run(model, "--materialize", how)
    assert code == 0 and "prepared:" in out and "hybridctl serve Tiny" in out
    folder = tmp_path / "home" / "share" / "overlays" / "Tiny"
    weights = folder / "model.safetensors"
    assert weights.is_symlink() == (how == "link")
    assert weights.samefile(model / "model.safetensors") == (how != "copy")
    assert not (folder / "README.md").exists()
    assert overlays.look(folder).problem == ""
    made = world(folder)
    code, out, _ = run(model, "--materialize", how)
    assert code == 0 and "unchanged" in out and world(folder) == made
    assert run("--status")[0] == 0
    assert run(model, "--undo")[0] == 0
    assert world(model) == before and list(folder.parent.iterdir()) == []
    assert "nothing is prepared" in run(model, "--undo")[1]


def test_other_choices_replace_the_overlay(run: Run, tmp_path: Path, model: Path) -> None:
    run(model)
    run(model, "--max-model-len", 4096)
    assert 'max-model-len: "4096"' in written(tmp_path / "home", "Tiny", "config.yml")
    assert [p.name for p in (tmp_path / "home/share/overlays").iterdir()] == ["Tiny"]


def test_serve_takes_the_stored_flags_unless_told_otherwise(run: Run, tmp_path: Path, model: Path) -> None:
    run(model, "--max-model-len", 4096, "--tp", 2)
    target = Target("python", "vllm", "0.32.0")
    stored = plan(find("Tiny"), target, Options(), tmp_path, {})
    assert stored.given("--max-model-len") == "4096" and stored.tensor_parallel_size == 2
    told = plan(find("Tiny"), target, Options(extra=("--max-model-len", "99")), tmp_path, {})
    assert told.words.count("--max-model-len") == 1 and told.given("--max-model-len") == "99"


def test_drift(run: Run, tmp_path: Path, model: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    run(model)
    os.utime(model / "model.safetensors", ns=(1, 1))
    config = tmp_path / "home/share/overlays/Tiny/config.json"
    config.write_text(config.read_text().replace("8192", "4096"))
    newer = Versions("0.33.0", "5.20.0")
    monkeypatch.setattr(command, "_versions", lambda *_: (newer, Target("p", "vllm", "0.33.0"), []))
    code, out, _ = run("--status", "--json")
    assert code == 1
    assert json.loads(out)["prepared"][0]["drift"] == [
        "config.json was changed since",
        "the checkpoint's model.safetensors was changed since",
        "prepared for vLLM 0.32.0; installed is 0.33.0",
        "prepared for transformers 5.19.0; installed is 5.20.0",
    ]
    assert "prepared:" in run(model)[1]  # a new run puts it right


def test_weights_that_were_downloaded_anew_make_a_new_overlay(run: Run, model: Path) -> None:
    run(model)
    os.utime(model / "model.safetensors", ns=(1, 1))
    assert run("--status")[0] == 1
    assert "prepared:" in run(model)[1]
    assert run("--status")[0] == 0


def test_the_articles_block_stands_word_for_word(run: Run, tmp_path: Path, model: Path) -> None:
    code, out, _ = run(model, "--routing", "article", "--force")
    assert code == 0
    config = written(tmp_path / "home", "Tiny-article")
    assert config["hybrid_config"] == ARTICLE
    assert config["architectures"] == ["HybridCtlQwen3ForCausalLM"]
    assert list(config)[:-1] == list(json.loads(qwen3()["config.json"]))
    assert "not trained for that" in out and "PTX kernels: not built" in out


def test_what_the_runtime_does_not_execute_is_refused_in_its_own_words(
    run: Run, tmp_path: Path, model: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("hybridctl.runtime.vllm_plugin.routing.FEATURES", frozenset({"band", "heads"}))
    block = tmp_path / "r.json"
    block.write_text(json.dumps({**POSITION, "batch_policy": "uniform"}))
    code, _, err = run(model, "--routing", block)
    assert (code, err.split(";")[0]) == (2, "error: not yet: batch_policy uniform")
    block.write_text(json.dumps({**POSITION, "tresholds": 1}))
    assert "did you mean thresholds?" in run(model, "--routing", block)[2]
    assert not (tmp_path / "home/share").exists()


def test_a_file_is_written_and_taken_out_again(run: Run, tmp_path: Path, model: Path) -> None:
    block = tmp_path / "short.json"
    block.write_text(json.dumps({"hybrid_config": POSITION}))
    assert run(model, "--routing", block)[0] == 0
    made = tmp_path / "home/share/overlays/Tiny-short"
    config = json.loads((made / "config.json").read_text())
    assert config["hybrid_config"] == POSITION
    assert overlays.read_manifest(made).routing == "short.json"
    plain = put(tmp_path / "models" / "Routed", qwen3(hybrid_config=POSITION))
    assert run(plain, "--routing", "none")[0] == 0
    assert written(tmp_path / "home", "Routed") == json.loads(qwen3()["config.json"])


@pytest.mark.parametrize(
    ("config", "words"),
    [
        ({"layer_types": ["sliding_attention", "full_attention"] * 2, "sliding_window": 64}, "layers 0, 2, 2 in all: sliding"),
        ({"attn_logit_softcapping": 30.0}, "layers 0-3, 4 in all: attention with a soft cap"),
        ({"model_type": "gpt_oss"}, "attention with sinks"),
        ({"kv_lora_rank": 16, "qk_rope_head_dim": 8}, "latent attention (MLA)"),
        ({"architectures": ["Qwen3NextForCausalLM"], "model_type": "qwen3_next", "full_attention_interval": 4,
          "linear_num_value_heads": 4}, "layers 0-2, 3 in all: Gated DeltaNet; layers 3, 1 in all: full attention"),
    ],
)  # fmt: skip
def test_layers_that_cannot_be_wrapped(run: Run, tmp_path: Path, config: dict[str, Any], words: str) -> None:
    block = tmp_path / "r.json"
    block.write_text(json.dumps(POSITION))
    code, _, err = run(put(tmp_path / "models" / "M", qwen3(**config)), "--routing", block, "--force")
    assert code == 2 and words in err


def test_it_does_not_fit(run: Run, tmp_path: Path, model: Path) -> None:
    code, _, err = run(model, "--memory", 0.5)
    assert code == 1 and "Does not fit" in err and not (tmp_path / "home/share").exists()
    assert run(model, "--memory", 0.5, "--force")[0] == 0
    assert run(model, "--memory", 80)[0] == 0


def test_a_vllm_without_the_class(run: Run, model: Path) -> None:
    code, _, err = run(model.rename(model.with_name("Q")), "--vllm", "0.6.3")
    assert code == 2 and "has no class Qwen3ForCausalLM; it came with" in err


def _link_out(folder: Path) -> None:
    (folder / "tokenizer.json").unlink()
    (folder / "tokenizer.json").symlink_to("/etc/passwd")


def _rename_weights(name: str) -> Callable[[Path], None]:
    return lambda folder: (folder / "model.safetensors").rename(folder / name) and None


def _index(folder: Path) -> None:
    (folder / "model.safetensors.index.json").write_text('{"weight_map": {"a": "../../x.safetensors"}}')


def _text(name: str, text: str) -> Callable[[Path], None]:
    return lambda folder: (folder / name).write_text(text) and None


def _circle(name: str) -> Callable[[Path], None]:
    def do(folder: Path) -> None:
        (folder / name).unlink(missing_ok=True)
        (folder / name).symlink_to(name)

    return do


def _pipe(name: str) -> Callable[[Path], None]:
    def do(folder: Path) -> None:
        (folder / name).unlink(missing_ok=True)
        os.mkfifo(folder / name)

    return do


POINTER = "version https://git-lfs.github.com/spec/v1\noid sha256:00\nsize 1\n"


@pytest.mark.parametrize(
    ("harm", "words"),
    [
        (_link_out, "tokenizer.json links to /etc/passwd, out of the folder"),
        (_index, "names '../../x.safetensors', which is no weight file of this folder"),
        (_rename_weights("pytorch_model.bin"), "pickle files (pytorch_model.bin), which run code"),
        (_rename_weights("m.gguf"), "GGUF"),
        (_circle("config.json"), "config.json links to itself"),
        (_circle("model.safetensors"), "model.safetensors links to itself"),
        (_pipe("config.json"), "no config.json"),
        (_pipe("model.safetensors"), "no plain file"),
        (_text("model.safetensors", POINTER), "a Git LFS pointer"),
        (_text("tokenizer.json", POINTER), "tokenizer.json: a Git LFS pointer"),
        (_text("config.json", "[" * 9000), "nested"),
        (_text("config.json", '{"a": 1, "a": 2}'), "stands twice"),
        (lambda f: (f / "model.safetensors").write_bytes(b"\xff" * 7 + b"\x7f" + b"{}") and None, "header"),
        (lambda f: (f / "model.safetensors").write_bytes(shard(["a"])[:-9]) and None, "cut off"),
    ],
)  # fmt: skip
def test_hostile_folders(run: Run, tmp_path: Path, model: Path, harm: Callable[[Path], None], words: str) -> None:
    harm(model)
    code, out, err = run(model)
    assert code == 2 and words in err and out == "" and not (tmp_path / "home/share").exists()


def test_code_of_a_checkpoint_is_warned_of_and_left_behind(run: Run, tmp_path: Path) -> None:
    files = {**qwen3(auto_map={"AutoModel": "modeling.Evil"}), "modeling.py": b"raise SystemExit"}
    _, out, _ = run(put(tmp_path / "models" / "Coded", files))
    assert "auto_map" in out and "trust" not in written(tmp_path / "home", "Coded", "config.yml")
    assert not (tmp_path / "home/share/overlays/Coded/modeling.py").exists()


def test_a_folder_of_somebody_else_is_not_touched(run: Run, tmp_path: Path, model: Path) -> None:
    mine = put(tmp_path / "mine", {"notes.txt": b"x"})
    assert run(model, "--output", mine)[0] == 2
    assert run(model, "--output", mine, "--undo")[0] == 2
    made = tmp_path / "made"
    assert run(model, "--output", made)[0] == 0
    (made / "notes.txt").write_text("mine")
    code, _, err = run(model, "--output", made, "--undo")
    assert code == 2 and "notes.txt" in err and (made / "config.json").exists()
    assert (mine / "notes.txt").exists()


class Killed(BaseException):
    pass


def test_a_run_that_is_killed_anywhere_is_resumed_or_undone(
    run: Run, tmp_path: Path, model: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Dies at each call by which a file or folder is made, renamed or removed, one after the other."""
    names = ("mkdir", "rename", "replace", "symlink_to", "unlink", "write_text", "rmdir")
    home = tmp_path / "home/share/overlays"
    run(model)
    good = {n: v for n, v in world(home / "Tiny").items() if "hybridctl.json" not in n and "config.yml" not in n}
    for step in range(200):
        left = [step]

        def dying(real: Callable[..., Any], left: list[int] = left) -> Callable[..., Any]:
            def call(path: Path, *args: Any, **named: Any) -> Any:
                if str(path).startswith(str(home)):
                    if not left[0]:
                        raise Killed
                    left[0] -= 1
                return real(path, *args, **named)

            return call

        with monkeypatch.context() as patched:
            for name in names:
                patched.setattr(Path, name, dying(getattr(Path, name)))
            patched.setattr(overlay, "_sync", lambda path: None)
            try:
                run(model, "--max-model-len", 100 + step)
                whole = True
            except Killed:
                whole = False
        shown = overlays.listing()
        assert all(o.problem == "" for o in shown), (step, shown)
        code, _, err = run(model, "--max-model-len", 5000 + step)
        assert (code, err) == (0, err), (step, err)
        now = {n: v.split(" ")[0] for n, v in world(home / "Tiny").items()}
        assert all(now[n] == v.split(" ")[0] for n, v in good.items())
        assert [p.name for p in home.iterdir()] == ["Tiny"], step
        if whole:
            break
    assert step > 15
    assert run(model, "--undo")[0] == 0 and list(home.iterdir()) == []
