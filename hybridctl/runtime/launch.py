"""The command that will be started: every flag and variable with its reason."""

from __future__ import annotations

import os
import re
import shlex
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from hybridctl.architectures import alias_target
from hybridctl.runtime import overlay_min
from hybridctl.runtime.checkpoint import Checkpoint
from hybridctl.runtime.dispatcher import NEEDED_BY_VALUE
from hybridctl.runtime.run_dir import temporary
from hybridctl.runtime.target import Target

YOURS = "as you gave it"
DEFAULT_PORT = 8000


@dataclass(frozen=True)
class Options:
    """What the user asked for. ``extra`` goes to vLLM as it is."""

    hybrid_enabled: bool = False
    no_hybrid: bool = False
    keep_kv: bool = False
    tensor_parallel_size: int | None = None
    dtype: str | None = None
    enable_chunked_prefill: bool = False
    port: int | None = None
    host: str | None = None
    extra: tuple[str, ...] = ()


@dataclass(frozen=True)
class Setting:
    """A flag (or variable) with its values, and why it is there."""

    name: str
    values: tuple[str, ...]
    reason: str


@dataclass
class Launch:
    """A planned start."""

    checkpoint: Checkpoint
    target: Target
    routed: bool
    flags: list[Setting] = field(default_factory=list)
    env: list[Setting] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)
    model_path: str = ""
    alias: str = ""
    """The class that stands for a legacy name in config.json, which only the plugin registers."""

    @property
    def plugin(self) -> bool:
        """Whether the plugin has work to do: a routing, rules for names of tensors, or a legacy class name."""
        return self.routed or self.checkpoint.load is not None or bool(self.alias)

    def given(self, *names: str) -> str | None:
        """The last value of a flag by any of its names; ``""`` for one without a value."""
        found = None
        for setting in self.flags:
            words = [setting.name, *setting.values]
            for i, word in enumerate(words):
                name, equals, value = word.partition("=")
                if name in names:
                    following = words[i + 1] if i + 1 < len(words) and not words[i + 1].startswith("-") else ""
                    found = value if equals else following
        return found

    @property
    def port(self) -> int:
        value = self.given("--port")
        return int(value) if value and value.isdigit() else DEFAULT_PORT

    @property
    def host(self) -> str:
        """Where this machine reaches the server."""
        host = self.given("--host") or ""
        return "127.0.0.1" if host in ("", "0.0.0.0", "::", "localhost") else host

    @property
    def url(self) -> str:
        scheme = "https" if self.given("--ssl-keyfile") else "http"
        host = f"[{self.host}]" if ":" in self.host else self.host
        return f"{scheme}://{host}:{self.port}"

    @property
    def api_key(self) -> str | None:
        return self.given("--api-key") or os.environ.get("VLLM_API_KEY")

    @property
    def tensor_parallel_size(self) -> int:
        value = self.given("--tensor-parallel-size", "-tp")
        return int(value) if value and value.isdigit() else 1

    @property
    def words(self) -> list[str]:
        """The flags as words."""
        return [word for s in self.flags for word in ((s.name,) if s.name else ()) + s.values]

    @property
    def argv(self) -> list[str]:
        return [*self.target.start[0], self.model_path, *self.words]

    def line(self) -> str:
        """As a person would have typed it, for the doctor: the checkpoint itself in place of the overlay."""
        return shlex.join(["vllm", "serve", self.checkpoint.location, *self.words])

    def environment(self, base: Mapping[str, str]) -> dict[str, str]:
        out = {**base, **{s.name: s.values[0] for s in self.env}}
        if not self.plugin:
            out.pop("HYBRIDCTL_PLUGIN", None)
        if self.checkpoint.load is None:
            out.pop("HYBRIDCTL_NAMES", None)
        return out


def plan(checkpoint: Checkpoint, target: Target, options: Options, run: Path, environ: Mapping[str, str]) -> Launch:
    """Plan a start.

    Args:
        run: the run directory, which need not exist yet.
        environ: the present environment.
    """
    launch = Launch(checkpoint, target, checkpoint.routed and not options.no_hybrid)
    # The plugin's architectures exist only where it is switched on, and every routed model must have one.
    ours = checkpoint.architecture.startswith(overlay_min.PREFIX)
    stripped: dict[Path, set[str]] = {}
    if checkpoint.routed and not launch.routed and checkpoint.folder is not None:
        stripped = overlay_min.operator_tensors(checkpoint.folder)
    overlay = checkpoint.folder is not None and (launch.routed != ours or bool(stripped))
    launch.model_path = str(run / "model") if overlay else checkpoint.location
    if options.hybrid_enabled and not checkpoint.routed:
        launch.notes.append(
            f"--hybrid-enabled: {checkpoint.name} declares no hybrid_config, so there is nothing to inject; vLLM serves it as it is"
        )
    if options.hybrid_enabled and options.no_hybrid:
        launch.notes.append("--no-hybrid wins over --hybrid-enabled")
    if stripped:
        count, size = sum(map(len, stripped.values())), sum(file.stat().st_size for file in stripped)
        launch.notes.append(
            f"--no-hybrid: vLLM does not know {count} tensors of the dispatcher's, so it gets copies without them "
            f"({size / (1 << 20):.0f} MiB, removed at the end)"
        )
    release = target.version.partition("+")[0]
    launch.alias = alias_target(checkpoint.architecture, release)
    if launch.alias:
        launch.notes.append(
            f"{checkpoint.architecture} is served as {launch.alias}, which is its name in vLLM {release}: the plugin registers it"
        )
    if checkpoint.prepared is not None and checkpoint.prepared.vllm != release:
        launch.notes.append(
            f"{checkpoint.location} was prepared for vLLM {checkpoint.prepared.vllm}; this one is {release}"
        )
    _flags(launch, options, overlay)
    _environment(launch, options, run, environ)
    return launch


