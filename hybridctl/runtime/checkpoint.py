"""The checkpoint that is to be served: its folder, its config.json, and whether it declares a routing."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from hybridctl.errors import UsageError
from hybridctl.runtime.dispatcher import HybridAttentionDispatcher
from hybridctl.runtime.hybrid_config import ModelShape, parse
from hybridctl.runtime.overlay_min import first_architecture

if TYPE_CHECKING:
    from hybridctl.overlays import Loading, Manifest, Prepared

DEMO = Path(__file__).resolve().parent.parent / "demo_model"
DEMO_NAME = "hybridctl-demo"


@dataclass(frozen=True)
class Checkpoint:
    """A model as the user named it.

    Attributes:
        name: what the user gave; for the demo its own name, for a prepared overlay the model's.
        folder: where its files lie, None where vLLM will fetch them.
        config: its config.json, empty where that is not at hand.
        prepared: the manifest of a prepared overlay.
    """

    name: str
    folder: Path | None = None
    config: Mapping[str, Any] = field(default_factory=dict)
    demo: bool = False
    prepared: Manifest | None = None

    @property
    def routed(self) -> bool:
        return self.config.get("hybrid_config") is not None

    @property
    def load(self) -> Loading | None:
        """The rules for names of a prepared overlay."""
        return self.prepared.load if self.prepared is not None else None

    @property
    def architecture(self) -> str:
        """The first class that config.json names; empty where it names none."""
        return first_architecture(self.config)

    @property
    def location(self) -> str:
        """What stands on a launch line."""
        return str(self.folder) if self.folder is not None else self.name

    def dispatcher(self, tp_size: int = 1) -> HybridAttentionDispatcher | None:
        """The routing of rank 0. None where config.json does not say what the model looks like.

        Raises:
            UsageError: a hybrid_config that is wrong.
        """
        inner = self.config.get("text_config")
        text = inner if isinstance(inner, dict) else self.config
        layers, heads = text.get("num_hidden_layers"), text.get("num_attention_heads")
        groups = text.get("num_key_value_heads", heads)
        if not (self.routed and isinstance(layers, int) and isinstance(groups, int)):
            return None
        size = text.get("head_dim")
        if not isinstance(size, int) and isinstance(heads, int) and isinstance(text.get("hidden_size"), int):
            size = text["hidden_size"] // heads
        shape = ModelShape(layers, groups, size if isinstance(size, int) else None)
        config = parse(self.config["hybrid_config"], shape)
        return HybridAttentionDispatcher(config, layers, groups, 0, tp_size)


def demo() -> Checkpoint:
    """The model that comes with hybridctl.

    Raises:
        UsageError: this installation lacks it.
    """
    if not (DEMO / "model.safetensors").is_file():
        raise UsageError(f"this installation has no demo model in {DEMO}", "pip install --force-reinstall hybridctl")
    return Checkpoint(DEMO_NAME, DEMO, read(DEMO), demo=True)


def find(model: str) -> Checkpoint:
    """A local folder, a prepared overlay by its name, or a repository on the hub, through its cache where it is there.

    Raises:
        UsageError: a path that is not there, a folder without a config.json, or an overlay that is damaged.
    """
    from hybridctl import overlays

    path = Path(model).expanduser()
    if path.is_dir():
        if (path / overlays.MANIFEST).is_file():
            return of_overlay(overlays.look(path.absolute()))
        return Checkpoint(model, path.absolute(), read(path))
    if (overlay := overlays.named(model)) is not None:
        return of_overlay(overlay)
    if model.startswith((".", "/", "~")) or model.count("/") != 1:
        raise UsageError(
            f"there is no model folder and no prepared overlay {model}",
            "give a folder with a config.json, or OWNER/NAME on the hub",
        )
    from hybridctl.model.hub import fetch_config

    config, _ = fetch_config(model)
    checkpoint = Checkpoint(model, None, read(config.parent) if config is not None else {})
    if not checkpoint.routed:
        return checkpoint  # vLLM finds and fetches it by its name
    from huggingface_hub import snapshot_download
    from huggingface_hub.errors import HfHubHTTPError, LocalEntryNotFoundError

    try:
        folder = Path(snapshot_download(model))
    except (HfHubHTTPError, LocalEntryNotFoundError, OSError) as error:
        raise UsageError(f"{model} can't be fetched: {type(error).__name__}", f"hf download {model}") from error
    return Checkpoint(model, folder, read(folder))


def of_overlay(overlay: Prepared) -> Checkpoint:
    """What a prepared overlay serves, under the name of the model that it was made from.

    Raises:
        UsageError: it is damaged.
    """
    if overlay.problem or overlay.manifest is None:
        raise UsageError(f"the overlay {overlay.folder} can't be served: {overlay.problem}")
    return Checkpoint(overlay.manifest.model, overlay.folder, read(overlay.folder), prepared=overlay.manifest)


def read(folder: Path) -> dict[str, Any]:
    """config.json of a folder.

    Raises:
        UsageError: none, or one that is no JSON object.
    """
    file = folder / "config.json"
    try:
        document = json.loads(file.read_text(encoding="utf-8"))
    except OSError as error:
        raise UsageError(
            f"{file}: {error.strerror}", "a model folder holds config.json, weights and a tokenizer"
        ) from error
    except ValueError as error:
        raise UsageError(f"{file} is no JSON: {error}") from error
    if not isinstance(document, dict):
        raise UsageError(f"{file} holds no object")
    return document
