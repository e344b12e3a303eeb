"""Code beside a checkpoint: read as text, judged by what it imports."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hybridctl.doctor.checks import Context
from hybridctl.doctor.diagnose import Inputs, gather
from hybridctl.doctor.facts.model import Facts, Origin
from hybridctl.doctor.facts.model_code import MAX_BYTES, MAX_FILES, _imports, code_facts
from hybridctl.doctor.findings import Outcome
from hybridctl.doctor.knowledge import load
from tests.doctor.checks.making import check

CONFIG = (
    '{"architectures": ["HybridForCausalLM"], "model_type": "x", "auto_map": {"AutoModel": "modeling_hybrid.Hybrid"}}'
)


def judge(folder: Path, command: str | None = None) -> Outcome:
    facts, _ = gather(Inputs(model=str(folder), command=command), load(), [], [])
    return check("checkpoint-code").run(Context(facts))


def checkpoint(folder: Path, **files: str) -> Path:
    (folder / "config.json").write_text(CONFIG)
    for name, text in files.items():
        (folder / f"{name}.py").write_text(text)
    return folder


@pytest.mark.parametrize(
    "line",
    [
        "from vllm.hybrid import HybridAttentionDispatcher",
        "from vllm.hybrid.dispatcher import (",
        "    import vllm.hybrid as h",
        "from vllm import envs, hybrid",
        "from vllm import ( hybrid",
        "import vllm.hybrid.kernels",
    ],
)
def test_imports_of_what_no_release_has(tmp_path: Path, line: str) -> None:
    (found,) = judge(checkpoint(tmp_path, modeling_hybrid=f"import torch\n\n{line}\n")).findings
    assert found.id == "checkpoint-imports-vllm-hybrid"
    assert found.evidence[0].quote.startswith("modeling_hybrid.py:3: ")
    assert found.evidence[0].quote.endswith(line.strip())
    assert found.severity == "warning"


def test_the_configuration_is_read_in_every_start_that_trusts_it(tmp_path: Path) -> None:
    folder = checkpoint(tmp_path, configuration_hybrid="from vllm.hybrid import x\n")
    assert judge(folder).findings[0].severity == "warning"
    assert judge(folder, f"vllm serve {folder} --trust-remote-code").findings[0].severity == "error"


@pytest.mark.parametrize(
    "line",
    [
        "# from vllm.hybrid import x",
        "from lmcache.integration.vllm.hybrid import x",
        "from vllm.hybridity import x",
        "from vllm.model_executor.models import hybrid_model",
        "print('from vllm.hybrid import x')",
        "from my_vllm.hybrid import x",
    ],
)
def test_what_is_no_such_import(tmp_path: Path, line: str) -> None:
    outcome = judge(checkpoint(tmp_path, modeling_hybrid=f"{line}\n"))
    assert outcome.state == "ok"
    assert "modeling_hybrid.py" in outcome.detail


def test_the_cache_holds_links_to_blobs(tmp_path: Path) -> None:
    blob = tmp_path / "blob"
    blob.write_text("from vllm.hybrid import x")
    snapshot = tmp_path / "snapshot"
    snapshot.mkdir()
    checkpoint(snapshot)
    (snapshot / "modeling_hybrid.py").symlink_to(blob)
    assert judge(snapshot).state == "finding"


def test_without_the_files_nothing_is_known(tmp_path: Path) -> None:
    assert judge(checkpoint(tmp_path)).state == "unknown"
    (tmp_path / "config.json").write_text('{"architectures": ["LlamaForCausalLM"], "model_type": "llama"}')
    assert judge(tmp_path).state == "not-applicable"
    assert check("checkpoint-code").run(Context(Facts())).state == "unknown"
    named = Facts()
    named.add("model.architecture", ["X"], Origin("recipe", None, "x"))
    assert check("checkpoint-code").run(Context(named)).state == "unknown"


def test_hostile_folders(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "a.py")
    (tmp_path / "b.py").mkdir()
    (tmp_path / "c.py").symlink_to(tmp_path / "c.py")
    (tmp_path / "d.py").write_bytes(b"#" * (MAX_BYTES + 1))
    assert code_facts(tmp_path) == []
    assert code_facts(tmp_path / "nothing") == []
    (tmp_path / "e.py").write_bytes(b"\xff\xfe\nfrom vllm.\x1b[31mhybrid import x\nfrom vllm.hybrid import y\r\n")
    for i in range(2 * MAX_FILES):
        (tmp_path / f"f{i}.py").write_text("from vllm import a\n" * 3)
    facts = code_facts(tmp_path)
    assert facts[1].origin.quote == "e.py:3: from vllm.hybrid import y"
    assert len(facts) == 21


@given(st.text(alphabet="fromiptvl.hybd ,()\n\t#", max_size=200))
def test_any_text_is_taken(text: str) -> None:
    for at, line, modules in _imports(f"from vllm.{text}\n{text}"):
        assert at >= 1
        assert line
        assert all(m.startswith("vllm") for m in modules)
