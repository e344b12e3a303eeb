"""What vLLM does with the seeded faults, as it was recorded, and the table of it in the documentation."""

from __future__ import annotations

import importlib.util
import json
from pathlib import Path
from typing import Any

from seeded import SEED

DATA = Path(__file__).parents[1] / "data/audit"


def _load() -> Any:
    spec = importlib.util.spec_from_file_location("audit_table", DATA / "table.py")
    assert spec
    assert spec.loader
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


TABLE = _load()
RECORDED: dict[str, Any] = json.loads(TABLE.RECORDED.read_text("utf-8"))


def test_every_seeded_fault_was_put_to_vllm() -> None:
    assert {name: row["id"] for name, row in RECORDED["faults"].items()} == {n: s.id for n, s in SEED.FAULTS.items()}


def test_no_sound_checkpoint_was_refused() -> None:
    assert {row["family"] for row in RECORDED["faults"].values()} == {key.split()[0] for key in RECORDED["sound"]}
    assert not [key for key, row in RECORDED["sound"].items() if "stage" in row]


def test_the_table_of_the_documentation_is_what_was_recorded() -> None:
    text = TABLE.DOCUMENT.read_text("utf-8")
    assert TABLE.page(text, TABLE.table(RECORDED)) == text
