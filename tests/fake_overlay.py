"""Prepared overlays for tests, as ``hybridctl.overlays`` describes them."""

from __future__ import annotations

import json
from datetime import datetime, timezone
from pathlib import Path

from hybridctl import overlays
from hybridctl.overlays import Manifest, OverlayFile
from hybridctl.runtime.checkpoint import DEMO


def make(home: Path, name: str, day: int = 1, architecture: str = "Qwen3ForCausalLM", **changed: object) -> Path:
    """An overlay of the demo model under a HYBRIDCTL_HOME. ``day``: of its making; ``changed``: of its manifest."""
    folder = home / "share" / "overlays" / name
    folder.mkdir(parents=True)
    for source in DEMO.iterdir():
        if source.name not in ("config.json", "README.md"):
            (folder / source.name).symlink_to(source)
    config = json.loads((DEMO / "config.json").read_text())
    config["hybrid_config"]["linear_feature_size"] = 32
    (folder / "config.json").write_text(json.dumps({**config, "architectures": [architecture]}))
    files = {p.name: OverlayFile(size=p.stat().st_size) for p in folder.iterdir()}
    told = {
        "model": f"owner/{name}",
        "revision": "0123456789abcdef",
        "created": datetime(2026, 11, day, 12, tzinfo=timezone.utc),
        "routing": "article",
        "vllm": "0.32.0",
        "files": files,
    }
    (folder / overlays.MANIFEST).write_text(Manifest.model_validate({**told, **changed}).text())
    return folder
