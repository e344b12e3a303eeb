"""GPU names as they really appear."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hybridctl.gpus import _table, amd_target, lookup, vendor_of


@pytest.mark.parametrize(
    ("name", "cc", "memory"),
    [
        ("NVIDIA A100-SXM4-80GB", "8.0", 80), ("NVIDIA A100-PCIE-40GB", "8.0", 40), ("A100", "8.0", None),
        ("NVIDIA H100 80GB HBM3", "9.0", 80), ("NVIDIA H100 NVL", "9.0", 94), ("nvidia h100 pcie", "9.0", 80),
        ("H100-80GB-HBM3", "9.0", 80), ("NVIDIA H20", "9.0", None), ("NVIDIA H20-3e", "9.0", 141), ("NVIDIA H200", "9.0", 141),
        ("NVIDIA GH200 480GB", "9.0", 96), ("NVIDIA GH200 144G HBM3e", "9.0", 144), ("NVIDIA B200", "10.0", 180),
        ("NVIDIA B300 SXM6 AC", "10.3", 268), ("NVIDIA GB10", "12.1", 119.7), ("NVIDIA Thor", "11.0", None),
        ("Orin (nvgpu)", "8.7", None), ("Tesla T4", "7.5", 16), ("Tesla V100-SXM2-32GB", "7.0", 32), ("NVIDIA L40S", "8.9", 48),
        ("NVIDIA GeForce RTX 4090", "8.9", 24), ("RTX4090", "8.9", 24), ("4090", "8.9", 24), ("RTX 4090 48GB", "8.9", 48),
        ("NVIDIA GeForce RTX 4090 Laptop GPU", "8.9", 16), ("RTX 4070TiSUPER", "8.9", 16), ("NVIDIA GeForce RTX 3060", "8.6", None),
        ("NVIDIA GeForce RTX 2080 with Max-Q Design", "7.5", 8), ("GeForce GTX 1080 Ti", "6.1", 11),
        ("NVIDIA RTX A6000", "8.6", 48), ("NVIDIA RTX 6000 Ada Generation", "8.9", 48), ("Quadro RTX 6000", "7.5", 24),
        ("NVIDIA RTX PRO 6000 Blackwell Max-Q Workstation Edition", "12.0", 96),
        ("NVIDIA A100-SXM4-40GB MIG 3g.20gb", "8.0", 20), ("NVIDIA H100 80GB HBM3 MIG 1g.10gb", "9.0", 10),
        ("AMD Instinct MI300X (gfx942:sramecc+:xnack-)", None, 192), ("AMD Radeon RX 7900 XT", None, 20),
        ("Intel(R) Arc(TM) B580 Graphics", None, 12), ("Ascend910B3", None, None),
    ],
)  # fmt: skip
def test_known_names(name: str, cc: str | None, memory: float | None) -> None:
    gpu = lookup(name)
    assert gpu is not None
    assert (gpu.cc, gpu.memory_gib) == (cc, memory)
    assert gpu.source.startswith("https://")


@pytest.mark.parametrize(
    "name", ["", "RTX 6000", "NVIDIA Graphics Device", "NVIDIA GeForce ...", "H1000", "...", "80GB", "5000"]
)
def test_no_guess(name: str) -> None:
    assert lookup(name) is None


def test_a_name_cut_off_gives_what_all_share() -> None:
    for name, cc, memory in (
        ("NVIDIA GeForce RTX 309...", "8.6", 24),
        ("NVIDIA GeForce RTX 3080 ...", "8.6", None),
        ("NVIDIA A100-SXM...", "8.0", None),
    ):
        gpu = lookup(name)
        assert gpu is not None
        assert (gpu.cc, gpu.memory_gib) == (cc, memory)


def test_vendor_without_a_table_entry() -> None:
    assert vendor_of("NVIDIA Graphics Device") == "nvidia"
    assert vendor_of("AMD Radeon Graphics (gfx906:sramecc+:xnack-)") == "amd"
    assert amd_target("AMD Radeon Graphics (gfx906:sramecc+:xnack-)") == "gfx906"
    assert vendor_of("Matrox") is None


def test_the_table_is_sound() -> None:
    for key, gpu in _table().items():
        assert key
        assert gpu.memory_gib is None or 1 < gpu.memory_gib < 400
        assert (gpu.cc is not None) == (gpu.vendor == "nvidia")
        found = lookup(" ".join(key))
        assert found == gpu


@given(st.text())
def test_any_name_is_fine(name: str) -> None:
    lookup(name)
    vendor_of(name)
