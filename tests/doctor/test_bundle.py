"""What a report shows of a diagnosis: which facts, which thread, which launch line."""

from __future__ import annotations

import pytest

from hybridctl.doctor.bundle import fenced, first_words, make, may_show, upstream
from hybridctl.doctor.diagnose import Diagnosis, Inputs, diagnose
from hybridctl.doctor.facts.model import KEYS, Facts, Origin
from hybridctl.doctor.findings import Finding, Severity
from hybridctl.doctor.redact import Redactor


def finding(id: str, *source: str, severity: Severity = "error") -> Finding:
    return Finding(id, f"title of {id}", "config", severity, "cause", source=list(source))


def test_the_thread_of_the_first_finding_comes_first() -> None:
    page, thread = "https://docs.vllm.ai/x", "https://github.com/vllm-project/vllm/issues/1"
    found = upstream([finding("bare"), finding("a", page, thread), finding("b", "https://example.com")])
    assert found == {"url": thread, "thread": True, "finding": "a", "title": "title of a", "also": [page]}
    assert upstream([finding("a", page)]) == {
        "url": page,
        "thread": False,
        "finding": "a",
        "title": "title of a",
        "also": [],
    }
    assert first_words(found).startswith(f"This looks like {thread} (`title of a`): read it")
    assert "no upstream thread" in first_words(upstream([finding("a", page)]))
    assert first_words(None) == "Nothing that is known looks like this."
    assert upstream([finding("bare"), finding("remark", page, severity="info")]) is None  # a remark explains no fault
    assert upstream([finding("remark", page, severity="info")]) is not None
    assert upstream([]) is None


@pytest.mark.parametrize(
    ("key", "shown"),
    [
        ("pkg.vllm", True),
        ("driver.version", True),
        ("env.VLLM_USE_V1", True),
        ("env.NCCL_DEBUG", True),
        ("flag.max-model-len", True),
        ("env.MY_COMPANY", False),
        ("env.HOME", False),
        ("env.VLLM_API_KEY", False),
        ("env.VLLM_HOST_IP", False),
        ("flag.host", False),
        ("flag.data-parallel-address", False),
        ("report.said", False),
        ("process.pid", False),
        ("gpu.processes", False),
        ("vllm.architectures", False),
        ("no-such-key", False),
    ],
)
def test_only_what_is_on_the_list_is_shown(key: str, shown: bool) -> None:
    assert may_show(key) is shown


def test_the_lists_name_facts_that_there_are() -> None:
    from hybridctl.flags import read_table
    from hybridctl.globs import glob

    table = read_table("report.toml")
    families = [
        *KEYS,
        "flag.host",
        "flag.api-key",
        "flag.served-model-name",
        "flag.x-address",
        "flag.x-addr",
        "flag.x-ip",
    ]
    for pattern in [*table["facts"], *table["left_out"]]:
        known = any(glob(key, pattern) or pattern.startswith(key.removesuffix("*")) for key in families)
        assert known or pattern.startswith("env."), pattern
    for row in table["head"]:
        assert all(may_show(key) for key in row["facts"])


def made(**inputs: object) -> dict[str, object]:
    return make(diagnose(Inputs(**inputs)), [], Redactor()).document  # type: ignore[arg-type]


def test_the_launch_line_is_put_together_from_what_was_read() -> None:
    script = "export NOTE=buy-milk\ncd /home/weiwang\nvllm serve /home/weiwang/m -tp 2 --api-key abcdefgh12 --host 10.1.2.3\n"
    document = made(command=script)
    assert document["launch"] == "vllm serve ~/m -tp 2"
    docker = made(
        command="docker run -v /srv/secret:/x --gpus all vllm/vllm-openai:v0.32.0 --model Qwen/Qwen3-8B --max-model-len 99"
    )
    assert docker["launch"] == "(docker vllm/vllm-openai:v0.32.0) vllm serve --model Qwen/Qwen3-8B --max-model-len 99"
    module = made(command="python -m vllm.entrypoints.openai.api_server --model Qwen/Qwen3-8B")
    assert module["launch"] == "python -m vllm.entrypoints.openai.api_server --model Qwen/Qwen3-8B"
    assert made(env="vLLM Version : 0.32.0\n")["launch"] is None


def test_facts_are_told_without_the_lines_that_state_them() -> None:
    facts = Facts()
    facts.add("pkg.vllm", "0.32.0", Origin("env", 3, "vllm 0.32.0   # bought by Wei"))
    document = make(Diagnosis(facts, [], [], []), [], Redactor()).document
    assert document["facts"] == [{"key": "pkg.vllm", "value": "0.32.0", "source": "env", "line": 3}]
    assert "Wei" not in str(document)


def test_a_fence_is_longer_than_any_in_the_text() -> None:
    assert fenced("a ``` b\n`````")[0] == "``````"
    assert fenced("plain", "sh") == ["```sh", "plain", "```"]
