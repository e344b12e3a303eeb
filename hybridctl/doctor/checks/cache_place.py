"""Is the folder that models are downloaded to large enough, and does it outlive the container?"""

from __future__ import annotations

from hybridctl.doctor.checks import Check, Context
from hybridctl.doctor.checks import _reading as read
from hybridctl.doctor.checks._local import runs_in_image
from hybridctl.doctor.checks._size import least_weights_gib
from hybridctl.doctor.facts.model import Facts
from hybridctl.doctor.findings import Finding, Fix, Outcome

_DOCS = "https://docs.vllm.ai/en/latest/deployment/docker.html"
_CACHE = "https://huggingface.co/docs/huggingface_hub/guides/manage-cache"


def _kind(facts: Facts) -> Finding | bool | None:
    fs = facts.get("disk.cache_fs")
    if fs is None:
        return None
    kind = str(fs.value)
    if kind == "tmpfs":
        return read.finding(
            "cache-in-memory",
            "Models are downloaded into memory",
            "oom",
            "warning",
            "The cache lies on tmpfs, which is host memory: the weights take it twice while they load, and a reboot loses them.",
            [read.quote(fs, "a disk")],
            [Fix("Put the cache on a disk.", "export HF_HOME=/path/on/a/disk/huggingface")],
            [_CACHE],
            "inferred",
        )
    if kind == "overlay" and facts.value("platform.container") is True:
        return read.finding(
            "cache-inside-container",
            "Models are downloaded into the container itself",
            "slow",
            "info",
            "The cache lies in the container's own layer: it goes with the container, and the next one downloads again.",
            [
                read.quote(fs, "a mounted folder or volume"),
                read.quote(where) if (where := facts.get("disk.cache")) else read.quote(fs),
            ],
            [
                Fix(
                    "Mount the host's cache.",
                    "docker run --gpus all --ipc=host -v ~/.cache/huggingface:/root/.cache/huggingface vllm/vllm-openai:latest"
                    f" --model {facts.value('model.name') or 'MODEL'}",
                )
            ],
            [_DOCS],
            "maintainer-confirmed",
        )
    return True


def _room(facts: Facts) -> Finding | bool | None:
    free, size = read.amount(facts, "disk.cache_free_gib"), least_weights_gib(facts)
    zero = facts.get("disk.cache_free_gib")
    if size is None or zero is None or facts.get("hub.cached") is None:
        return None
    have = free[0] if free else 0.0
    if facts.value("hub.cached") is True or have > size[0]:
        return True
    return read.finding(
        "hub-disk-full",
        f"{have:.0f} GiB are free for the download, and the weights take {size[0]:.0f} GiB",
        "network-hub",
        "warning",
        "The model is not in the cache, and the disk of the cache has no room for it.",
        [read.quote(zero, f">{size[0]:.0f} GiB"), read.quote(size[1]), read.quote(facts.all("hub.cached")[0])],
        [
            Fix("Put the cache where there is room.", "export HF_HOME=/path/with/room/huggingface"),
            Fix("Or remove what is not needed.", "hf cache ls; hf cache prune"),
        ],
        [_CACHE],
        "inferred",
    )


def run(context: Context) -> Outcome:
    facts = context.facts
    if facts.get("disk.cache") is None:
        return CHECK.unknown("disk.cache of this machine")
    if runs_in_image(facts):
        return CHECK.not_applicable("the container has a cache of its own, or a mounted one")
    if read.past(facts, "load"):
        return CHECK.not_applicable("the log shows that the weights were loaded")
    results = [_kind(facts), _room(facts)]
    if findings := [r for r in results if isinstance(r, Finding)]:
        return CHECK.found(*findings)
    if True in results:
        return CHECK.ok(f"{facts.value('disk.cache')} on {facts.value('disk.cache_fs') or 'a disk'}")
    return CHECK.unknown("disk.cache_fs")


CHECK = Check("cache-place", "Folder of the downloaded models", run)
