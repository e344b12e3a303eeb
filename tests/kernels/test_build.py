"""Building: what is refused before a compiler starts, what is kept, and what the compilers write."""

from __future__ import annotations

import json
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from hybridctl.errors import HybridctlError, UsageError
from hybridctl.kernels import build as building
from hybridctl.kernels import nvrtc, ptx
from hybridctl.kernels.linear_attention.variant import Variant, room_kib

ARCHS = ("sm_80", "sm_86", "sm_89", "sm_90", "sm_120")
FORMS = {
    "bfloat16": {},
    "float16": {"dtype": "float16"},
    "projected": {"projected": True, "feature_size": 64},
    "values of 96": {"value_size": 96},
    "heads of 64": {"head_size": 64, "feature_size": 64, "value_size": 64, "group": 1},
}
ENTRIES = tuple(f"linear_attention_{name}" for name in ("state", "scan", "reduce", "forward", "decode", "entropy"))


@pytest.fixture(scope="module")
def nvcc() -> building.Compiler:
    try:
        compiler = building.find_compiler()
    except HybridctlError:
        pytest.skip("no nvcc on this machine")
    if compiler.kind != "nvcc":
        pytest.skip("no nvcc on this machine")
    return compiler


def fake_nvcc(folder: Path, ptx_line: str = "ret;", code: int = 0) -> building.Compiler:
    """A program that is called as nvcc is, counts its calls, and writes one line of PTX."""
    folder.mkdir(parents=True, exist_ok=True)
    program = folder / "nvcc"
    program.write_text(
        f"#!{sys.executable}\n"
        "import pathlib, sys\n"
        "if '--version' in sys.argv: print('Cuda compilation tools, release 13.0, V13.0.88'); raise SystemExit\n"
        f"with open({str(folder / 'calls')!r}, 'a') as calls: calls.write(' '.join(sys.argv[1:]) + '\\n')\n"
        f"if {code}: print('x.cu(3): error: no such thing', file=sys.stderr); raise SystemExit({code})\n"
        "out = sys.argv[sys.argv.index('-o') + 1]\n"
        f"pathlib.Path(out).write_text('.version 9.0\\n.target sm_90\\n{ptx_line}\\n')\n"
    )
    program.chmod(0o755)
    return building.Compiler("nvcc", str(program), "13.0")


@pytest.mark.parametrize("flag", ["--use_fast_math", "-use_fast_math", "--ftz=true", "-prec-div=false", "-ffast-math"])
def test_fast_math_is_refused_as_a_flag(flag: str) -> None:
    with pytest.raises(UsageError, match=r"fast-math"):
        building.build(Variant(), "sm_90", flags=("-lineinfo", flag), environ={})


@pytest.mark.parametrize("variable", ["NVCC_APPEND_FLAGS", "NVCC_PREPEND_FLAGS"])
def test_fast_math_is_refused_in_the_environment(variable: str) -> None:
    with pytest.raises(UsageError, match=variable) as raised:
        building.build(Variant(), "sm_90", environ={variable: "-O3 --use_fast_math"})
    assert raised.value.hint == f"unset {variable}"


def test_fast_math_that_comes_all_the_same_is_caught_in_the_ptx(tmp_path: Path) -> None:
    compiler = fake_nvcc(tmp_path / "bin", "div.approx.ftz.f32 %f1, %f2, %f3;")
    with pytest.raises(HybridctlError, match=r"div\.approx\.ftz\.f32 in line 3"):
        building.build(Variant(), "sm_90", compiler=compiler, cache=tmp_path / "kept", environ={})
    assert building.kept(tmp_path / "kept") == []


@pytest.mark.parametrize(
    ("arch", "why"), [("sm_75", "sm_80 or newer"), ("gfx942", "no architecture"), ("90", "no arch")]
)
def test_architectures_that_cannot_run_them(arch: str, why: str) -> None:
    with pytest.raises(UsageError, match=why):
        building.build(Variant(), arch, environ={})


def test_a_build_is_kept_and_taken_again(tmp_path: Path) -> None:
    compiler = fake_nvcc(tmp_path / "bin")
    first = building.build(Variant(), "sm_90", compiler=compiler, cache=tmp_path / "kept", environ={})
    second = building.build(Variant(), "sm_90", compiler=compiler, cache=tmp_path / "kept", environ={})
    other = building.build(Variant(group=8), "sm_90", compiler=compiler, cache=tmp_path / "kept", environ={})
    assert (first.fresh, second.fresh, other.fresh) == (True, False, True)
    assert first.folder == second.folder != other.folder
    assert first.ptx.read_text().startswith(".version 9.0")
    assert len((tmp_path / "bin" / "calls").read_text().splitlines()) == 4  # two steps for each of two builds
    assert {row["arch"] for _, row in building.kept(tmp_path / "kept")} == {"sm_90"}


def test_two_at_once_leave_one_whole_build(tmp_path: Path) -> None:
    compiler = fake_nvcc(tmp_path / "bin")
    with ThreadPoolExecutor(4) as pool:
        built = list(
            pool.map(
                lambda _: building.build(Variant(), "sm_90", compiler=compiler, cache=tmp_path / "kept", environ={}),
                range(4),
            )
        )
    assert len({b.folder for b in built}) == 1
    assert [p.name for p in (tmp_path / "kept").iterdir()] == [built[0].folder.name]
    assert json.loads((built[0].folder / "meta.json").read_text())["arch"] == "sm_90"


