"""What our texts tell people to install with ``hybridctl[...]`` must be an extra of the package."""

import re
import sys
from pathlib import Path

import pytest

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib

ROOT = Path(__file__).parents[1]
_KINDS = (".py", ".md", ".toml")
_EXTRA = re.compile(r"hybridctl\[([a-z0-9_, -]+)\]")
FILES = [
    *ROOT.glob("*.md"),
    *(p for folder in ("hybridctl", "recipes", "docs") for p in (ROOT / folder).rglob("*.*") if p.suffix in _KINDS),
]  # fmt: skip


def named() -> list[tuple[str, str]]:
    found = [(p, m) for p in FILES for m in _EXTRA.findall(p.read_text(encoding="utf-8"))]
    return sorted({(str(p.relative_to(ROOT)), extra.strip()) for p, m in found for extra in m.split(",")})


@pytest.mark.parametrize(("where", "extra"), named())
def test_an_extra_that_is_named_exists(where: str, extra: str) -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    assert extra in project["optional-dependencies"], where


def test_some_are_named() -> None:
    assert {extra for _, extra in named()} >= {"vllm", "cpu", "kernels"}
