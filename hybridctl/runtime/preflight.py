"""The doctor's look at a launch line before it is started."""

from __future__ import annotations

import difflib
import os
import socket

from hybridctl.doctor.diagnose import Diagnosis, Inputs, diagnose
from hybridctl.errors import UsageError
from hybridctl.model.inventory import read_folder
from hybridctl.runtime.launch import Launch
from hybridctl.runtime.target import OURS, Target


def check(launch: Launch, python: str | None) -> Diagnosis:
    """Everything that the doctor has to say about this machine, this environment, this model and this line."""
    target = launch.target
    # The CPU build has another name, but its flags, classes and pins are those of the release.
    env = None if target.distribution == "vllm" else f"vllm=={target.version.partition('+')[0]}+cpu\n"
    return diagnose(Inputs(env=env, command=launch.line(), model=launch.checkpoint.location, local=True, python=python))


def refuse(launch: Launch) -> None:
    """What the runtime itself would refuse, told before anything is started.

    Raises:
        UsageError: a routing that is wrong or not done yet, a vLLM outside the window, a target without the plugin, a name in
            VLLM_PLUGINS that is no plugin there, weights that are damaged or cut off.
    """
    if launch.checkpoint.folder is not None:
        read_folder(launch.checkpoint.folder)
    _plugin_names(launch.target, os.environ.get("VLLM_PLUGINS"))
    if not launch.plugin:
        return
    from hybridctl.runtime.vllm_plugin.routing import not_executed
    from hybridctl.runtime.vllm_plugin.window import check_version

    target = launch.target
    check_version(target.version)
    if not target.has_plugin:
        raise UsageError(
            f"hybridctl is not installed in {target.python}, so vLLM there can't load its plugin",
            f"{target.python} -m pip install hybridctl",
        )
    if not launch.routed:
        return
    dispatcher = launch.checkpoint.dispatcher(launch.tensor_parallel_size)
    if dispatcher is not None and (lines := not_executed(dispatcher)):
        raise UsageError("; ".join(lines), "serve with --no-hybrid")


def _plugin_names(target: Target, present: str | None) -> None:
    """vLLM says nothing of a name that it does not find, and serves without that plugin."""
    known = sorted({OURS, *(name for names in target.plugins.values() for name in names)})
    for name in filter(None, (present or "").split(",")):
        if name not in known:
            near = difflib.get_close_matches(name, known, 1)
            raise UsageError(
                f"VLLM_PLUGINS names {name!r}, and no package in {target.python} has a plugin of that name"
                + (f"; did you mean {near[0]!r}?" if near else f"; there are: {', '.join(known)}"),
                "unset VLLM_PLUGINS: serve names what is installed",
            )


def check_port(launch: Launch) -> None:
    """Raise UsageError where something listens on the port already."""
    family = socket.AF_INET6 if ":" in launch.host else socket.AF_INET
    with socket.socket(family, socket.SOCK_STREAM) as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind((launch.host, launch.port))
        except OSError as error:
            hint = f"--port {launch.port + 1}, or hybridctl serve --status"
            raise UsageError(f"port {launch.port} of {launch.host} can't be used: {error.strerror}", hint) from error
