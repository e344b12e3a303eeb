"""Which sizes have kernels, and what the others are told."""

from __future__ import annotations

import pytest

from hybridctl.errors import UsageError
from hybridctl.kernels.linear_attention.variant import FEW_KIB, Variant, room_kib


@pytest.mark.parametrize("dtype", ["bfloat16", "float16"])
@pytest.mark.parametrize("value", [64, 96, 128, 256])
@pytest.mark.parametrize("feature", [64, 128])
def test_every_size_fits_a_chip_with_little_shared_memory(feature: int, value: int, dtype: str) -> None:
    if (feature, dtype) == (128, "float16"):
        with pytest.raises(UsageError, match="99 KiB"):
            Variant(128, feature, value, dtype=dtype, projected=True, room_kib=FEW_KIB)
        assert Variant(128, feature, value, dtype=dtype, room_kib=FEW_KIB).shared_forward <= FEW_KIB * 1024
        return
    variant = Variant(128, feature, value, dtype=dtype, projected=True, room_kib=FEW_KIB)
    assert variant.shared_forward <= FEW_KIB * 1024
    assert value % variant.value_tile == 0
    assert variant.value_tile <= Variant(128, feature, value, dtype=dtype, projected=True).value_tile


@pytest.mark.parametrize(
    ("sizes", "why"),
    [
        ({"dtype": "float32"}, "bfloat16 or float16"),
        ({"feature_size": 32, "projected": True}, "64, 128, 256"),
        ({"feature_size": 64}, "128, the head size"),
        ({"value_size": 80}, "a multiple of 32"),
        ({"head_size": 512, "projected": True}, "up to 256"),
        ({"group": 0}, "1 to 16"),
        ({"block_size": 0}, "1 to 65536"),
        ({"head_size": 256, "feature_size": 256, "dtype": "float16", "room_kib": FEW_KIB}, "99 KiB"),
    ],
)
def test_other_sizes_are_refused_with_what_is_allowed(sizes: dict[str, object], why: str) -> None:
    with pytest.raises(UsageError, match=why):
        Variant(**sizes)  # type: ignore[arg-type]


def test_room() -> None:
    assert [room_kib(a) for a in ("sm_80", "sm_86", "sm_89", "sm_90", "sm_90a", "sm_120", "new")] == [
        163, 99, 99, 227, 227, 99, 99
    ]  # fmt: skip
