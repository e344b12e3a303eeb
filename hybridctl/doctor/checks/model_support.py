"""Does the engine that is installed know this model? By the versions that the family's recipe names, else by the tables.

Has the vLLM release the class (not yet, or not any more), and has transformers the model type where the engine takes its
configuration from there? Between the last release looked at without it and the first with it, nothing is known.
"""

from __future__ import annotations

from hybridctl.doctor.checks import Check, Context
from hybridctl.doctor.checks import _reading as read
from hybridctl.doctor.findings import Finding, Outcome

_NAMES = ("model.architecture", "model.type", "model.family")
_NEEDS = "a model whose family is known, or its config.json"


def run(context: Context) -> Outcome:
    facts = context.facts
    if not any(map(facts.get, _NAMES)):
        return CHECK.unknown(_NEEDS)
    # The tables of classes and the recipes are of no use without a model.
    from hybridctl.doctor.checks import _model_classes as classes
    from hybridctl.doctor.checks._registry import judge_class, judge_type, stated_classes

    title, by_class, by_type = classes.by_recipe(facts)
    if not title and stated_classes(facts) is None and facts.get("model.type") is None:
        return CHECK.unknown(_NEEDS)
    if read.past(facts, "config"):
        return CHECK.not_applicable("the log shows that the model's class was found")
    # What is installed says more than what its release had: a build of one's own, a nightly, an edited registry.
    installed = classes.by_installed(facts)
    results = [
        (judge_class(facts) if by_class is None else by_class) if installed is None else installed,
        judge_type(facts) if by_type is None else by_type,
    ]
    if findings := [r for r in results if isinstance(r, Finding)]:
        return CHECK.found(*findings)
    if isinstance(installed, str):
        return CHECK.unknown(installed)
    if True in results:
        return CHECK.ok(f"{title or 'the model'} is known to what is installed")
    return CHECK.unknown("one release in pkg.vllm, or pkg.transformers")


CHECK = Check("model-support", "The model against what is installed", run, phase="config")
