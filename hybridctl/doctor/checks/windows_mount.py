"""Do the weights lie on a Windows drive that is mounted into Linux? Reads then go through the 9P bridge, at some 20 MB/s."""

from __future__ import annotations

import re

from hybridctl.doctor.checks import Check, Context
from hybridctl.doctor.checks import _reading as read
from hybridctl.doctor.facts.model import Fact, Facts
from hybridctl.doctor.findings import Evidence, Fix, Outcome
from hybridctl.patterns import late

_DRIVE = late(r"^(?:[A-Za-z]:[\\/]|//?[A-Za-z]/|\$\{?(?:env:)?USERPROFILE\b|%USERPROFILE%)", re.ASCII)
_MNT = late(r"^/mnt/[a-z](?:/|$)", re.ASCII)
_USERS = late(r"^/mnt/[a-z]/Users/", re.ASCII | re.IGNORECASE)  # nothing but a Windows drive looks so
_PATH_FLAGS = ("model", "model-path", "download-dir")


def _on_windows(facts: Facts) -> bool:
    return facts.value("platform.wsl") is True or facts.value("platform.os") == "windows"


def _places(facts: Facts) -> list[tuple[Fact, str]]:
    """Paths that the engine reads its weights from: mounts, the model, the hub cache."""
    found: list[tuple[Fact, str]] = []
    for fact in facts.all("command.mounts"):
        found += [(fact, str(m)) for m in (fact.value if isinstance(fact.value, list) else [fact.value])]
    keys = (*(f"flag.{name}" for name in _PATH_FLAGS), "model.name", "env.HF_HOME", "env.HF_HUB_CACHE")
    found += [(stated, str(stated.value)) for key in keys if (stated := facts.get(key))]
    return found


def _mounted_cache(facts: Facts) -> list[tuple[Fact, str]] | None:
    """The hub cache where it is mounted from a Windows drive; ``None`` where no mount table was seen, or it does not count."""
    name, kind = str(facts.value("model.name") or ""), facts.get("disk.cache_fs")
    if (
        kind is None
        or name.startswith(("/", ".", "~"))
        or facts.value("command.form") in ("docker", "compose", "kubernetes")
    ):
        return None
    return [(kind, f"{facts.value('disk.cache')}, {kind.value}")] if kind.value == "drvfs" else []


def run(context: Context) -> Outcome:
    facts = context.facts
    places = _places(facts)
    mounted_cache = _mounted_cache(facts)
    if not places and mounted_cache is None:
        return CHECK.unknown("the launch line, or disk.cache_fs")
    for fact, path in [*places, *(mounted_cache or [])]:
        if fact.key == "disk.cache_fs":
            break
        mounted = fact.key == "command.mounts" or _on_windows(facts)
        if (_DRIVE.match(path) and mounted) or _USERS.match(path) or (_MNT.match(path) and _on_windows(facts)):
            break
    else:
        return CHECK.ok("no path on a Windows drive")
    if read.engine(facts) not in (None, "vllm", "sglang", "transformers"):
        return CHECK.not_applicable("a native Windows program reads its own drives")
    return CHECK.found(
        read.finding(
            "weights-on-windows-drive",
            "The weights lie on a Windows drive that Linux reaches through a bridge",
            "slow",
            "info" if read.past(facts, "load") else "warning",
            "Files of a Windows drive reach WSL2 and its containers through the 9P bridge, at tens of MB/s: loading takes minutes "
            "to hours, and looks like a hang at 0 %.",
            [Evidence(fact.key, path, "a path in the Linux file system", str(fact.origin), fact.origin.quote)],
            [
                Fix(
                    "Copy the weights into the file system of WSL2, and mount that.",
                    "cp -r /mnt/c/PATH/TO/MODEL ~/models/",
                ),
                Fix(
                    "Or keep the hub cache in a Docker volume.",
                    "docker volume create hf-cache && docker run --gpus all --ipc=host -v hf-cache:/root/.cache/huggingface"
                    " vllm/vllm-openai:latest --model MODEL",
                ),
                Fix(
                    "If it has to stay there, read each file in one go instead of page by page.",
                    "vllm serve MODEL --safetensors-load-strategy eager",
                ),
            ],
            [
                "https://learn.microsoft.com/en-us/windows/wsl/filesystems",
                "https://github.com/microsoft/WSL/issues/4197",
            ],
            "inferred",
        )
    )


CHECK = Check("windows-mount", "Weights on a Windows drive", run)
