"""Where a check has to weigh facts: disagreeing numbers, images and forks, a log that shows that it went well."""

from __future__ import annotations

import pytest

from hybridctl.doctor.checks import Context, discover
from hybridctl.doctor.checks import _reading as read
from hybridctl.doctor.checks._parallel import layout
from hybridctl.versions import parse_version

from .making import facts, loud, run

RTX5090 = {"gpu.cc": "12.0", "gpu.names": ["NVIDIA GeForce RTX 5090"]}


def test_driver_number_and_cuda_version_that_disagree_decide_nothing():
    values = {"pkg.vllm": "0.17.1", **RTX5090, "driver.version": "581.80", "driver.cuda": "12.8"}
    assert run("ptx-driver", values).state == "unknown"
    assert loud(run("ptx-driver", {**values, "driver.version": "572.61"}))


def test_a_compatibility_package_does_not_help_when_both_numbers_are_too_low():
    """Driver 535 with a 12.8 compatibility layer is still no CUDA 13 driver."""
    values = {"torch.cuda": "13.0", "driver.version": "535", "driver.cuda": "12.8"}
    assert run("wheel-cuda-driver", values).findings[0].severity == "error"


def test_windows_driver_number_asks_for_a_windows_driver():
    values = {"pkg.vllm": "0.11.0", **RTX5090, "driver.version": "566.36", "platform.wsl": True}
    finding = run("ptx-driver", values).findings[0]
    assert "570.65" in finding.fix[0].text
    linux = run("ptx-driver", {**values, "platform.wsl": False, "driver.version": "565.57"}).findings[0]
    assert "570.26" in linux.fix[0].text


def test_hopper_reaches_jit_only_with_some_models():
    outcome = run("ptx-driver", {"pkg.vllm": "0.11.0", "gpu.cc": "9.0", "driver.version": "550.54.15"})
    assert outcome.state == "finding" and not loud(outcome)


def test_ampere_never_needs_jit():
    assert run("ptx-driver", {"pkg.vllm": "0.11.0", "gpu.cc": "8.6", "driver.version": "535"}).state == "not-applicable"


def test_a_wheel_for_another_cuda_is_judged_by_its_own_isa():
    values = {"pkg.vllm": "0.22.0", "vllm.cuda": "12.9", **RTX5090, "driver.version": "575.57.08"}
    assert run("ptx-driver", values).state == "ok"
    assert loud(run("ptx-driver", {**values, "vllm.cuda": "13.0"}))


@pytest.mark.parametrize(
    "change",
    [{"vllm.cuda": "12.9"}, {"platform.container": True}, {"command.image": "x/vllm:1"}, {"gpu.vendor": "amd"}],
)
def test_cuda_12_torch_beside_a_release_that_defaults_to_13(change):
    values = {"pkg.vllm": "0.22.0", "torch.cuda": "12.9"}
    assert loud(run("wheel-torch-cuda", values))
    assert not loud(run("wheel-torch-cuda", {**values, **change}))


def test_install_line_that_names_the_matching_wheels():
    values = {
        "command.form": "pip",
        "pkg.vllm": "0.22.0",
        "flag.torch-backend": "cu129",
        "flag.extra-index-url": "https://wheels.vllm.ai/0.22.0/cu129",
    }
    assert run("wheel-torch-cuda", values).state == "ok"


def test_a_range_that_spans_the_change_decides_nothing():
    assert run("wheel-torch-cuda", {"pkg.vllm": ">=0.12.0", "torch.cuda": "12.9"}).state == "unknown"
    own = "0.21.0 (vLLM-2080Ti-Definitive v0.1.14)"
    assert run("wheel-torch-cuda", {"pkg.vllm": own, "torch.cuda": "12.8"}).state == "unknown"
    assert loud(run("wheel-torch-cuda", {"pkg.vllm": ">=0.20", "torch.cuda": "12.9"}))


def test_cuda_13_torch_beside_an_older_release_is_only_told():
    """Wheels for CUDA 13 existed before 0.20, under the same version number."""
    outcome = run("wheel-torch-cuda", {"pkg.vllm": "0.17.1", "torch.cuda": "13.0"})
    assert outcome.state == "finding" and not loud(outcome)


def test_torch_of_another_patch_release_is_no_fault():
    assert run("torch-pins", {"pkg.vllm": "0.13.0", "pkg.torch": "2.9.1"}).state == "ok"


@pytest.mark.parametrize(
    "values",
    [
        {"pkg.vllm": "0.11.0", "pkg.torch": "2.9.0", "platform.container": True},
        {"pkg.vllm": "0.11.0", "pkg.torch": "2.9.0", "platform.arch": "aarch64"},
        {"pkg.vllm": "0.11.1.dev20+g0123abc", "pkg.torch": "2.9.0"},
        {"pkg.vllm": "0.11.0", "pkg.torch": "2.10.0.dev20251024+cu130"},
        {"pkg.vllm": "0.11", "pkg.torch": "2.7.0"},
        {"pkg.vllm": "0.1.dev20073+g8e685d198", "pkg.torch": "2.7.0"},
    ],
)
def test_own_builds_are_pinned_otherwise(values):
    assert not loud(run("torch-pins", values))


