"""The doctor as a user meets it: exit codes, streams, and one line for every kind of bad input."""

from __future__ import annotations

import inspect
import json
import os
import subprocess
import sys
from importlib import resources
from pathlib import Path

import jsonschema
import pytest

MAMBA_LOG = (
    "(EngineCore_DP0 pid=91) ERROR 09-03 10:11:12 [core.py:936] ValueError: max_num_seqs (1024) exceeds available Mamba cache "
    "blocks (856). Each decode sequence requires one Mamba cache block, so CUDA graph capture cannot proceed.\n"
    "(APIServer pid=1) RuntimeError: Engine core initialization failed. See root cause above. Failed core proc(s): {}\n"
)


def run(*args: str, stdin: str = "", cwd: Path | None = None, **env: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "hybridctl", *args],
        input=stdin,
        capture_output=True,
        text=True,
        encoding="utf-8",
        cwd=cwd,
        env={**os.environ, "HF_HUB_OFFLINE": "1", **env},
        timeout=60,
        check=False,
    )


def schema() -> dict[str, object]:
    document: dict[str, object] = json.loads(
        resources.files("hybridctl.doctor").joinpath("report.schema.json").read_text()
    )
    return document


@pytest.fixture
def log(tmp_path: Path) -> Path:
    path = tmp_path / "crash.log"
    path.write_text(MAMBA_LOG)
    return path


def test_root_cause_and_fix_of_a_pasted_log(log: Path) -> None:
    done = run("doctor", "--log", str(log), "--json")
    document = json.loads(done.stdout)
    jsonschema.validate(document, schema())
    first = document["findings"][0]
    assert (done.returncode, done.stderr) == (1, "")
    assert first["area"] == "kv-cache"
    assert "856" in json.dumps(first["fix"])
    assert first["evidence"][0]["from"] == "log:1"
    assert document["summary"]["error"] >= 1


def test_text_view_shows_the_line_and_no_control_codes(log: Path) -> None:
    done = run("doctor", "--log", str(log))
    assert "[core.py:936]" in done.stdout
    assert "\x1b" not in done.stdout
    assert (
        max(map(len, (line for line in done.stdout.splitlines() if "http" not in line and "vllm serve" not in line)))
        <= 100
    )


def test_log_from_standard_input() -> None:
    done = run("doctor", "--log", "-", "--json", stdin=MAMBA_LOG)
    assert json.loads(done.stdout)["findings"][0]["area"] == "kv-cache"


@pytest.mark.parametrize(("fail_on", "code"), [("error", 1), ("warning", 1), ("never", 0)])
def test_fail_on(log: Path, fail_on: str, code: int) -> None:
    assert run("doctor", "--log", str(log), "--fail-on", fail_on, "--quiet").returncode == code


def test_quiet_prints_nothing(log: Path) -> None:
    done = run("doctor", "--log", str(log), "--quiet")
    assert (done.stdout, done.stderr, done.returncode) == ("", "", 1)


def test_markdown_and_junit(log: Path) -> None:
    from xml.etree import ElementTree

    assert run("doctor", "--log", str(log), "--format", "markdown").stdout.startswith("# hybridctl doctor")
    suite = ElementTree.fromstring(run("doctor", "--log", str(log), "--format", "junit").stdout.encode())
    assert int(suite.get("failures", "0")) >= 1


@pytest.mark.parametrize("option", ["--env", "--log"])
def test_a_text_that_tells_nothing_is_named(option: str) -> None:
    silent = run("doctor", option, "-", stdin="my server is broken\nplease help\n")
    assert silent.returncode == 0
    assert f"{option}: nothing was recognised" in silent.stdout
    assert "nothing was recognised" not in run("doctor", "--env", "-", stdin="vLLM Version: 0.22.0\n").stdout


def test_json_and_another_format_contradict_each_other(log: Path) -> None:
    refused = run("doctor", "--log", str(log), "--json", "--format", "junit")
    assert (refused.returncode, refused.stdout, refused.stderr.count("\n")) == (2, "", 1)
    assert run("doctor", "--log", str(log), "--json", "--format", "json").stdout.startswith("{")


