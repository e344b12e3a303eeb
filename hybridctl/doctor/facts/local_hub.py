"""How this machine reaches the hub: only whether something is set, never what it is set to."""

from __future__ import annotations

from collections.abc import Iterable

from hybridctl.doctor.facts.local_disk import cache_folder, hub_home
from hybridctl.doctor.facts.local_machine import Machine
from hybridctl.doctor.facts.local_read import local_fact
from hybridctl.doctor.facts.model import Fact

_TOKENS = ("HF_TOKEN", "HUGGING_FACE_HUB_TOKEN")
_OFFLINE = ("HF_HUB_OFFLINE", "TRANSFORMERS_OFFLINE")
_ON = ("1", "on", "yes", "true")
_WEIGHTS = (".safetensors", ".bin", ".gguf", ".pt")


def hub_facts(machine: Machine) -> Iterable[Fact]:
    """Token, endpoint and offline switch, as huggingface_hub reads them."""
    environ = machine.environ
    says = next((f"{name} is set" for name in _TOKENS if environ.get(name, "").strip()), None)
    home = hub_home(machine)
    stored = environ.get("HF_TOKEN_PATH") or (machine.join(home, "token") if home else None)
    if says is None and stored and machine.size(stored):
        says = "a token is stored"
    yield local_fact("hub.token", says is not None, says or "no HF_TOKEN, no stored token")
    endpoint = bool(environ.get("HF_ENDPOINT", "").strip())
    yield local_fact("hub.endpoint", endpoint, "HF_ENDPOINT is set" if endpoint else "HF_ENDPOINT is not set")
    offline = next((n for n in _OFFLINE if environ.get(n, "").strip().lower() in _ON), None)
    yield local_fact("hub.offline", offline is not None, f"{offline} is on" if offline else "HF_HUB_OFFLINE is not on")


def cached_facts(machine: Machine, model: str) -> Iterable[Fact]:
    """Whether the cache holds weights of a hub model: a snapshot with at least one file of weights."""
    found = cache_folder(machine)
    if found is None or model.count("/") != 1 or model.startswith((".", "/", "~")):
        return
    folder = machine.join(found[0], "models--" + model.replace("/", "--"), "snapshots")
    there = any(
        name.endswith(_WEIGHTS)
        for snapshot in machine.names(folder)
        for name in machine.names(machine.join(folder, snapshot))
    )
    yield local_fact("hub.cached", there, f"{folder}: {'weights' if there else 'no weights'} of {model}")
