"""The aligned block size of Gated DeltaNet hybrids against the sizes that start logs have printed."""

from __future__ import annotations

import pytest

from hybridctl.doctor.checks.state_block import aligned_block

from .making import facts

_BASE = {
    "command.form": "serve",
    "config.linear_num_key_heads": 16,
    "config.linear_value_head_dim": 128,
    "config.linear_key_head_dim": 128,
    "config.linear_conv_kernel_dim": 4,
    "config.head_dim": 256,
    "config.num_key_value_heads": 2,
}
_NEXT = {**_BASE, "config.linear_num_value_heads": 32}
_MOE35 = {**_NEXT, "config.mamba_ssm_dtype": "float32"}
_DENSE27 = {**_MOE35, "config.linear_num_value_heads": 48, "config.num_key_value_heads": 4}
_FLASH_NEXT = {**_MOE35, "config.linear_num_value_heads": 48}
_MTP3 = {"flag.speculative-config.num_speculative_tokens": 3}


@pytest.mark.parametrize(
    ("model", "flags", "block"),
    [
        (_NEXT, {}, 544),
        (_MOE35, {}, 1056),
        (_DENSE27, {}, 784),
        (_DENSE27, {"flag.kv-cache-dtype": "fp8"}, 1568),
        (_FLASH_NEXT, {}, 1568),
        (_FLASH_NEXT, {"flag.tensor-parallel-size": 2, **_MTP3}, 1600),
        (
            _FLASH_NEXT,
            {
                "flag.tensor-parallel-size": 2,
                "flag.kv-cache-dtype": "fp8",
                "flag.mamba-ssm-cache-dtype": "bfloat16",
                **_MTP3,
            },
            1664,
        ),
        (_FLASH_NEXT, {"flag.tensor-parallel-size": 4, **_MTP3}, 800),
        (_FLASH_NEXT, {"flag.tensor-parallel-size": 8}, 400),
    ],
)
def test_block_size(model, flags, block):
    assert aligned_block(facts({**model, **flags})) == block


@pytest.mark.parametrize("missing", ["config.head_dim", "config.linear_conv_kernel_dim", "command.form"])
def test_no_block_without_every_number(missing):
    assert aligned_block(facts({k: v for k, v in _MOE35.items() if k != missing})) is None


def test_a_speculative_config_without_a_count_leaves_the_block_open():
    assert aligned_block(facts({**_MOE35, "flag.speculative-config.method": "mtp"})) is None