def test_a_fork_may_split_unevenly():
    values = {
        "command.form": "serve",
        "engine": "vllm",
        "flag.tensor-parallel-size": 3,
        "config.linear_num_key_heads": 16,
    }
    assert loud(run("head-split", values))
    assert not loud(run("head-split", {**values, "pkg.vllm": "0.1.dev20073+g8e685d198"}))


def test_vllm_tolerates_whole_tiles_of_an_expert():
    """The official launch of Flash-Next FP8 is tensor parallel 4 without expert parallelism: 640 / 4 = 160 = 5 x 32."""
    blocks = {"config.moe_intermediate_size": 640, "model.quant": ["fp8-block"]}
    values = {"command.form": "serve", "engine": "vllm", "flag.tensor-parallel-size": 4, **blocks}
    outcome = run("block-split", values)
    assert outcome.state == "finding" and not loud(outcome)
    assert loud(run("block-split", {**values, "engine": "sglang"}))


def test_a_list_of_gpus_in_a_report_proves_no_count():
    values = {"command.form": "serve", "flag.tensor-parallel-size": 4, "gpu.count": 1}
    assert not loud(run("gpu-count", values))
    assert loud(
        run("gpu-count", {"gpu.count": 1, "command.form": "serve", "flag.tensor-parallel-size": 4}, source="local")
    )
    assert run("gpu-count", {**values, "flag.distributed-executor-backend": "ray"}).state == "not-applicable"


@pytest.mark.parametrize(
    ("version", "state"),
    [
        ("0.16.0", "finding"),
        ("0.15.1", "finding"),
        ("0.16.0rc2.dev100+gabc", "unknown"),  # nightlies of those weeks had it
        ("0.16.1", "unknown"),
        ("0.17.0", "ok"),
        ("0.1.dev20073+g8e685d198", "unknown"),
        (">=0.12.0", "unknown"),
        ("99.0", "unknown"),
    ],
)
def test_releases_around_the_first_with_a_class(version, state):
    values = {"engine": "vllm", "pkg.vllm": version, "model.architecture": ["Qwen3_5MoeForConditionalGeneration"]}
    assert run("model-support", values).state == state


def test_a_family_by_name_is_judged_by_what_all_its_classes_share():
    """The text-only classes of Qwen3.5 came with 0.27.0; the name alone does not say which class it is."""
    assert not loud(run("model-support", {"engine": "vllm", "pkg.vllm": "0.20.0", "model.family": "qwen3_5"}))
    text_only = {"engine": "vllm", "pkg.vllm": "0.20.0", "model.architecture": ["Qwen3_5ForCausalLM"]}
    assert loud(run("model-support", text_only))


def test_images_and_remote_code_bring_their_own_classes():
    old = {"engine": "vllm", "pkg.vllm": "0.28.0", "model.family": "qwen4_exp"}
    assert loud(run("model-support", {**old, "command.image": "vllm/vllm-openai:v0.28.0"}))
    assert not loud(run("model-support", {**old, "command.image": "vllm/vllm-openai:qwen38-flash-next"}))
    plain = {"engine": "transformers", "pkg.transformers": "4.55.4", "model.type": ["qwen3_next"]}
    assert not loud(run("model-support", {**plain, "flag.trust-remote-code": True}))


def test_a_small_table_share_may_stay_on_the_gpu():
    values = {
        "command.form": "serve",
        "engine": "vllm",
        "model.architecture": ["Qwen4ExpForConditionalGeneration"],
        "model.quant": ["fp8-block"],
        "model.size_gib": 172.8,
        "gpu.memory_gib": 80.0,
        "pkg.vllm": "0.29.0",
        "flag.tensor-parallel-size": 8,
    }
    assert not loud(run("ple-table", values))  # 125 / 8 + 47.7 GiB
    assert loud(run("ple-table", {**values, "flag.tensor-parallel-size": 4}))


@pytest.mark.parametrize(
    ("flags", "pieces"),
    [
        ({"engine": "vllm", "flag.tensor-parallel-size": 4}, 4),
        ({"engine": "vllm", "flag.tensor-parallel-size": 2, "flag.data-parallel-size": 4}, 8),
        ({"engine": "vllm", "flag.tensor-parallel-size": 4, "flag.enable-expert-parallel": True}, 1),
        ({"engine": "sglang", "flag.tensor-parallel-size": 8, "flag.expert-parallel-size": 2}, 4),
        ({"engine": "sglang", "flag.tp-size": 8, "flag.moe-a2a-backend": "deepep"}, 1),
    ],
)
def test_into_how_many_pieces_an_expert_is_cut(flags, pieces):
    ranks = layout(facts({"command.form": "serve", **flags}))
    assert ranks.experts is not None and ranks.experts.value == pieces


def test_without_a_launch_line_the_layout_is_unknown():
    ranks = layout(facts({"engine": "vllm"}))
    assert ranks.tp is None and ranks.world is None and ranks.experts is None


