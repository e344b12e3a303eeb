"""Record what an installation of one vLLM release holds: ``python tests/data/pins/refresh.py 0.34.0``.

Writes ``vllm-<release>.txt`` (every package that pip picks today, as constraints) and ``vllm-<release>.requires.txt`` (what
the packages of that set demand of the packages that we depend on as well). pip reads metadata only; no wheel is downloaded. Run
it with Python 3.11 on Linux x86-64, with a plain pip configuration (no constraints, no local wheels).
"""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

HERE = Path(__file__).parent
SHARED = {"typer", "rich", "packaging", "huggingface-hub", "pydantic", "cuda-bindings", "cuda-python"}


def _resolve(release: str) -> list[dict[str, object]]:
    command = [sys.executable, "-m", "pip", "install", "--quiet", "--dry-run", "--ignore-installed", "--report", "-"]
    done = subprocess.run([*command, f"vllm=={release}"], check=True, stdout=subprocess.PIPE)
    return [item["metadata"] for item in json.loads(done.stdout)["install"]]


def _demands(packages: list[dict[str, object]]) -> set[str]:
    found = set()
    for metadata in packages:
        for text in metadata.get("requires_dist", []):  # type: ignore[attr-defined]
            requirement = Requirement(text)
            name = canonicalize_name(requirement.name)
            applies = requirement.marker is None or requirement.marker.evaluate({"extra": ""})
            if name in SHARED and applies and requirement.specifier:
                found.add(f"{name}{requirement.specifier}  # {canonicalize_name(str(metadata['name']))}")
    return found


def main(release: str) -> None:
    packages = _resolve(release)
    picks = sorted(f"{canonicalize_name(str(m['name']))}=={m['version']}" for m in packages)
    (HERE / f"vllm-{release}.txt").write_text("\n".join(picks) + "\n")
    (HERE / f"vllm-{release}.requires.txt").write_text("\n".join(sorted(_demands(packages))) + "\n")


if __name__ == "__main__":
    for argument in sys.argv[1:]:
        main(argument)
