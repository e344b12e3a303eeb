"""Each parser alone takes any lines without a word of complaint, and finds its own."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hybridctl.doctor.facts import collect_env, env_vars, gpu_lines, hf_env, labels, loose, nvidia_smi, pip_list
from hybridctl.doctor.facts.clean import MAX_LINE, Line, clean_lines, strip_controls
from hybridctl.doctor.facts.gpu_facts import gpu_statements
from hybridctl.doctor.facts.package_names import is_known, normalise
from hybridctl.doctor.facts.statements import Found, GpuRow, cuda_of_tag, is_nothing, is_version

PARSERS = [m.parse for m in (collect_env, env_vars, gpu_lines, hf_env, loose, nvidia_smi, pip_list)]
Parser = Callable[[Sequence[Line]], Found]

_WORDS_TEXT = """
GPU 0: NVIDIA H100 | / MiB 81559 Driver Version: CUDA 12.8 torch == 2.8.0 [pip3] [conda] - : = , MIG 3g.40gb Device Package
Name On Off 00000000:19:00.0 --query-gpu= name memory.total export VLLM_X x8 Linux- x86_64 wsl sm_ GB
"""
_WORDS = st.sampled_from(_WORDS_TEXT.split())
_LINES = st.lists(
    st.one_of(st.lists(_WORDS).map(" ".join), st.lists(_WORDS).map("".join), st.text(max_size=40)), max_size=12
)


@pytest.mark.parametrize("parse", PARSERS, ids=lambda p: p.__module__.rsplit(".", 1)[-1])
@given(texts=_LINES)
def test_no_lines_upset_a_parser(parse: Parser, texts: list[str]) -> None:
    found = parse(clean_lines("\n".join(texts)))
    for listing in found.gpus:
        list(gpu_statements(listing))


def values(found: Found) -> dict[str, object]:
    return {s.key: s.value for s in reversed(found.statements)}


def lines(*texts: str) -> list[Line]:
    return [Line(number, text) for number, text in enumerate(texts, 1)]


def test_clean_keeps_numbers_and_words() -> None:
    text = "\ufeff\x1b[1;31mred\x1b[0m\n\n```text\n> > quoted\r\n>=0.12 stays\n\x1b]8;;http://x\x07link\x1b]8;;\x07\na\rb\x00c\n"
    assert [(line.number, line.text) for line in clean_lines(text)] == [
        (1, "red"), (4, "quoted"), (5, ">=0.12 stays"), (6, "link"), (7, "a"), (7, "bc"),
    ]  # fmt: skip
    assert len(clean_lines("y" * 100_000)[0].text) == MAX_LINE
    assert strip_controls("a\tb\x08") == "a\tb"


def test_labels_in_all_dress() -> None:
    for text in (
        "vLLM version: 0.1",
        "- **vLLM version**: 0.1",
        "| vLLM version | 0.1 |",
        '"vLLM version": "0.1",',
        "* `vLLM` version：0.1",
    ):
        assert labels.split_label(text) == ("vllm version", "0.1")
    assert labels.split_label("no label here") is None
    assert labels.split_label("torch==2.8.0") is None


@pytest.mark.parametrize(
    ("smi", "driver", "wsl"),
    [
        ("580.95.02", "581.42", True),
        ("576.80", "576.80", None),
        ("570.86.10", "570.86.10", None),
        ("535.54.03", "535.54.03", None),
    ],
)
def test_a_windows_driver_under_a_linux_program_is_wsl(smi: str, driver: str, wsl: bool | None) -> None:
    header = f"| NVIDIA-SMI {smi}   Driver Version: {driver}   CUDA Version: 13.0     |"
    assert values(nvidia_smi.parse(lines(header))).get("platform.wsl") is wsl


def test_a_header_cut_off_states_nothing() -> None:
    assert values(nvidia_smi.parse(lines("| NVIDIA-SMI 570.86.10     Driver Ver"))) == {}
    assert (
        values(nvidia_smi.parse(lines("| NVIDIA-SMI 570.86.10     Driver Version: N/A      CUDA Version: ERR!  |")))
        == {}
    )


def test_a_cuda_line_belongs_to_the_driver_only_under_one() -> None:
    assert (
        values(nvidia_smi.parse(lines("DRIVER version : 580.159.04", "CUDA Version : 13.0")))["driver.cuda"] == "13.0"
    )
    assert values(nvidia_smi.parse(lines("Some program", "CUDA Version : 13.0"))) == {}


def test_query_without_header_or_command_gives_no_memory() -> None:
    found = nvidia_smi.parse(lines("NVIDIA H100 80GB HBM3, 570.86.15, 3072 MiB"))
    assert [row.memory_gib for row in found.gpus[0]] == [None]
    assert values(found) == {"driver.version": "570.86.15"}


def test_query_of_two_tables_is_not_one_listing() -> None:
    text = "name, memory.total [MiB]\nNVIDIA L4, 23034 MiB\n\nname, memory.total [MiB]\nNVIDIA L4, 23034 MiB\n"
    assert [len(listing) for listing in nvidia_smi.parse(clean_lines(text)).gpus] == [1, 1]


def test_repeated_index_begins_a_new_listing() -> None:
    found = gpu_lines.parse(lines("GPU 0: NVIDIA L4", "GPU 1: NVIDIA L4", "GPU 0: NVIDIA L4"))
    assert [len(listing) for listing in found.gpus] == [2, 1]


def test_other_programs_name_devices_too() -> None:
    found = gpu_lines.parse(
        lines("  Device 0: NVIDIA GeForce RTX 3090, compute capability 8.6, VMM: yes", 'Device 1: "Tesla T4"')
    )
    assert [(row.name, row.cc) for row in found.gpus[0]] == [("NVIDIA GeForce RTX 3090", "8.6"), ("Tesla T4", None)]


@pytest.mark.parametrize(
    ("text", "name", "count"),
    [
        ("8x NVIDIA H100 80GB", "NVIDIA H100 80GB", 8), ("2 × RTX 3090", "RTX 3090", 2), ("NVIDIA A100 (x4)", "NVIDIA A100", 4),
        ("RTX 4090 x 2 (24GB each)", "RTX 4090  (24GB each", 2), ("dual RTX 3090", "RTX 3090", 2), ("4 H100s", "H100", 4),
        ("NVIDIA A10G", "NVIDIA A10G", None), ("NVIDIA H100 PCIe x16", "NVIDIA H100 PCIe x16", None), ("0x RTX 3090", None, None),
    ],
)  # fmt: skip
def test_numbers_of_gpus(text: str, name: str | None, count: int | None) -> None:
    row = gpu_lines.named(text, Line(1, text))
    assert (row and row.name) == name
    assert (row and (row.count if row.counted else None)) == count


def test_a_type_without_a_number_is_not_one_gpu() -> None:
    found = loose.parse(lines("GPU: NVIDIA H100 80GB"))
    assert "gpu.count" not in {s.key for s in gpu_statements(found.gpus[0])}


def test_gpu_line_with_columns() -> None:
    found = gpu_lines.parse(
        lines("- **GPU 0:** NVIDIA L4 | 23034 MiB | driver 596.36 | x", "GPU 1: NVIDIA L4 | 23034 MiB | driver 596.36")
    )
    assert [(row.name, row.memory_gib) for row in found.gpus[0]] == [("NVIDIA L4", 22.49)] * 2
    assert values(found) == {"driver.version": "596.36"}


def test_the_lowest_counts_and_one_unknown_gpu_hides_it() -> None:
    def facts(*names: str) -> dict[str, object]:
        return {s.key: s.value for s in gpu_statements([GpuRow(n, i, n) for i, n in enumerate(names, 1)])}

    mixed = facts("NVIDIA L40S", "Tesla T4")
    assert (mixed["gpu.cc"], mixed["gpu.memory_gib"], mixed["gpu.count"]) == ("7.5", 16.0, 2)
    unknown = facts("NVIDIA L40S", "NVIDIA Graphics Device")
    assert "gpu.cc" not in unknown
    assert "gpu.memory_gib" not in unknown
    assert unknown["gpu.vendor"] == "nvidia"
    assert "gpu.vendor" not in facts("NVIDIA L40S", "AMD Instinct MI300X")


def test_package_lists_end_with_an_empty_line() -> None:
    text = "Package Version\n------- -------\nfoo     1.0\n\nUbuntu 22.04\nvllm 0.11.0\n"
    assert values(pip_list.parse(clean_lines(text))) == {"pkg.foo": "1.0", "pkg.vllm": "0.11.0"}


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        (
            "Successfully installed torch-2.8.0 flash-attn-2.8.3 vllm-0.11.0",
            {"pkg.torch", "pkg.flash-attn", "pkg.vllm"},
        ),
        (" + torch==2.8.0", {"pkg.torch"}),
        (" - torch==2.7.0", set()),
        ("Name: vllm\nVersion: 0.11.0", {"pkg.vllm"}),
        ("torch                     2.8.0", {"pkg.torch"}),
        ("took                      2.8.0", set()),
        ("vllm[flashinfer]==0.11.0", {"pkg.vllm"}),
    ],
)
def test_package_lines(text: str, expected: set[str]) -> None:
    assert {s.key for s in pip_list.parse(clean_lines(text)).statements} == expected


def test_environment_variables() -> None:
    text = """MY_OWN=1