@pytest.mark.parametrize(
    ("check", "values"),
    [
        ("wheel-cuda-driver", {"torch.cuda": "13.0", "driver.version": "570.86.10"}),
        ("wheel-torch-cuda", {"pkg.vllm": "0.22.0", "torch.cuda": "12.9"}),
        ("ptx-driver", {"pkg.vllm": "0.17.1", **RTX5090, "driver.version": "570.124.06"}),
        ("gpu-code", {"pkg.vllm": "0.9.0", "gpu.cc": "12.0"}),
        ("triton-ptxas", {"pkg.triton": "3.5.0", "gpu.cc": "12.1"}),
        ("torch-pins", {"pkg.vllm": "0.11.0", "pkg.torch": "2.9.0"}),
        ("transformers-range", {"pkg.vllm": "0.11.0", "pkg.transformers": "5.2.0"}),
        ("head-split", {"command.form": "serve", "flag.tensor-parallel-size": 3, "config.num_attention_heads": 16}),
        ("memory-fit", {"command.form": "serve", "engine": "vllm", "model.size_gib": 90.0, "gpu.memory_gib": 80.0}),
        ("windows-mount", {"command.form": "docker", "command.mounts": ["C:\\models"]}),
    ],
)
def test_a_log_that_got_past_the_fault_clears_it(check, values):
    assert loud(run(check, values))
    assert not loud(run(check, {**values, "log.reached": "serving"}))


@pytest.mark.parametrize(
    "values",
    [
        {  # preview image on GB10
            "engine": "vllm", "pkg.vllm": "0.1.dev20073+g8e685d198", "platform.container": True, "gpu.cc": "12.1",
            "gpu.names": ["NVIDIA GB10"], "gpu.memory_gib": 119.6, "gpu.unified": True, "model.family": "qwen4_exp",
            "model.quant": ["nvfp4"], "command.form": "serve", "flag.max-num-seqs": 2,
        },
        {  # WSL2 with a CUDA 12 release
            "engine": "vllm", "pkg.vllm": "0.17.1", "platform.wsl": True, "driver.version": "581.80", "driver.cuda": "12.8",
            **RTX5090, "command.form": "serve", "flag.quantization": "awq_marlin", "model.quant": ["awq"],
        },
        {  # fork with pipeline parallelism on cards without room for the table
            "engine": "vllm", "pkg.vllm": "vllm-backport latest-sm89", "platform.container": True, "gpu.cc": "8.9",
            "gpu.count": 8, "gpu.memory_gib": 24.0, "model.family": "qwen4_exp", "model.quant": ["awq"],
            "env.VLLM_PLE_CPU_OFFLOAD": "1", "command.form": "serve", "flag.tensor-parallel-size": 4,
            "flag.pipeline-parallel-size": 2, "config.moe_intermediate_size": 640,
        },
        {  # the official launch on H200
            "engine": "vllm", "pkg.vllm": "0.33.0", "pkg.torch": "2.14.0", "torch.cuda": "13.0", "pkg.triton": "3.8.0",
            "pkg.transformers": "5.20.0", "platform.python": "3.12.3", "platform.glibc": "2.39", "driver.version": "580.126.09",
            "driver.cuda": "13.0", "gpu.cc": "9.0", "gpu.count": 4, "gpu.memory_gib": 139.8, "model.size_gib": 172.8,
            "model.architecture": ["Qwen4ExpForConditionalGeneration"], "model.quant": ["fp8-block"], "model.hybrid": True,
            "config.moe_intermediate_size": 640, "config.num_attention_heads": 24, "config.num_key_value_heads": 2,
            "config.linear_num_key_heads": 16, "config.linear_num_value_heads": 48, "config.vision_config.num_heads": 16,
            "platform.ram_gib": 1511.0, "command.form": "serve", "flag.tensor-parallel-size": 4, "flag.enable-prefix-caching": True,
        },
        {  # GB10 with a current release
            "engine": "vllm", "pkg.vllm": "0.26.0", "pkg.torch": "2.11.0", "gpu.cc": "12.1", "gpu.names": ["NVIDIA GB10"],
            "command.form": "serve", "model.hybrid": True, "flag.enable-prefix-caching": True, "flag.max-num-batched-tokens": 4096,
            "config.num_attention_heads": 16,
        },
    ],
    ids=["gb10-preview", "wsl2-5090", "backport-4090", "h200-official", "gb10-release"],
)  # fmt: skip
def test_healthy_deployments_raise_nothing(values):
    given = Context(facts(values))
    assert [f.id for check in discover() for f in loud(check.run(given))] == []


@pytest.mark.parametrize(
    ("text", "is_release"),
    [
        ("0.22.0", True),
        ("v0.22.0", True),
        ("0.22.0+cu129", True),
        ("0.10.1.1", True),
        ("0.22.1.dev3+gabc", False),
        ("0.20.0rc1", False),
        ("0.22.0+myfork.3", False),
        (">=0.20", False),
        ("0.22", False),
    ],
)
def test_what_counts_as_a_published_release(text, is_release):
    versions = parse_version(text)
    assert versions is not None
    fact = facts({"pkg.vllm": text}).get("pkg.vllm")
    assert fact is not None
    assert read.Reading(fact, versions).is_release is is_release