def _flags(launch: Launch, options: Options, overlay: bool) -> None:
    def add(name: str, value: object, reason: str) -> None:
        launch.flags.append(Setting(name, () if value is None else (str(value),), reason))

    extra = Launch(launch.checkpoint, launch.target, launch.routed, [Setting("", options.extra, YOURS)])
    demo = launch.checkpoint.demo
    if options.host is not None:
        add("--host", options.host, YOURS)
    elif demo and extra.given("--host") is None:
        add("--host", "127.0.0.1", "the demo is for this machine only")
    if options.port is not None:
        add("--port", options.port, YOURS)
    elif extra.given("--port") is None:
        add("--port", DEFAULT_PORT, "vLLM's own default, named so that it can be seen")
    if (overlay or demo or launch.checkpoint.prepared is not None) and extra.given("--served-model-name") is None:
        add("--served-model-name", launch.checkpoint.name, "clients name the model as you did, not the folder of links")
    if options.tensor_parallel_size is not None:
        add("--tensor-parallel-size", options.tensor_parallel_size, YOURS)
    if options.dtype is not None:
        add("--dtype", options.dtype, YOURS)
    elif demo and launch.target.cpu and extra.given("--dtype") is None:
        add("--dtype", "float32", "on a CPU, so that answers can be held against the reference; the model is small")
    if options.enable_chunked_prefill:
        add("--enable-chunked-prefill", None, YOURS)
    dispatcher = launch.checkpoint.dispatcher() if launch.routed else None
    if dispatcher is not None and dispatcher.by_value:
        for off, (_, why) in NEEDED_BY_VALUE.items():
            names = off, off.replace("--no-", "--")
            if launch.given(*names) is None and extra.given(*names) is None:
                add(off, None, f"hybrid_config has {dispatcher.rule_by_value}: {why}")
    if demo and launch.target.cpu:
        if extra.given("--enforce-eager") is None and extra.given("--no-enforce-eager") is None:
            add("--enforce-eager", None, "compiling would take longer than the demo")
        if extra.given("--max-num-seqs") is None:
            add("--max-num-seqs", 16, "a small pool is enough for one person")
    if launch.checkpoint.prepared is not None and (made := launch.checkpoint.prepared.made) is not None:
        for flag in made.flags:
            if launch.given(flag.name) is None and extra.given(flag.name) is None:
                launch.flags.append(Setting(flag.name, tuple(flag.values), f"prepared: {flag.reason}"))
    if options.extra:
        launch.flags.append(Setting("", options.extra, YOURS))


def _environment(launch: Launch, options: Options, run: Path, environ: Mapping[str, str]) -> None:
    def put(name: str, value: object, reason: str) -> None:
        launch.env.append(Setting(name, (str(value),), reason))

    if launch.plugin:
        put("HYBRIDCTL_PLUGIN", 1, "switches the plugin on; without it, it does nothing")
        put("HYBRIDCTL_RUN_DIR", run / "proof", "where every process of vLLM proves that it has the plugin")
        if launch.routed and options.keep_kv:
            put("HYBRIDCTL_KEEP_KV", 1, "--keep-kv: K/V pages are kept by vLLM's own rules")
        if launch.checkpoint.load is not None:
            put(
                "HYBRIDCTL_NAMES",
                launch.checkpoint.location,
                "its rules for names of tensors, which the plugin applies",
            )
    if launch.plugin or launch.target.has_generate:
        names = launch.target.allowlist(environ.get("VLLM_PLUGINS"))
        put("VLLM_PLUGINS", names, "an allowlist over all kinds of plugins: what is installed, and hybridctl")
    put("PROMETHEUS_MULTIPROC_DIR", run / "metrics", "fresh for this run: counters of all processes reach /metrics")
    if (scratch := temporary(run)) is not None:
        put("TMPDIR", scratch, "sockets and other temporary files, which vLLM leaves behind: removed with this run")
        if "TORCHINDUCTOR_CACHE_DIR" not in environ:
            put("TORCHINDUCTOR_CACHE_DIR", _inductor(), "torch's own place: what is compiled once outlives this run")
    put("PYTHONUNBUFFERED", 1, "lines are seen when they are printed")
    put("NO_COLOR", 1, "the log is text")
    if launch.target.cpu:
        if launch.checkpoint.demo and "VLLM_CPU_KVCACHE_SPACE" not in environ:
            put("VLLM_CPU_KVCACHE_SPACE", 1, "GiB for K/V and states; vLLM would take a large part of the memory")
        size = launch.tensor_parallel_size
        if size > 1 and "VLLM_CPU_OMP_THREADS_BIND" not in environ:
            put("VLLM_CPU_OMP_THREADS_BIND", _binding(size), "each tensor-parallel rank gets processors of its own")


def _inductor() -> Path:
    """As torch names it (``torch/_inductor/runtime/cache_dir_utils.py``), from the temporary folder of the machine."""
    import getpass

    try:
        user = getpass.getuser()
    except (KeyError, ImportError, OSError):
        user = f"uid_{os.getuid()}"
    return Path(tempfile.gettempdir()) / ("torchinductor_" + re.sub(r'[\\/:*?"<>|]', "_", user))


def _binding(ranks: int) -> str:
    cores = sorted(os.sched_getaffinity(0))
    shares: Sequence[Sequence[int]] = [cores[i::ranks] or cores for i in range(ranks)]
    return "|".join(",".join(map(str, share)) for share in shares)
