"""The stored launch line in the installed vLLM's own parser: every value arrives as it was meant."""

from __future__ import annotations

import importlib.util
import json
import subprocess
import sys
from pathlib import Path

import pytest

from hybridctl.model.families import load_families
from hybridctl.overlays import Loading, NameRule, StoredFlag
from hybridctl.patchers.launch_files import CONFIG, config_yml
from hybridctl.patchers.recipe_flags import recipe

PARSE = """
import json, sys
try:
    from vllm.entrypoints.launchers.cli_args import make_arg_parser
except ImportError:  # releases before 0.32
    from vllm.entrypoints.openai.cli_args import make_arg_parser
from vllm.utils.argparse_utils import FlexibleArgumentParser

parser = FlexibleArgumentParser()
serve = parser.add_subparsers().add_parser("serve")
make_arg_parser(serve)
answers = []
for path in sys.argv[1:]:
    found = parser.parse_args(["serve", "--config", path])
    answers.append({name: value for name, value in vars(found).items() if isinstance(value, (str, int, float, list, dict, bool))})
print("ANSWER " + json.dumps(answers, default=str))
"""


@pytest.mark.vllm
@pytest.mark.slow
@pytest.mark.skipif(importlib.util.find_spec("vllm") is None, reason="needs vLLM")
def test_vllm_takes_every_recipe(tmp_path: Path) -> None:
    given = (
        StoredFlag(name="--max-model-len", values=["4096"], reason="as you: # gave it"),
        StoredFlag(name="--speculative-config", values=['{"method":"mtp","num_speculative_tokens":2}'], reason="x"),
        StoredFlag(name="--no-enable-prefix-caching", values=[], reason="x"),
    )
    load = Loading(architecture="XForCausalLM", names=[NameRule(id="x", kind="prefix", old="a.", new="")])
    paths, expected = [], []
    for family in (None, *load_families()):
        made = recipe(family, given, "0.32.0")
        if family is not None and not made.flags and not made.others:
            continue
        folder = tmp_path / (family.id if family else "none")
        folder.mkdir()
        flags = [*given, *made.flags]
        (folder / CONFIG).write_text(config_yml(folder, "a/b: c", flags, None if family else load, made.others))
        paths.append(str(folder / CONFIG))
        expected.append(flags)
    done = subprocess.run(
        [sys.executable, "-c", PARSE, *paths], capture_output=True, text=True, check=False, timeout=300, cwd=tmp_path
    )
    lines = [line for line in done.stdout.splitlines() if line.startswith("ANSWER ")]
    assert lines, done.stdout[-2000:] + done.stderr[-2000:]
    answers = json.loads(lines[0].removeprefix("ANSWER "))
    assert len(answers) == len(paths) > 5
    assert answers[0]["hf_overrides"] == {"architectures": ["XForCausalLM"]}
    for path, flags, found in zip(paths, expected, answers, strict=True):
        assert found["model"] == str(Path(path).parent)
        assert found["served_model_name"] in ("a/b: c", ["a/b: c"])
        assert found["max_model_len"] == 4096
        assert found["speculative_config"] == {"method": "mtp", "num_speculative_tokens": 2}
        assert found["enable_prefix_caching"] is False
        for flag in flags[len(given) :]:
            name = flag.name.lstrip("-").replace("-", "_")
            value = found[name.removeprefix("no_")]
            assert value is (not name.startswith("no_")) if not flag.values else str(value) == flag.values[0], flag
