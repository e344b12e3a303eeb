"""What vLLM's own profile run left for the pool on an H200, against the range that ``fit`` states and what it plans with."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from hybridctl.app import app

MEASURED = json.loads((Path(__file__).parent.parent / "data" / "fit" / "h200.json").read_text())
POINTS = MEASURED["points"]


def fitted(point: dict[str, Any], folder: Path) -> dict[str, Any]:
    (folder / "config.json").write_text(json.dumps(MEASURED["models"][point["model"]]))
    line = ["fit", str(folder), "--gpu", "H200", "--memory", str(MEASURED["memory_bytes"] / 2**30)]
    line += ["--vllm", MEASURED["vllm"], "--offline", "--json"]
    for name, value in point["arguments"].items():
        line += [f"--{name.replace('_', '-')}"] + ([] if value is True else [str(value)])
    result = CliRunner().invoke(app, line)
    assert result.exit_code == 0, (result.output, result.exception)
    return dict(json.loads(result.stdout))


@pytest.mark.parametrize("point", POINTS, ids=lambda p: p["name"])
def test_the_pool_lies_in_the_stated_range(point: dict[str, Any], tmp_path: Path) -> None:
    answer = fitted(point, tmp_path)
    pool = answer["memory"]["pool_bytes"]
    assert pool["low"] <= point["pool_bytes"] <= pool["high"]
    # A range that says nothing would hold everything.
    assert pool["high"] - pool["low"] < 0.12 * point["pool_bytes"]
    assert pool["planned"] == pytest.approx(point["pool_bytes"], rel=0.03)
    assert answer["cache"]["block_bytes"] * point["num_blocks"] <= point["pool_bytes"]
    assert answer["cache"]["block_bytes"] * (point["num_blocks"] + 1) > point["pool_bytes"]


def test_enough_points_of_enough_kinds() -> None:
    assert len(POINTS) >= 6
    assert len({p["model"] for p in POINTS}) >= 3
    assert any(p["graph_bytes"] for p in POINTS), "one with captured graphs"
