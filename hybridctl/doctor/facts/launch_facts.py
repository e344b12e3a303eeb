"""States what an engine's own arguments say, wherever they stand: in a shell line, after an image, or in YAML."""

from __future__ import annotations

import re
from collections.abc import Callable

from hybridctl.doctor.facts.command_docker import Run
from hybridctl.doctor.facts.draft import Draft
from hybridctl.doctor.facts.flags import Given, canonical_name, looks_like_flag, read_flags, state_flags
from hybridctl.doctor.facts.launchers import Launch, find_engine, image_engine, shell_script
from hybridctl.doctor.facts.names import is_placeholder, plausible_model
from hybridctl.doctor.facts.shell import Word, words_inside
from hybridctl.patterns import late

Resolve = Callable[[str], str]
# "$EXTRA_ARGS", "$@", "..." in place of arguments: there is more than can be seen.
_HIDDEN = late(
    r"\$@|\$\*|\$\{?[A-Za-z_]\w*(?:@|\[@\])?\}?|\.{3,}|…|\[(?:other |more )?(?:args|options|flags)\]|<args>", re.I
)
_MODEL_FLAGS = ("model", "hf-repo", "model-id")


def state_launch(launch: Launch, words: list[Word], form: str, draft: Draft, resolve: Resolve) -> bool:
    """State a launch found in ``words``; ``False``, and nothing said, when it is only a mention in prose."""
    arguments = words[launch.at :]
    given, rest = read_flags(arguments, launch.engine)
    model = _positional(rest, resolve) if launch.positional_model else None
    first = rest[0].value if rest else None
    is_mention = (
        launch.form == "serve" and launch.positional_model and not given and model is None and first is not None
    )
    if is_mention and not (is_placeholder(str(first)) or _HIDDEN.fullmatch(str(first))):
        return False
    head = words[launch.start]
    until = words[launch.at - 1]
    draft.say("engine", launch.engine, head.start, until.end)
    draft.say("command.form", form, head.start, until.end)
    if launch.module is not None:
        draft.say("command.module", launch.module.value, launch.module.start, launch.module.end)
    _state_arguments(given, rest, model, launch.engine, draft, resolve)
    return True


def state_contained(run: Run, form: str, draft: Draft, resolve: Resolve) -> bool:
    """State what runs in a container: its entry point and arguments, or the arguments that its image's own entry point gets."""
    words = ([run.entrypoint] if run.entrypoint else []) + run.arguments
    script = shell_script(words)
    for inner in words_inside(script, draft.text) if script else [words]:
        launch = find_engine(inner)
        if launch and state_launch(launch, inner, form, draft, resolve):
            return True
    engine = image_engine(run.image.value) if run.image else None
    if run.image is None or engine is None:
        return False
    draft.say("engine", engine, run.image.start, run.image.end)
    arguments = run.arguments
    if arguments and arguments[0].value == "serve":
        arguments = arguments[1:]
    visible = not arguments or looks_like_flag(arguments[0].value) or plausible_model(arguments[0].value)
    if run.entrypoint is not None or script is not None or not visible:
        return False
    draft.say("command.form", form, run.image.start, run.image.end)
    given, rest = read_flags(arguments, engine)
    _state_arguments(given, rest, _positional(rest, resolve), engine, draft, resolve)
    return True


def _positional(rest: list[Word], resolve: Resolve) -> Word | None:
    for word in rest[:1]:
        if plausible_model(resolve(word.value)):
            return word
    return None


def _state_arguments(
    given: list[Given], rest: list[Word], model: Word | None, engine: str, draft: Draft, resolve: Resolve
) -> None:
    state_flags(given, engine, draft, resolve)
    named = [g for g in given if canonical_name(g.name, g.dashes, engine) in _MODEL_FLAGS and g.value]
    if named:
        last = named[-1]
        value = resolve(last.value or "")
        if plausible_model(value):
            draft.say("model.name", value, last.start, last.end)
    elif model is not None:
        draft.say("model.name", resolve(model.value), model.start, model.end)
    hidden = next(
        (w for w in rest if w is not model and _HIDDEN.fullmatch(resolve(w.value)) and not _is_model(w)), None
    )
    files = next((g for g in given if g.name in ("config", "env-file")), None)
    if hidden is not None:
        draft.say("command.partial", True, hidden.start, hidden.end)
    elif files is not None:
        draft.say("command.partial", True, files.start, files.end)


def _is_model(word: Word) -> bool:
    return "MODEL" in word.value.upper()
