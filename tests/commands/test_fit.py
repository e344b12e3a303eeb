"""``hybridctl fit`` from outside: what it prints, what it answers in JSON, how it refuses."""

from __future__ import annotations

import json
import struct
import sys
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner, Result

from hybridctl.app import app
from hybridctl.errors import UsageError

FAMILIES = json.loads((Path(__file__).parent.parent / "data" / "fit" / "families.json").read_text())


def fit(*arguments: str) -> Result:
    return CliRunner().invoke(app, ["fit", *arguments, "--offline"])


def answer(*arguments: str) -> dict[str, Any]:
    result = fit(*arguments, "--json")
    assert result.exit_code in (0, 1), result.exception
    document = json.loads(result.stdout)
    assert document["schema_version"] == 1
    return dict(document)


@pytest.fixture
def model(tmp_path: Path) -> Path:
    """A folder with a config and one sound weight file."""
    (tmp_path / "config.json").write_text(json.dumps(FAMILIES["qwen3_next"]))
    header = json.dumps(
        {
            "model.embed_tokens.weight": {"dtype": "BF16", "shape": [512, 128], "data_offsets": [0, 131072]},
            "model.layers.0.mlp.experts.0.up_proj.weight": {
                "dtype": "BF16",
                "shape": [64, 128],
                "data_offsets": [131072, 147456],
            },
        }
    ).encode()
    (tmp_path / "model.safetensors").write_bytes(struct.pack("<Q", len(header)) + header + bytes(147456))
    return tmp_path


def test_a_known_model_by_name() -> None:
    found = answer("Qwen/Qwen3.6-27B", "--gpu", "H200", "--max-model-len", "262144")
    assert found["verdict"] == "fits"
    assert found["cache"]["block_size"] == 784
    assert found["cache"]["kv_bytes_a_token"] * 262144 == 16 * 2**30
    assert found["command"] == "vllm serve Qwen/Qwen3.6-27B"
    assert found["memory"]["pool_bytes"]["low"] < found["memory"]["pool_bytes"]["planned"]
    assert found["contexts"][-1]["tokens"] == 262144
    assert found["gpu"]["name"] == "H200"


def test_what_does_not_fit_names_what_does() -> None:
    found = answer("Qwen/Qwen3-Next-80B-A3B-Instruct", "--gpu", "H100 80GB")
    assert found["verdict"] == "does-not-fit"
    assert found["changes"][0]["text"] == "4 such GPUs (--tensor-parallel-size 4)"
    assert found["changes"][0]["text"] in found["summary"]
    again = answer("Qwen/Qwen3-Next-80B-A3B-Instruct", "--gpu", "H100 80GB", "--tp", "4")
    assert again["verdict"] == "fits"


def test_headers_of_a_folder(model: Path) -> None:
    found = answer(str(model), "--memory", "24", "--max-model-len", "4096")
    assert found["model"]["weights"] == {
        "files": 1,
        "bytes": 147456,
        "by_dtype": {"BF16": 147456},
        "by_part": {"embedding": 131072, "experts": 16384},
    }
    assert found["memory"]["weights_error"] == 0
    assert found["memory"]["weights_bytes"] == 147456
    without = answer(str(model), "--memory", "24", "--max-model-len", "4096", "--no-headers")
    assert without["memory"]["weights_error"] > 0


def test_a_hostile_header_is_one_line(model: Path) -> None:
    (model / "model.safetensors").write_bytes(struct.pack("<Q", 2**60) + b"{}")
    result = fit(str(model), "--memory", "24")
    assert isinstance(result.exception, UsageError)
    assert str(result.exception).startswith("model.safetensors: a header of")


def test_the_page_says_what_the_log_line_means() -> None:
    result = fit("Qwen/Qwen3.6-27B", "--gpu", "H200")
    assert result.exit_code == 0
    text = " ".join(result.stdout.split())
    assert "not a number of slots" in text
    assert "784 tokens, so that a page holds one state" in text
    assert "48 gdn, 16 full" in text


