"""prepare and serve refuse a routing by what the runtime says of itself: what it learns, they admit."""

from __future__ import annotations

from pathlib import Path

import pytest
from fake_checkpoints import put, qwen3

from hybridctl.errors import UsageError
from hybridctl.patchers import plan as planning
from hybridctl.patchers import source
from hybridctl.patchers.config import Versions
from hybridctl.patchers.routing import ARTICLE
from hybridctl.runtime import dispatcher, preflight
from hybridctl.runtime.checkpoint import Checkpoint
from hybridctl.runtime.launch import Launch
from hybridctl.runtime.target import Target
from hybridctl.runtime.vllm_plugin import routing

TARGET = Target("python", "vllm", "0.32.0", plugins={"vllm.general_plugins": ("hybridctl",)})


def refusals(folder: Path) -> list[str]:
    """What prepare and serve say against the article's routing; empty where both admit it."""
    lines = []
    try:
        planning.make(source.find(str(folder)), Versions("0.32.0", "5.19.0"), "article", folder, "link")
    except UsageError as error:
        lines.append(str(error))
    config = {
        **planning.patch((folder / "config.json").read_text(), Versions("0.32.0")).document,
        "hybrid_config": ARTICLE,
    }
    try:
        preflight.refuse(Launch(Checkpoint("m", None, config), TARGET, True))
    except UsageError as error:
        lines.append(str(error))
    return lines


@pytest.mark.parametrize("missing", ["band", "heads"])
def test_a_refusal_vanishes_with_what_the_runtime_learns(
    missing: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    model = put(tmp_path / "Tiny", qwen3())
    monkeypatch.setattr(routing, "FEATURES", frozenset(dispatcher.FEATURES) - {missing})
    lines = refusals(model)
    assert len(lines) == 2 and lines[0] == lines[1] and lines[0].startswith("not yet: "), lines
    monkeypatch.setattr(routing, "FEATURES", frozenset(dispatcher.FEATURES))
    assert refusals(model) == []
