"""The shipped demo model: its files fit together, and it depends on its routing as the committed figures say."""

from __future__ import annotations

import gzip
import json
from pathlib import Path

import pytest

import hybridctl

FOLDER = Path(hybridctl.__file__).parent / "demo_model"
RESULTS = Path(__file__).parents[2] / "benchmarks" / "results" / "demo_model_routing.json"


def heldout() -> list[dict[str, str]]:
    windows = json.loads(gzip.decompress((FOLDER / "heldout.json.gz").read_bytes()))["windows"]
    assert isinstance(windows, list)
    return windows


def test_size_and_config() -> None:
    assert sum(f.stat().st_size for f in FOLDER.iterdir()) <= 3_000_000
    config = json.loads((FOLDER / "config.json").read_text())
    assert config["architectures"] == ["Qwen3ForCausalLM"] and config["dtype"] == "bfloat16"
    assert config["hybrid_config"]["thresholds"] == {"flash": 256, "linear": 512}


def test_committed_figures_show_what_wrong_routing_costs() -> None:
    result = json.loads(RESULTS.read_text())
    assert result["scored_bytes"] >= 200_000
    for name in ("all_flash", "all_linear", "thresholds_doubled"):
        assert 1 / result["against_routed"][name]["interval_95"][0] <= 0.9, name
    texts = {window["text"] for window in heldout()}
    assert len(texts) == len(heldout()) and all(len(text) == 2 * 2047 for text in texts)


def test_tokens_are_bytes() -> None:
    tokenizers = pytest.importorskip("tokenizers")
    tokenizer = tokenizers.Tokenizer.from_file(str(FOLDER / "tokenizer.json"))
    text = "def f(x):\n\treturn 'é — 漢'  # \x00\r\n"
    ids = tokenizer.encode(text).ids
    assert ids == [256, *text.encode()]
    assert tokenizer.decode(ids) == text


@pytest.mark.slow
def test_perplexity_by_routing_in_the_reference() -> None:
    torch = pytest.importorskip("torch")
    pytest.importorskip("transformers")
    from hybridctl.kernels.linear_attention.reference_model import load_reference

    ids = [256, *bytes.fromhex(heldout()[20]["text"])][:1280]
    losses = {}
    for name, config in {
        "routed": None,
        "flash": {},
        "doubled": {"thresholds": {"flash": 1024, "linear": 1024}},
    }.items():
        logits = load_reference(FOLDER, config, dtype=torch.float32).logits(ids)
        loss = torch.nn.functional.cross_entropy(logits[:-1], torch.tensor(ids[1:]), reduction="none")
        losses[name] = loss[512:].mean().item()
        assert loss[:512].mean().item() < 1.5
    assert losses["routed"] < 1.3 and losses["routed"] + 0.1 < losses["doubled"]
    assert losses["routed"] + 0.1 < losses["flash"]
