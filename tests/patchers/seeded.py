"""The script that seeds faults, as a module."""

from __future__ import annotations

import importlib.util
import sys
from pathlib import Path
from typing import Any

SEEDER = Path(__file__).parent.parent / "data/audit/seed.py"


def _load() -> Any:
    spec = importlib.util.spec_from_file_location("audit_seed", SEEDER)
    assert spec
    assert spec.loader
    module = importlib.util.module_from_spec(spec)
    sys.modules["audit_seed"] = module  # dataclasses look their module up
    spec.loader.exec_module(module)
    return module


SEED = _load()