def test_a_compiler_that_fails_leaves_nothing(tmp_path: Path) -> None:
    compiler = fake_nvcc(tmp_path / "bin", code=2)
    with pytest.raises(HybridctlError, match=r"x\.cu\(3\): error: no such thing"):
        building.build(Variant(), "sm_90", compiler=compiler, cache=tmp_path / "kept", environ={})
    assert list((tmp_path / "kept").iterdir()) == []


def test_no_compiler(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(building.os, "access", lambda *_: False)
    monkeypatch.setattr(nvrtc, "find", lambda: None)
    with pytest.raises(HybridctlError, match="neither nvcc") as raised:
        building.find_compiler({"PATH": ""})
    assert "nvidia-cuda-nvrtc" in raised.value.hint


def macros_agree(variant: Variant, nvcc: building.Compiler, folder: Path) -> None:
    told = {
        "SHARED_STATE": variant.shared_state,
        "SHARED_FORWARD": variant.shared_forward,
        "DECODE_SHARED": variant.shared_decode,
        "ENTROPY_SHARED": variant.shared_entropy,
        "ENTROPY_THREADS": variant.entropy_threads,
        "THREADS": variant.threads,
        "WORK": variant.work_floats,
        "DVT": variant.value_tile,
    }
    lines = [f'#include "{building.SOURCES}/linear_attention.cu"']
    lines += [f'static_assert({name} == {value}, "{name}");' for name, value in told.items()]
    (folder / "check.cu").write_text("\n".join(lines))
    defines = [f"-D{name}={value}" for name, value in variant.macros().items()]
    line = building.nvcc_line(nvcc.path, "sm_90", defines, str(folder / "check.cu"), str(folder / "check.ptx"))
    done = subprocess.run(line, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr[-2000:]


@pytest.mark.slow
@pytest.mark.parametrize("form", FORMS)
def test_python_and_source_agree_on_what_a_launch_needs(form: str, nvcc: building.Compiler, tmp_path: Path) -> None:
    macros_agree(Variant(**FORMS[form]), nvcc, tmp_path)


@pytest.mark.slow
@pytest.mark.parametrize("arch", ARCHS)
def test_nvcc_builds_for_every_architecture(arch: str, nvcc: building.Compiler, tmp_path: Path) -> None:
    room = room_kib(arch)
    form = FORMS[list(FORMS)[ARCHS.index(arch)]]
    built = building.build(Variant(**form, room_kib=room), arch, compiler=nvcc, cache=tmp_path)
    text = built.ptx.read_text()
    assert ptx.fast_math(text) == []
    assert ptx.target(text) == arch
    assert set(ptx.entries(text)) == set(ENTRIES)
    assert built.variant.shared_forward <= room * 1024
    # The product of matrices is done by the tensor cores, in the kernel that needs it most.
    assert "mma.sync" in text.split(".entry linear_attention_forward")[1].split(".entry")[0]
    assert built.cubin is not None
    assert built.cubin.read_bytes()[:4] == b"\x7fELF"


@pytest.mark.slow
@pytest.mark.parametrize("form", FORMS)
def test_the_scan_has_power(form: str, nvcc: building.Compiler, tmp_path: Path) -> None:
    """Compiled with fast-math outside of the tool, every kernel with arithmetic in it is caught."""
    defines = [f"-D{name}={value}" for name, value in Variant(**FORMS[form]).macros().items()]
    source = str(building.SOURCES / building.MAIN)
    line = building.nvcc_line(nvcc.path, "sm_80", [*defines, "--use_fast_math"], source, str(tmp_path / "fast.ptx"))
    subprocess.run(line, check=True, capture_output=True)
    parts = (tmp_path / "fast.ptx").read_text().split(".entry ")[1:]
    caught = {part.split("(")[0].strip() for part in parts if ptx.fast_math(part)}
    # The other one only adds sums up: two of them have nothing but additions, which fast-math flushes as well.
    assert caught == set(ENTRIES)


@pytest.mark.slow
@pytest.mark.network
def test_nvrtc_builds_without_a_toolkit(tmp_path: Path) -> None:
    line = [sys.executable, "-m", "pip", "install", "-q", "--no-deps", "--target", str(tmp_path / "site")]
    subprocess.run([*line, "nvidia-cuda-nvrtc"], check=True)
    library = nvrtc.find([str(tmp_path / "site")])
    assert library is not None
    compiler = building.Compiler("nvrtc", str(library), ".".join(map(str, nvrtc.version(library))))
    for arch in ARCHS:
        variant = Variant(room_kib=room_kib(arch))
        built = building.build(variant, arch, compiler=compiler, cache=tmp_path / "kept", environ={"PATH": ""})
        text = built.ptx.read_text()
        assert (ptx.target(text), ptx.fast_math(text), set(ptx.entries(text))) == (arch, [], set(ENTRIES))
        assert built.cubin is not None
    with pytest.raises(HybridctlError, match="error"):
        nvrtc.compile_source(library, {"a.cu": "int x = ;"}, "a.cu", "sm_90", [])
