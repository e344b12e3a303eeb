import pytest
from hypothesis import given
from hypothesis import strategies as st
from packaging.version import Version

from hybridctl.versions import parse_condition, parse_version


@pytest.mark.parametrize(
    "text",
    [
        "0.1.dev20073+g8e685d198",
        "0.0.0.dev1+gd91c3682b",
        "latest PyPI (2025-04)",
        "docker (torch 2.13.0+cu129)",
        "source build (mid 2025)",
        "vllm-backport latest-sm89",
        "nightly cu130",
        "cu129 build",
        "",
        "about two",
    ],
)
def test_prose_and_untagged_builds_name_no_version(text: str) -> None:
    assert parse_version(text) is None


@pytest.mark.parametrize(
    ("text", "condition", "answer"),
    [
        ("0.28.0", "<0.29", True),
        ("0.29.0", "<0.29", False),
        ("0.29.0rc1", "<0.29", True),
        ("0.19.2rc1.dev134+gfe9c3d6c5", ">=0.19.1", True),
        ("0.19.2rc1.dev134+gfe9c3d6c5", "<0.21", True),
        ("0.28.1rc1.dev437+ge962733e0", ">=0.29", None),  # the main branch on its way to 0.29.0
        ("0.28.1rc1.dev437+ge962733e0", "<0.29", True),
        ("0.28.1rc1.dev437+ge962733e0", ">=0.30", False),
        ("0.29.0rc2", ">=0.29", True),
        ("2.10.0.dev20251024+cu130", "<2.10", True),
        ("2.13.0+cu129", "==2.13.0", True),
        ("~0.10.2", ">=0.10.2,<0.11", True),
        ("~0.10.2", "==0.10.2", None),
        (">=0.20", ">=0.19", True),
        (">=0.20", "<0.20", False),
        (">=0.20", ">=0.29", None),
        ("<2.7.0", "<2.7", True),
        ("535", "<580", True),
        ("535", "<535.129.03", None),
        ("12.8", ">=12.8", True),
        ("12.8", "<12.6", False),
        ("12.8.93", "==12.8", True),
        ("2.x (stable, pip)", ">=2.7", None),
        ("2.x (stable, pip)", ">=2", True),
        ("0.17-0.19", ">=0.17,<0.20", True),
        ("v0.11.0", "==0.11", True),
        ("0.12.3", "<0.10 || ==0.12.*", True),
        ("0.11.3", "<0.10 || ==0.12.*", False),
        ("5.15.133.1-microsoft-standard-WSL2", ">=5.15.133", True),
        ("0.31.0", "!=0.31.0", False),
        ("0.31.1", "!=0.31.0", True),
        ("0.6.8.post1", ">0.6.8", True),
        ("1.4.7", "~=1.4.2", True),
        ("1.5.0", "~=1.4.2", False),
    ],
)
def test_three_valued_answers(text: str, condition: str, answer: bool | None) -> None:
    parsed = parse_version(text)
    assert parsed is not None
    assert parsed.within(parse_condition(condition)) is answer


def test_cuda_tag_of_a_local_version_is_kept() -> None:
    for text, local in (("2.13.0+cu129", "cu129"), ("0.18.1rc1 (cu132)", "cu132"), ("0.33.0", None)):
        parsed = parse_version(text)
        assert parsed is not None and parsed.local == local


@pytest.mark.parametrize("spec", ["", "newer than 3", ">=", ">=0.2 <0.3", "==abc"])
def test_bad_conditions_are_refused(spec: str) -> None:
    with pytest.raises(ValueError):
        parse_condition(spec)


@given(st.text(max_size=60))
def test_any_text_is_read_without_error(text: str) -> None:
    parsed = parse_version(text)
    assert parsed is None or parsed.intervals


@given(
    st.lists(st.integers(0, 40), min_size=3, max_size=3),
    st.lists(st.integers(0, 40), min_size=3, max_size=3),
    st.sampled_from([">=", ">", "<=", "<"]),
)
def test_points_compare_as_pep_440_does(have: list[int], bound: list[int], operator: str) -> None:
    a, b = ".".join(map(str, have)), ".".join(map(str, bound))
    parsed = parse_version(a)
    assert parsed is not None
    expected = {
        ">=": Version(a) >= Version(b),
        ">": Version(a) > Version(b),
        "<=": Version(a) <= Version(b),
        "<": Version(a) < Version(b),
    }
    assert parsed.within(parse_condition(f"{operator}{b}")) is expected[operator]


@given(st.integers(1, 30), st.integers(0, 30), st.integers(1, 30), st.integers(0, 30))
def test_a_series_never_contradicts_its_members(a: int, b: int, c: int, d: int) -> None:
    series, member, condition = parse_version(f"{a}.{b}"), parse_version(f"{a}.{b}.7"), parse_condition(f">={c}.{d}.5")
    assert series is not None and member is not None
    answer = series.within(condition)
    assert answer is None or answer is member.within(condition)
