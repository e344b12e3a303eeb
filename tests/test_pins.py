"""Installing hybridctl beside vLLM moves no package of vLLM's set.

The sets are recorded under ``data/pins`` by ``data/pins/refresh.py``: what pip picks for each release, and what the packages
of that set demand of the packages that we need too.
"""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest
from packaging.requirements import Requirement
from packaging.specifiers import SpecifierSet
from packaging.utils import canonicalize_name
from packaging.version import Version

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib

PINS = Path(__file__).parent / "data" / "pins"
RELEASES = ("0.30.0", "0.31.0", "0.32.0", "0.33.0")
PROJECT = tomllib.loads((Path(__file__).parents[1] / "pyproject.toml").read_text())["project"]
BASE = [Requirement(text) for text in PROJECT["dependencies"]]
KERNELS = [Requirement(text) for text in PROJECT["optional-dependencies"]["kernels"]]
# The recorded sets are those of Python 3.11 on Linux x86-64, whatever runs the tests.
WHERE = {
    "python_version": "3.11",
    "python_full_version": "3.11.7",
    "sys_platform": "linux",
    "platform_machine": "x86_64",
}
OURS = [r for r in BASE + KERNELS if r.marker is None or r.marker.evaluate(WHERE)]


def picks(release: str) -> dict[str, Version]:
    lines = (PINS / f"vllm-{release}.txt").read_text().split()
    return {name: Version(version) for name, version in (line.split("==") for line in lines)}


def demands(release: str) -> dict[str, SpecifierSet]:
    """What the whole set asks of each package that is ours too, taken together."""
    together: dict[str, SpecifierSet] = {}
    for line in (PINS / f"vllm-{release}.requires.txt").read_text().splitlines():
        requirement = Requirement(line.partition("#")[0])
        together[requirement.name] = together.get(requirement.name, SpecifierSet()) & requirement.specifier
    return together


def floor(specifier: SpecifierSet) -> Version | None:
    """The lowest version named by a lower bound."""
    bounds = [Version(s.version) for s in specifier if s.operator in (">=", "~=", "==")]
    return max(bounds, default=None)


@pytest.mark.parametrize("release", RELEASES)
def test_recorded_set_is_that_of_the_release(release: str) -> None:
    assert picks(release)["vllm"] == Version(release)
    assert {"torch", "transformers", "huggingface-hub", "pydantic"} <= picks(release).keys()


@pytest.mark.parametrize("release", RELEASES)
@pytest.mark.parametrize("requirement", OURS, ids=lambda r: r.name)
def test_we_admit_what_the_set_holds(release: str, requirement: Requirement) -> None:
    held = picks(release).get(canonicalize_name(requirement.name))
    assert held is not None, f"{requirement.name} would be added to the set of vLLM {release}"
    assert requirement.specifier.contains(held)


@pytest.mark.parametrize("release", RELEASES)
@pytest.mark.parametrize("requirement", OURS, ids=lambda r: r.name)
def test_we_admit_every_version_that_the_set_admits(release: str, requirement: Requirement) -> None:
    """An older installation of the release holds older packages: our lower bound must not be above its own, nor ours have a top."""
    demanded = demands(release).get(canonicalize_name(requirement.name), SpecifierSet())
    theirs, ours = floor(demanded), floor(requirement.specifier)
    assert {s.operator for s in requirement.specifier} == {">="}
    if theirs is not None:
        assert ours is not None
        assert ours <= theirs


def test_lowest_set_is_our_lower_bounds() -> None:
    """``make test-lowest`` runs the suite on this set, so it must be what pyproject.toml claims."""
    lines = (PINS / "lowest.txt").read_text().split()
    lowest = {name: Version(version) for name, version in (line.split("==") for line in lines)}
    assert lowest == {r.name: floor(r.specifier) for r in BASE + KERNELS}


@pytest.mark.network
@pytest.mark.skipif(sys.version_info < (3, 11), reason="the recorded sets are those of Python 3.11")
@pytest.mark.parametrize("release", RELEASES)
def test_pip_resolves_under_the_pins(release: str, tmp_path: Path) -> None:
    """With every package of the set held in place, pip finds all that we need, dependencies of dependencies included."""
    report = tmp_path / "report.json"
    options = ["--dry-run", "--ignore-installed", "--quiet", "--report", str(report), "--only-binary", ":all:"]
    target = ["--target", str(tmp_path / "site"), "--python-version", "3.11"]
    command = [sys.executable, "-m", "pip", "install", *options, *target, "-c", str(PINS / f"vllm-{release}.txt")]
    done = subprocess.run([*command, *(str(r) for r in OURS)], capture_output=True, text=True, timeout=300, check=False)
    assert done.returncode == 0, done.stderr
    metadata = [item["metadata"] for item in json.loads(report.read_text())["install"]]
    chosen = {canonicalize_name(m["name"]): Version(m["version"]) for m in metadata}
    assert {canonicalize_name(r.name) for r in OURS} <= chosen.keys()
    held = picks(release)
    moved = {name: (held[name], version) for name, version in chosen.items() if name in held and held[name] != version}
    assert not moved
