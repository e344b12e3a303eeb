"""Plots are sound XML whatever a model is called, and say in text what they draw."""

from __future__ import annotations

import importlib.util
from pathlib import Path
from xml.etree import ElementTree

import pytest
from typer.testing import CliRunner

from hybridctl.app import app
from hybridctl.errors import UsageError

FAMILIES = Path(__file__).parent.parent / "data" / "fit" / "families.json"


def plot(tmp_path: Path, name: str) -> str:
    config = tmp_path / "config.json"
    import json

    config.write_text(json.dumps(json.loads(FAMILIES.read_text())["qwen3_5_27b"]))
    out = tmp_path / name
    result = CliRunner().invoke(
        app,
        ["fit", 'a<b>&"c"/x', "--config", str(config), "--memory", "140", "--offline", "--plot", str(out), "--quiet"],
    )
    assert result.exit_code == 0, result.exception
    return out.read_text()


def test_svg(tmp_path: Path) -> None:
    drawn = plot(tmp_path, "fit.svg")
    root = ElementTree.fromstring(drawn)
    texts = [t.text or "" for t in root.iter("{http://www.w3.org/2000/svg}text")]
    assert 'a<b>&"c"/x on 1 × 140 GiB' in texts
    assert {"caches", "activations"} <= set(texts)
    assert any(t.endswith("tokens") for t in texts)


def test_html(tmp_path: Path) -> None:
    drawn = plot(tmp_path, "fit.html")
    assert "<svg" in drawn and "a&lt;b&gt;&amp;" in drawn and "a<b>" not in drawn


@pytest.mark.skipif(importlib.util.find_spec("matplotlib") is not None, reason="matplotlib is there")
@pytest.mark.parametrize("name", ["fit.png", "fit.pdf", "fit"])
def test_other_endings_are_refused(tmp_path: Path, name: str) -> None:
    from hybridctl.fit.plot import write_plot

    with pytest.raises(UsageError):
        write_plot(None, str(tmp_path / name))  # type: ignore[arg-type]
    assert not (tmp_path / name).exists()
