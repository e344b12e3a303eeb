"""The version tables: every row can be read, nothing runs backwards, and what lies between two rows is known only if both agree."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st
from packaging.version import Version

from hybridctl import tables
from hybridctl.versions import VersionSet, parse_condition, parse_version


def at(text: str) -> VersionSet:
    parsed = parse_version(text)
    assert parsed is not None
    return parsed


@pytest.mark.parametrize("rows", [tables.releases, tables.wheels, tables.torches, tables.tritons, tables.cudas])
def test_rows_rise(rows):
    versions = [Version(row.version) for row in rows()]
    assert versions == sorted(set(versions))


@pytest.mark.parametrize("row", tables.releases(), ids=lambda r: r.version)
def test_release_row_is_readable(row):
    assert parse_version(row.torch) and parse_version(row.torchvision)
    assert parse_condition(row.transformers) and parse_condition(row.python)
    assert parse_version(row.triton)
    assert row.cuda in (12, 13)
    assert row.torch_cuda.startswith(f"{row.cuda}.")


@pytest.mark.parametrize("row", tables.releases(), ids=lambda r: r.version)
def test_release_and_torch_tables_agree(row):
    torch = tables.torch(at(row.torch))
    assert torch is not None
    assert torch.triton == row.triton
    assert torch.cuda == row.torch_cuda


@pytest.mark.parametrize("field", ["cuda", "torch", "torch_cuda"])
def test_what_a_release_asks_for_never_falls(field):
    values = [Version(str(getattr(r, field))) for r in tables.releases()]
    assert values == sorted(values)


def test_ptx_isa_rises_with_cuda_and_with_the_wheel():
    assert [Version(c.ptx) for c in tables.cudas()] == sorted(Version(c.ptx) for c in tables.cudas())
    measured = [Version(w.ptx_isa) for w in tables.wheels() if w.ptx_isa]
    assert measured == sorted(measured)
    assert all(tables.cuda_of_ptx(str(isa)) for isa in measured)


def test_driver_columns_rise():
    for column in ("linux", "windows"):
        drivers = [Version(d) for c in tables.cudas() if (d := getattr(c, column))]
        assert drivers == sorted(drivers)


def test_every_table_names_its_sources():
    for name in ("vllm", "wheels", "torch", "triton", "cuda"):
        assert all(s.startswith("https://") for s in tables.sources(name))


@pytest.mark.parametrize(
    ("text", "torch", "cuda"),
    [
        ("0.20.2", "2.11.0", 13),
        ("0.21.0", "2.11.0", 13),  # no row: 0.20.2 and 0.22.0 agree
        ("0.19.2rc1.dev134+gfe9c3d6c5", None, None),  # between 0.19.1 (torch 2.10, CUDA 12) and 0.20.0
        ("0.26.1", None, 13),
        ("0.8.3", "2.6.0", 12),
        (">=0.20", None, 13),
        (">=0.12.0", None, None),
        ("0.34.0", None, 13),
        ("~0.10.2", "2.8.0", 12),
    ],
)
def test_a_release_between_two_rows(text, torch, cuda):
    release = tables.release(at(text))
    assert release is not None
    assert (release.torch, release.cuda) == (torch, cuda)


@pytest.mark.parametrize("text", ["0.5.4", "<0.20", "0.6.0"])
def test_below_the_first_row_nothing_is_known(text):
    assert tables.release(at(text)) is None


def test_no_version_no_release():
    assert tables.release(None) is None
    assert tables.release(parse_version("0.1.dev20073+g8e685d198")) is None


@pytest.mark.parametrize(
    ("text", "isa"),
    [("0.9.1", "8.7"), ("0.11.0", "8.7"), ("0.11.2", None), ("0.17.1", "8.8"), ("0.30.0", "9.0"), ("0.8.5", None)],
)
def test_ptx_isa_between_measured_wheels(text, isa):
    wheel = tables.wheel(at(text))
    assert (wheel.ptx_isa if wheel else None) == isa


@pytest.mark.parametrize(
    ("driver", "cuda"),
    [
        ("535", "12.2"),
        ("535.129.03", "12.2"),
        ("550.54.15", "12.4"),
        ("565.57.01", "12.7"),
        ("570.86.10", "12.8"),
        ("575.57.08", "12.9"),
        ("580.126.09", "13.0"),
        ("537.13", "12.2"),  # Windows numbers from here on
        ("555.85", "12.5"),
        ("572.61", "12.8"),
        ("581.80", "13.0"),
        ("596.36", "13.2"),
    ],
)
def test_cuda_of_driver(driver, cuda):
    served = tables.cuda_of_driver(at(driver))
    assert served is not None
    assert served.within(parse_condition(f"=={cuda}")) is True


def test_old_and_open_driver_numbers():
    old = tables.cuda_of_driver(at("470.82"))
    assert old is not None and old.within(parse_condition(">=11.8")) is False
    newest = tables.cuda_of_driver(at("616.0"))
    assert newest is not None and newest.within(parse_condition(">=13.3")) is True
    open_end = tables.cuda_of_driver(at(">=550"))
    assert open_end is not None and open_end.within(parse_condition(">=12.4")) is True
    assert open_end.within(parse_condition(">=13.0")) is None


def test_driver_to_ask_for():
    assert tables.driver_for_cuda("12.8") == "570.26"
    assert tables.driver_for_cuda("12.8", windows=True) == "570.65"
    assert tables.driver_for_cuda("13.0", windows=True) == "580"
    assert tables.driver_for_cuda("13.5") is None
    assert tables.driver_for_major(13) == "580"


@pytest.mark.parametrize(
    ("cuda", "isa"), [("12.8", "8.7"), ("12.9.86", "8.8"), ("13.0", "9.0"), ("12", None), ("10.2", None)]
)
def test_ptx_of_cuda(cuda, isa):
    assert tables.ptx_of_cuda(at(cuda)) == isa


def test_ptxas_targets():
    assert "121" not in tables.triton(at("3.5.1")).targets
    assert "121" in tables.triton(at("3.6.0")).targets
    assert tables.triton(at("3.5.5")).targets is None


@given(
    st.text(max_size=30) | st.from_regex(r"[<>=~]{0,2}\d{1,3}(\.\d{1,3}){0,3}(\.\*|\.x|rc1|\.dev3)?", fullmatch=True)
)
def test_lookups_never_raise(text):
    versions = parse_version(text)
    for look_up in (
        tables.release,
        tables.wheel,
        tables.torch,
        tables.triton,
        tables.ptx_of_cuda,
        tables.cuda_of_driver,
    ):
        look_up(versions)
