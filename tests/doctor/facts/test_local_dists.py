"""Distributions of a folder and the plugins that they declare."""

from __future__ import annotations

from pathlib import Path

from hybridctl.doctor.facts.local_dists import dists, entry_points, plugin_facts


def declare(site: Path, folder: str, text: str | bytes) -> None:
    (site / folder).mkdir(parents=True)
    (site / folder / "entry_points.txt").write_bytes(text if isinstance(text, bytes) else text.encode())


def test_names_and_versions(tmp_path: Path) -> None:
    for folder in ("Flash_Attn-2.8.3+cu12.dist-info", "old.egg-info", "x-1.0-py3.11.egg-info", "no-dist"):
        (tmp_path / folder).mkdir()
    assert [(d.name, d.version) for d in dists(tmp_path)] == [
        ("flash-attn", "2.8.3+cu12"),
        ("old", ""),
        ("x", "1.0-py3.11"),
    ]
    assert dists(tmp_path / "nothing") == []


def test_plugins_with_the_distribution_that_brings_them(tmp_path: Path) -> None:
    declare(tmp_path, "vllm-0.32.0.dist-info", "[vllm.general_plugins]\nlora = a:b\n[console_scripts]\nvllm = c:d\n")
    declare(
        tmp_path, "bart_plugin-1.0.dist-info", "[vllm.general_plugins]\nBart = x:y\n[vllm.platform_plugins]\nnpu=z:z\n"
    )
    declare(tmp_path, "other-1.dist-info", "[console_scripts]\nother = a:b\n")
    (fact,) = plugin_facts((str(tmp_path), str(tmp_path), "/nowhere"))
    assert fact.value == [
        "Bart (bart-plugin, general_plugins)",
        "npu (bart-plugin, platform_plugins)",
        "lora (vllm, general_plugins)",
    ]
    assert plugin_facts(("/nowhere",))[0].value == []


def test_broken_files_declare_nothing(tmp_path: Path) -> None:
    declare(tmp_path, "a-1.dist-info", "no section: vllm.general_plugins\n")
    declare(tmp_path, "b-1.dist-info", b"\xff\xfe[vllm.general_plugins]\n\xff = a:b\n")
    declare(tmp_path, "c-1.dist-info", "[vllm.general_plugins\nx = y\n")
    declare(tmp_path, "d-1.dist-info", "[vllm.general_plugins]\nd\x1b[31m = y\n%(home)s = z\n")
    names = [p.name for p in entry_points((str(tmp_path),), "vllm.")]
    assert names == ["d\x1b[31m", "%(home)s"]
    assert "\x1b" not in str(plugin_facts((str(tmp_path),))[0].value)