def test_facts_are_written_and_read_again(tmp_path: Path) -> None:
    env, facts = tmp_path / "env.txt", tmp_path / "facts.json"
    env.write_text(
        "vLLM Version : 0.22.0\nNvidia driver version : 570.86.10\n[pip3] torch==2.11.0+cu130\nGPU 0: NVIDIA H100 80GB HBM3\n"
    )
    first = json.loads(run("doctor", "--env", str(env), "--facts", str(facts), "--json").stdout)
    again = json.loads(run("doctor", "--env", str(facts), "--json").stdout)
    assert [f["id"] for f in again["findings"]] == [f["id"] for f in first["findings"]] != []
    assert again["subject"]["driver"] == "570.86.10"


def test_pasted_inputs_keep_this_machine_out(tmp_path: Path) -> None:
    env = tmp_path / "env.txt"
    env.write_text("vLLM Version : 0.32.0\n")
    document = json.loads(run("doctor", "--env", str(env), "--json").stdout)
    assert "local" not in document["subject"]["sources"]


def _make_bad(kind: str, folder: Path) -> str:
    path = folder / "input"
    if kind == "missing":
        return str(path)
    if kind == "folder":
        path.mkdir()
    elif kind == "empty":
        path.write_bytes(b"")
    elif kind == "binary":
        path.write_bytes(b"\x7fELF" + bytes(range(256)) * 40)
    elif kind == "zip":
        path.write_bytes(b"PK\x03\x04" + b"x" * 100)
    return str(path)


@pytest.mark.parametrize("kind", ["missing", "folder", "empty", "binary", "zip"])
@pytest.mark.parametrize("option", ["--env", "--log", "--config"])
@pytest.mark.parametrize("encoding", ["utf-8", "ascii"])
def test_bad_files_are_one_line_and_exit_2(kind: str, option: str, encoding: str, tmp_path: Path) -> None:
    done = run("doctor", option, _make_bad(kind, tmp_path), PYTHONIOENCODING=encoding)
    assert done.returncode == 2
    assert done.stdout == ""
    assert done.stderr.startswith(f"error: {option}:")
    assert done.stderr.count("\n") == 1


@pytest.mark.skipif(os.geteuid() == 0, reason="root may read everything")
def test_no_permission(log: Path) -> None:
    log.chmod(0)
    done = run("doctor", "--log", str(log))
    assert (done.returncode, done.stderr.count("\n")) == (2, 1)
    assert "no permission" in done.stderr


@pytest.mark.parametrize(
    ("text", "why"),
    [("[1, 2]", "object"), ("not json at all", "JSON"), ('"text"', "object"), ("{}", "")],
)
def test_config_that_is_no_config(text: str, why: str, tmp_path: Path) -> None:
    path = tmp_path / "config.json"
    path.write_text(text)
    done = run("doctor", "--config", str(path))
    assert "Traceback" not in done.stderr
    if why:
        assert (done.returncode, done.stderr.count("\n")) == (2, 1)
        assert why in done.stderr


def test_truncated_config_is_read_as_far_as_it_goes(tmp_path: Path) -> None:
    path = tmp_path / "config.json"
    path.write_text('{"architectures": ["Qwen4ExpForConditionalGeneration"], "num_attention_heads": 16, "num_key_va')
    document = json.loads(run("doctor", "--config", str(path), "--json").stdout)
    assert any("not valid JSON" in note for note in document["notes"])
    assert document["subject"]["model_family"] == "qwen4_exp"


def test_config_with_wrong_types_is_read_as_far_as_it_goes(tmp_path: Path) -> None:
    path = tmp_path / "config.json"
    path.write_text(json.dumps({
        "architectures": "Qwen3NextForCausalLM", "model_type": 7, "num_attention_heads": "many", "layer_types": {"a": 1},
        "quantization_config": [1], "text_config": "x", "vision_config": 3, "torch_dtype": ["bfloat16"],
    }))  # fmt: skip
    done = run("doctor", "--config", str(path), "--json")
    document = json.loads(done.stdout)
    jsonschema.validate(document, schema())
    assert document["notes"]
    assert "Traceback" not in done.stderr


@pytest.mark.parametrize("encoding", ["utf-8", "ascii"])
def test_ten_megabytes_on_one_line(encoding: str, tmp_path: Path) -> None:
    path = tmp_path / "long"
    path.write_text("ValueError: " + "x[/usr/lib]é" * 900_000)
    for option in ("--log", "--env"):
        done = run("doctor", option, str(path), PYTHONIOENCODING=encoding)
        assert done.returncode in (0, 1, 2)
        assert "Traceback" not in done.stderr


