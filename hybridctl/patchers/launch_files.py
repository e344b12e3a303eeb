"""The launch line of an overlay, stored in it: ``config.yml`` for ``vllm serve --config`` and ``vllm.env`` for its environment."""

from __future__ import annotations

import json
import shlex
from collections.abc import Sequence
from pathlib import Path

from hybridctl.overlays import StoredFlag

CONFIG, ENVIRONMENT = "config.yml", "vllm.env"


def config_yml(folder: Path, served: str, flags: Sequence[StoredFlag]) -> str:
    """vLLM's own form: a flag's long name without dashes, and its value; a flag without a value is true.

    Every value is a JSON text, which YAML reads as it is.
    """
    lines = [f"# vllm serve --config {shlex.quote(str(folder / CONFIG))}"]
    lines += [f"model: {json.dumps(str(folder))}", f"served-model-name: {json.dumps(served)}"]
    for flag in flags:
        value = "true" if not flag.values else json.dumps(flag.values[0] if len(flag.values) == 1 else flag.values)
        lines.append(f"{flag.name.lstrip('-')}: {value}  # {flag.reason}")
    return "\n".join(lines) + "\n"


def environment(routed: bool, plugins: str) -> str:
    """``NAME=value`` lines, as ``docker run --env-file`` reads them."""
    if not routed:
        return "# vLLM serves this overlay without anything in its environment\n"
    return f"HYBRIDCTL_PLUGIN=1\nVLLM_PLUGINS={plugins}\n"


def commands(folder: Path, name: str, routed: bool, vllm: str, mounts: Sequence[Path]) -> list[str]:
    """Lines to type: ours; without dispatcher also vLLM's own and a container's, with every folder that links lead to."""
    own = f"hybridctl serve {shlex.quote(name)}"
    if routed:
        return [own]
    config = shlex.quote(str(folder / CONFIG))
    volumes = " ".join(f"-v {shlex.quote(f'{place}:{place}:ro')}" for place in mounts)
    docker = (
        f"docker run --rm --gpus all --ipc=host -p 8000:8000 {volumes} --entrypoint vllm "
        f"vllm/vllm-openai:v{vllm.partition('+')[0]} serve --config {config}"
    )
    return [own, f"vllm serve --config {config}", docker]