VLLM_X=1 vllm serve m
export NCCL_DEBUG="INFO"
OPENAI_API_KEY=sk
TOKENIZERS_PARALLELISM=false
Environment Variables
MY_OWN=1
AWS_SECRET_ACCESS_KEY=2
"""
    assert values(env_vars.parse(clean_lines(text))) == {"env.NCCL_DEBUG": "INFO", "env.MY_OWN": "1"}


def test_loose_lines_of_programs() -> None:
    found = loose.parse(
        lines(
            "shm              64M     0   64M   0% /dev/shm",
            "  CUDA Driver Version / Runtime Version          12.8 / 12.4",
            "GPU[0]\t\t: Card Series: \t\tAMD Instinct MI300X",
            "GPU[1]\t\t: Card Series: \t\tAMD Instinct MI300X",
            "sglang version  v0.5.3rc0",
            "Environment: production",
            "Linux box 5.15.0-141-generic #1 SMP x86_64 x86_64 x86_64 GNU/Linux",
        )
    )
    told = values(found)
    assert (told["platform.shm_gib"], told["driver.cuda"], told["cuda.toolkit"]) == (0.0625, "12.8", "12.4")
    assert told["pkg.sglang"] == "0.5.3rc0"
    assert "platform.distro" not in told
    assert told["platform.kernel"] == "5.15.0-141-generic"
    assert [len(listing) for listing in found.gpus] == [2]


def test_tags_names_and_nothings() -> None:
    assert [cuda_of_tag(t) for t in ("2.8.0+cu126", "x cu130", "cu13", "cu92", "2.8.0", "vaccu129")] == [
        "12.6", "13.0", "13", "9.2", None, None,
    ]  # fmt: skip
    assert normalise("Flash_Attn.4") == "flash-attn-4"
    assert [normalise(n) for n in ("fla", "huggingface_hub", "flashinfer", "llama.cpp", "pytorch")] == [
        "flash-linear-attention", "huggingface-hub", "flashinfer-python", "llama.cpp", "torch",
    ]  # fmt: skip
    assert is_known("nvidia-nccl-cu12")
    assert not is_known("vllm_use_v1")
    assert is_nothing("N/A (dev)")
    assert not is_nothing("nightly")
    assert is_version(">=0.12")
    assert not is_version("2025-04-01 nightly")
