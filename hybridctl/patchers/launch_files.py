"""The launch line of an overlay, stored in it: ``config.yml`` for ``vllm serve --config`` and ``vllm.env`` for its environment."""

from __future__ import annotations

import json
import shlex
from collections.abc import Sequence
from pathlib import Path

from hybridctl.overlays import Loading, StoredFlag

CONFIG, ENVIRONMENT = "config.yml", "vllm.env"


def config_yml(
    folder: Path,
    served: str,
    flags: Sequence[StoredFlag],
    load: Loading | None = None,
    others: Sequence[tuple[str, str]] = (),
) -> str:
    """vLLM's own form: a flag's long name without dashes, and its value; a flag without a value is true.

    Every value is a JSON text, which YAML reads as it is.

    Args:
        others: flags of the family's recipe that are not set, each with the reason: they are comments.
        load: of an overlay whose config.json names a class that only the plugin knows: vLLM's own name is given beside it.
    """
    lines = [f"# vllm serve --config {shlex.quote(str(folder / CONFIG))}"]
    lines += [f"model: {json.dumps(str(folder))}", f"served-model-name: {json.dumps(served)}"]
    if load is not None:
        override = json.dumps({"architectures": [load.architecture]})
        why = f"config.json names a class that exists only where the rules for names are applied: see {ENVIRONMENT}"
        lines.append(f"hf-overrides: {json.dumps(override)}  # {why}")
    for flag in flags:
        value = "true" if not flag.values else json.dumps(flag.values[0] if len(flag.values) == 1 else flag.values)
        lines.append(f"{flag.name.lstrip('-')}: {value}  # {flag.reason}")
    lines += [f"# not set: {flag}  ({reason})" for flag, reason in others]
    return "\n".join(lines) + "\n"


def environment(
    folder: Path, plugins: str, *, injected: bool, renamed: bool, variables: Sequence[tuple[str, str]] = ()
) -> str:
    """``NAME=value`` lines, as ``docker run --env-file`` reads them.

    Args:
        injected: whether the dispatcher is.
        renamed: whether tensors are renamed while they are loaded.
        variables: ``NAME=value`` of the family's recipe, each with its reason.
    """
    lines = ["HYBRIDCTL_PLUGIN=1", f"VLLM_PLUGINS={plugins}"] if injected or renamed else []
    lines += [f"HYBRIDCTL_NAMES={folder}"] if renamed else []
    for line, reason in variables:
        lines += [f"# {reason}", line]
    return "\n".join(lines or ["# vLLM serves this overlay without anything in its environment"]) + "\n"


def commands(folder: Path, name: str, plugin: bool, vllm: str, mounts: Sequence[Path]) -> list[str]:
    """Lines to type: ours; without the plugin also vLLM's own and a container's, with every folder that links lead to."""
    own = f"hybridctl serve {shlex.quote(name)}"
    if plugin:
        return [own]
    config = shlex.quote(str(folder / CONFIG))
    volumes = " ".join(f"-v {shlex.quote(f'{place}:{place}:ro')}" for place in mounts)
    docker = (
        f"docker run --rm --gpus all --ipc=host -p 8000:8000 {volumes} --entrypoint vllm "
        f"vllm/vllm-openai:v{vllm.partition('+')[0]} serve --config {config}"
    )
    return [own, f"vllm serve --config {config}", docker]
