"""The launch line of a widely read article, on two A100 and a current vLLM: everything that is wrong with it is named."""

from hybridctl.doctor.diagnose import Inputs, diagnose

LINE = (
    "python -m vllm.entrypoints.api_server --model Qwen/Qwen3.8-Flash-Next --tensor-parallel-size 2 --dtype half "
    "--enable-chunked-prefill --hybrid-enabled --port 8000"
)
MACHINE = "vLLM Version : 0.32.0\nGPU 0: NVIDIA A100-SXM4-80GB\nGPU 1: NVIDIA A100-SXM4-80GB\n"
FAULTS = ["module-removed", "flag-unknown", "weights-larger-than-gpus", "qsa-dtype-must-be-bf16"]


def errors(line: str, machine: str = MACHINE) -> list[str]:
    found = diagnose(Inputs(model="Qwen/Qwen3.8-Flash-Next", command=line, env=machine)).findings
    return [f.id for f in found if f.severity == "error"]


def test_all_four_faults_are_named_in_the_order_in_which_they_stop_it() -> None:
    assert errors(LINE) == FAULTS


def test_each_goes_when_its_part_of_the_line_is_put_right() -> None:
    assert "module-removed" not in errors(LINE.replace("api_server", "openai.api_server"))
    assert "flag-unknown" not in errors(LINE.replace(" --hybrid-enabled", ""))
    assert "qsa-dtype-must-be-bf16" not in errors(LINE.replace("half", "bfloat16"))
    assert "weights-larger-than-gpus" not in errors(
        LINE.replace("size 2", "size 4"), MACHINE + "".join(f"GPU {i}: NVIDIA A100-SXM4-80GB\n" for i in (2, 3))
    )
