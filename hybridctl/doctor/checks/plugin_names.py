"""Is every plugin that VLLM_PLUGINS names installed? vLLM says nothing of one that is not."""

from __future__ import annotations

from hybridctl.doctor.checks import Check, Context
from hybridctl.doctor.checks import _reading as read
from hybridctl.doctor.checks._local import runs_in_image
from hybridctl.doctor.findings import Fix, Outcome


def run(context: Context) -> Outcome:
    facts = context.facts
    named, installed = facts.get("env.VLLM_PLUGINS"), facts.get("vllm.plugins")
    if named is None:
        # Only of this machine are the variables known as a whole.
        return (
            CHECK.not_applicable("VLLM_PLUGINS is not set")
            if facts.get("platform.ports")
            else CHECK.unknown("env.VLLM_PLUGINS")
        )
    if runs_in_image(facts):
        return CHECK.not_applicable("the image has plugins of its own")
    wanted = [name.strip() for name in str(named.value).split(",") if name.strip()]
    if installed is None and facts.get("pkg.vllm") is None:
        return CHECK.unknown("vllm.plugins")
    listed = installed.value if installed is not None and isinstance(installed.value, list) else []
    there = {item.partition(" ")[0] for item in listed}
    missing = [name for name in wanted if name not in there]
    if not missing:
        return CHECK.ok(f"{', '.join(wanted) or 'no plugin'} is what VLLM_PLUGINS names, and it is there")
    return CHECK.found(
        read.finding(
            "plugin-not-installed",
            f"VLLM_PLUGINS names {', '.join(missing)}, which is not installed",
            "config",
            "warning",
            "vLLM loads the plugins that this variable names, and says nothing of a name that it does not find. What the plugin "
            "would have added is then missing: a model that is 'not supported', or a kernel that is not used.",
            [read.quote(named, "names of installed plugins"), *([read.quote(installed)] if installed else [])],
            [
                Fix("Name what is there, or unset it to load all.", "unset VLLM_PLUGINS"),
                Fix("Or install the plugin into the Python that runs vLLM."),
            ],
            [
                "https://github.com/vllm-project/vllm/pull/43987",
                "https://github.com/vllm-project/vllm/blob/v0.33.0/vllm/plugins/__init__.py",
            ],
            "reporter-confirmed",
        )
    )


CHECK = Check("plugin-names", "Plugins that VLLM_PLUGINS names", run, phase="import")