@pytest.mark.parametrize(
    "text", ["", "qqq", "rm -rf", "'unbalanced \"quotes", "--model", "{}", "\x1b[31m", "vllm", "…"]
)
def test_nonsense_command(text: str) -> None:
    done = run("doctor", "--command", text, PYTHONIOENCODING="ascii")
    assert done.returncode in (0, 2)
    assert "Traceback" not in done.stderr
    if done.returncode == 2:
        assert done.stderr.startswith("error: --command:")
        assert done.stderr.count("\n") == 1


def test_an_unknown_model_beside_other_input_is_unknown(log: Path) -> None:
    done = run("doctor", "Qwen", "--log", str(log), "--json")
    document = json.loads(done.stdout)
    assert document["subject"]["model"] == "Qwen"
    assert document["subject"]["model_family"] is None
    assert document["findings"][0]["area"] == "kv-cache"


def test_two_inputs_from_standard_input_are_refused() -> None:
    done = run("doctor", "--log", "-", "--env", "-", stdin="x")
    assert (done.returncode, done.stderr.count("\n")) == (2, 1)


def test_any_engine_name_is_taken(log: Path) -> None:
    document = json.loads(run("doctor", "--log", str(log), "--engine", "Tensor[/b]RT", "--json").stdout)
    assert document["subject"]["engine"] == "tensor[/b]rt"


def test_a_crash_that_nobody_knows_is_said_to_be_unknown(tmp_path: Path) -> None:
    path = tmp_path / "log"
    path.write_text(
        'Traceback (most recent call last):\n  File "/srv/app/zebra.py", line 3, in graze\n'
        "    raise ZebraError(7)\nZebraError: stripes 7 of 9\n"
    )
    document = json.loads(run("doctor", "--log", str(path), "--json").stdout)
    (finding,) = document["findings"]
    assert (finding["id"], finding["severity"]) == ("unrecognised-error", "info")
    assert "stripes 7 of 9" in finding["evidence"][0]["value"]


def test_our_own_failure_is_one_line_and_exit_3(tmp_path: Path, log: Path) -> None:
    broken = tmp_path / "run.py"
    broken.write_text(
        "import sys, hybridctl.doctor.diagnose as d\n"
        "def fail(*a, **k): raise RuntimeError('deliberate\\nfault')\n"
        "d.diagnose = fail\n"
        f"sys.argv = ['hybridctl', 'doctor', '--log', {str(log)!r}]\n"
        "from hybridctl.cli import main\nmain()\n"
    )
    done = subprocess.run([sys.executable, str(broken)], capture_output=True, text=True, check=False)
    assert done.returncode == 3
    assert done.stderr.startswith("error: hybridctl failed: RuntimeError: deliberate fault")
    assert done.stderr.count("\n") == 1
    debug = subprocess.run(
        [sys.executable, str(broken)],
        capture_output=True,
        text=True,
        check=False,
        env={**os.environ, "HYBRIDCTL_DEBUG": "1"},
    )
    assert "Traceback" in debug.stderr


def test_without_options_no_parser_is_loaded_and_the_answer_is_the_same(tmp_path: Path) -> None:
    """``hybridctl doctor`` alone goes past typer; any option, also one that says the default, goes through it."""
    watched = "import sys; from hybridctl import cli\ntry: cli.main()\nfinally: print(*sys.modules, file=sys.stderr)"
    plain, parsed = (
        subprocess.run(
            [sys.executable, "-c", watched, "doctor", *more], capture_output=True, text=True, cwd=tmp_path, check=False
        )
        for more in ([], ["--format", "text"])
    )
    told, again = ([x for x in done.stdout.splitlines() if "GiB" not in x] for done in (plain, parsed))
    assert (plain.returncode, told) == (parsed.returncode, again)  # but for memory and disk, which change by the minute
    assert len(told) > 10
    assert "hybridctl.doctor.terminal" in plain.stderr.split()
    assert not {"typer", "click", "pydantic"} & set(plain.stderr.split())
    assert {"typer", "hybridctl.doctor.terminal"} <= set(parsed.stderr.split())


def test_the_parsers_defaults_are_those_of_the_run_without_it() -> None:
    from hybridctl.commands import _doctor_run, doctor

    declared, run_itself = (inspect.signature(f).parameters for f in (doctor.doctor, _doctor_run.run))
    assert [(p.name, p.default) for p in declared.values()] == [(p.name, p.default) for p in run_itself.values()]