def test_the_exit_code_tells() -> None:
    assert fit("Qwen/Qwen3.6-27B", "--gpu", "H200", "--quiet").exit_code == 0
    small = fit("Qwen/Qwen3.6-27B", "--gpu", "RTX 4090", "--quiet")
    assert small.exit_code == 1 and small.stdout == ""


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["Qwen/Qwen3.6-27B", "--gpu", "H100"], "80 GiB (H100 PCIe), 94 GiB (H100 NVL)"),
        (["{}"], "neither a folder nor a Hugging Face name"),
        (["Qwen/Qwen3.6-27B", "--gpu", "H200", "--plot", "/no/such/folder/x.svg"], "can't write"),
        (["Qwen/Qwen3.6-27B", "--gpu", "nonsense"], "not in the table"),
        (["Qwen/Qwen3.6-27B", "--gpu", "4xnonsense"], "not in the table"),
        (["Qwen/Qwen3.6-27B", "--memory", "9999999"], "is no GPU"),
        (["Qwen/Qwen3.6-27B", "--gpu", "H200", "--kv-cache-dtype", "fp3"], "is none of"),
        (["Qwen/Qwen3.6-27B", "--gpu", "H200", "--mamba-cache-mode", "some"], "is none of"),
        (["nobody/nothing", "--gpu", "H200"], "no config.json was found"),
        (["Qwen/Qwen3.6-27B", "--gpu", "H200", "--plot", "x.doc"], "ends in none of"),
    ],
)
def test_wrong_usage_is_one_line_with_a_hint(arguments: list[str], words: str) -> None:
    error = fit(*arguments).exception
    assert isinstance(error, UsageError)
    assert words in str(error) and error.hint


@pytest.mark.parametrize(
    ("gpu", "hint"), [("4 x H100 80GB", "--gpu 'H100 80GB' --tp 4"), ("8xH200", "--gpu H200 --tp 8")]
)
def test_several_gpus_in_one_name_are_pointed_to_tp(gpu: str, hint: str) -> None:
    error = fit("Qwen/Qwen3.6-27B", "--gpu", gpu).exception
    assert isinstance(error, UsageError)
    assert hint in error.hint


def test_rules_of_a_release_that_was_not_looked_at_are_said_to_be_so() -> None:
    notes = answer("Qwen/Qwen3.6-27B", "--gpu", "H200", "--vllm", "0.20.0")["notes"]
    assert any("0.20.0 was not looked at" in note for note in notes)
    measured = answer("Qwen/Qwen3.6-27B", "--gpu", "H200", "--vllm", "0.32.0")
    assert measured["vllm"]["measured"] is True


def test_the_table_of_flash_next_by_release() -> None:
    host = answer("Qwen/Qwen3.8-Flash-Next", "--gpu", "B300", "--tp", "2")
    gpu = answer("Qwen/Qwen3.8-Flash-Next", "--gpu", "B300", "--tp", "2", "--vllm", "0.29.0")
    asked = answer("Qwen/Qwen3.8-Flash-Next", "--gpu", "B300", "--tp", "2", "--ple-on-gpu")
    assert round(host["memory"]["host_bytes"] / 2**30, 1) == 95.4
    assert gpu["memory"]["host_bytes"] == asked["memory"]["host_bytes"] == 0
    assert gpu["memory"]["weights_bytes"] - host["memory"]["weights_bytes"] == host["memory"]["host_bytes"] // 2


def test_routing_of_the_demo() -> None:
    demo = Path(sys.modules["hybridctl"].__file__ or "").parent / "demo_model"
    found = answer(str(demo), "--memory", "24", "--max-model-len", "2048")
    assert found["routing"]["linear_heads"] == 4
    assert found["routing"]["live_share"] < 0.1


def test_no_heavy_imports() -> None:
    import subprocess

    code = (
        "import sys; sys.argv=['hybridctl','fit','Qwen/Qwen3.6-27B','--gpu','H200','--offline','--json']\n"
        "from hybridctl.cli import main\n"
        "try:\n    main()\nexcept SystemExit:\n    pass\n"
        "print([m for m in ('torch','vllm','numpy','huggingface_hub','matplotlib') if m in sys.modules], file=sys.stderr)"
    )
    run = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60, check=True)
    assert run.stderr.strip().splitlines()[-1] == "[]"


def test_this_machines_gpu(monkeypatch: pytest.MonkeyPatch) -> None:
    from hybridctl.doctor.facts import local_nvml
    from hybridctl.doctor.facts.local_read import local_fact

    told = [local_fact("gpu.name", "NVIDIA H200", "NVML"), local_fact("gpu.memory_gib", 140.4, "NVML")]
    monkeypatch.setattr(local_nvml, "gpu_source", lambda machine: told)
    found = answer("Qwen/Qwen3.6-27B")
    assert found["gpu"]["memory_bytes"] == {"low": int(140.4 * 2**30), "high": int(140.4 * 2**30)}
    monkeypatch.setattr(local_nvml, "gpu_source", lambda machine: [])
    error = fit("Qwen/Qwen3.6-27B").exception
    assert isinstance(error, UsageError) and "--gpu" in error.hint
