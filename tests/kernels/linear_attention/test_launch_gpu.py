"""The compiled kernels on a GPU against the reference in float64: fresh random inputs, outputs poisoned with NaN first."""

from __future__ import annotations

import random

import pytest

torch = pytest.importorskip("torch")
pytest.importorskip("cuda.bindings")

from hybridctl.kernels.linear_attention import check  # noqa: E402

pytestmark = pytest.mark.gpu


@pytest.fixture(scope="module", autouse=True)
def gpu() -> None:
    if not torch.cuda.is_available():
        pytest.skip("no GPU")


@pytest.mark.parametrize("form", check.FORMS, ids=lambda f: f.name)
@pytest.mark.parametrize("paged", [False, True], ids=["tensors", "pages"])
def test_errors_against_float64(form: check.Form, paged: bool) -> None:
    chance = random.Random()
    for lengths in ([1], [64, 0, 63, 65, 1], [chance.randrange(1, 8192), 0, chance.randrange(1, 700)]):
        for row in check.run(form, lengths, paged, chance.randrange(1 << 30)):
            assert row.error <= row.limit, row


def test_chunks_of_any_size_equal_one_pass() -> None:
    assert check.chunked(check.FORMS[0], 3000, random.Random().randrange(1 << 30)) <= 5e-3
