"""What a stranger may put in: credentials, numbers beyond reason, odd names. The answer stays whole and safe to pass on."""

import json
from pathlib import Path

import pytest

from tests.commands.test_doctor import MAMBA_LOG, run

SECRET = "sk-" + "proj-Qw3rTy0123456789abcd"


@pytest.mark.parametrize("form", ["text", "json", "markdown", "junit"])
def test_no_form_of_the_answer_holds_a_credential(form: str, tmp_path: Path) -> None:
    log, facts = tmp_path / "log", tmp_path / "facts.json"
    log.write_text(MAMBA_LOG.replace("Each", f"Authorization: Bearer {SECRET} Each"))
    line = f"MY_PASS=hunter2hunter2 OPENAI_API_KEY={SECRET} vllm serve m --api-key {SECRET} --frobnicate {SECRET}"
    done = run("doctor", "--log", str(log), "--command", line, "--format", form, "-v", "--facts", str(facts))
    assert done.returncode == 1
    for secret in (SECRET, "hunter2hunter2"):
        assert secret not in done.stdout + done.stderr + facts.read_text()


@pytest.mark.parametrize("number", ["0", "-1", "1" + "0" * 30, "1e308", "1e400", "nan", "9" * 5000])
def test_no_number_fails_a_check(number: str, tmp_path: Path) -> None:
    config = tmp_path / "config.json"
    fields = (
        "num_attention_heads", "num_key_value_heads", "hidden_size", "num_hidden_layers", "vocab_size", "head_dim",
        "linear_num_value_heads", "linear_num_key_heads", "num_experts", "moe_intermediate_size", "intermediate_size",
    )  # fmt: skip
    rows = ", ".join(f'"{name}": {number.replace("nan", "NaN")}' for name in fields)
    config.write_text('{"architectures": ["Qwen3NextForCausalLM"], "model_type": "qwen3_next", ' + rows + "}")
    line = f"vllm serve m -tp {number} --block-size {number} --max-model-len {number}"
    done = run("doctor", "--config", str(config), "--command", line, "--json", "--env", "-", stdin="vllm: 0.22.0\n")
    assert (done.returncode in (0, 1), done.stderr) == (True, "")
    json.loads(done.stdout, parse_constant=lambda word: pytest.fail(f"{word} is no JSON"))
