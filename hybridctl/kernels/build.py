"""CUDA C++ to PTX, and PTX to machine code of one chip: with nvcc, or with NVRTC where no toolkit is there. Never with fast-math.

Results are kept by content: sources, macros, architecture and compiler make the name of the folder. A folder appears whole or not
at all, so two builds at once do no harm.
"""

from __future__ import annotations

import hashlib
import json
import os
import re
import shutil
import subprocess
import tempfile
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path

from hybridctl.data import cache_dir
from hybridctl.errors import HybridctlError, UsageError
from hybridctl.kernels import OLDEST, nvrtc, ptx
from hybridctl.kernels.linear_attention.variant import Variant

SOURCES = Path(__file__).parent / "linear_attention"
MAIN = "linear_attention.cu"
SECONDS = 600
# What NVIDIA's compilers understand as fast-math, whole or in part.
_FAST = re.compile(r"--?use[_-]fast[_-]math|--?ftz[= ]true|--?prec-(?:div|sqrt)[= ]false|-(?:ffast-math|Ofast)")
_FLAG_VARIABLES = ("NVCC_PREPEND_FLAGS", "NVCC_APPEND_FLAGS", "NVCCFLAGS")
_ARCH = re.compile(r"sm_(\d{2,3})([af]?)")


@dataclass(frozen=True)
class Compiler:
    """``kind``: nvcc or nvrtc; ``path``: the program or the library; ``version``: such as 13.0."""

    kind: str
    path: str
    version: str


@dataclass(frozen=True)
class Built:
    """One kept build. ``cubin`` is None where no assembler was there: the driver then compiles the PTX when it is loaded."""

    folder: Path
    arch: str
    compiler: Compiler
    variant: Variant
    fresh: bool

    @property
    def ptx(self) -> Path:
        return self.folder / "linear_attention.ptx"

    @property
    def cubin(self) -> Path | None:
        path = self.folder / "linear_attention.cubin"
        return path if path.is_file() else None


def sources(folder: Path = SOURCES) -> dict[str, str]:
    """Text of the source and of what it includes, by name."""
    files = sorted([*folder.glob("*.cu"), *folder.glob("*.cuh")])
    return {file.name: file.read_text(encoding="utf-8") for file in files}


def find_compiler(environ: Mapping[str, str] = os.environ) -> Compiler:
    """nvcc of CUDA_HOME, of PATH or of /usr/local/cuda; else NVRTC, as torch's CUDA wheels bring it.

    Raises:
        HybridctlError: neither is there.
    """
    homes = [environ[name] for name in ("CUDA_HOME", "CUDA_PATH") if environ.get(name)]
    places = [str(Path(home) / "bin" / "nvcc") for home in homes]
    places += [found for found in (shutil.which("nvcc", path=environ.get("PATH")),) if found]
    places.append("/usr/local/cuda/bin/nvcc")
    for place in places:
        if os.access(place, os.X_OK) and (version := _nvcc_version(place)):
            return Compiler("nvcc", place, version)
    library = nvrtc.find()
    if library is not None:
        return Compiler("nvrtc", str(library), ".".join(map(str, nvrtc.version(library))))
    raise HybridctlError(
        "no compiler for CUDA: neither nvcc (CUDA_HOME, PATH, /usr/local/cuda) nor NVRTC (nvidia-cuda-nvrtc, which torch's "
        "CUDA wheels bring)",
        "python -m pip install nvidia-cuda-nvrtc",
    )


def _nvcc_version(path: str) -> str:
    try:
        done = subprocess.run([path, "--version"], capture_output=True, text=True, timeout=20, check=False)
    except (OSError, subprocess.TimeoutExpired):
        return ""
    found = re.search(r"release (\d+\.\d+)", done.stdout)
    return found[1] if found else ""


def refuse_fast_math(flags: Iterable[str] = (), environ: Mapping[str, str] = os.environ) -> None:
    """Raises UsageError if fast-math is asked for, in flags or in a variable that nvcc reads."""
    given = {"flag": " ".join(flags), **{name: environ.get(name, "") for name in _FLAG_VARIABLES}}
    for where, text in given.items():
        if found := _FAST.search(text):
            raise UsageError(
                f"{where}: {found[0]} is fast-math, with which division, square roots and small numbers come out wrong "
                "without an error; kernels are built without it",
                f"unset {where}" if where in _FLAG_VARIABLES else "hybridctl kernels build",
            )


def check_arch(arch: str) -> str:
    """``sm_80`` and newer. Raises UsageError for what is no architecture, or one without the instructions that are used."""
    found = _ARCH.fullmatch(arch)
    if not found:
        raise UsageError(f"{arch!r} is no architecture", "hybridctl kernels build --arch sm_90")
    if int(found[1]) < OLDEST:
        raise UsageError(
            f"{arch} has no tensor-core products of bfloat16: the kernels need sm_{OLDEST} or newer",
            "serve with flash attention on this GPU: hybridctl serve MODEL --no-hybrid",
        )
    return arch


def key(variant: Variant, arch: str, compiler: Compiler, flags: Iterable[str], texts: Mapping[str, str]) -> str:
    """Name of the kept build: everything that its content depends on."""
    what = [sorted(texts.items()), sorted(variant.macros().items()), arch, compiler.kind, compiler.version, list(flags)]
    return hashlib.sha256(json.dumps(what).encode()).hexdigest()[:32]


def build(
    variant: Variant,
    arch: str,
    *,
    compiler: Compiler | None = None,
    flags: tuple[str, ...] = (),
    cache: Path | None = None,
    environ: Mapping[str, str] = os.environ,
) -> Built:
    """Compile, or take what is kept.

    Args:
        flags: further ones for the compiler.
        cache: where builds are kept; else the cache directory of hybridctl.

    Raises:
        UsageError: fast-math was asked for, or the architecture can't run the kernels.
        HybridctlError: no compiler, an error of the compiler, or fast-math in the PTX all the same.
    """
    refuse_fast_math(flags, environ)
    check_arch(arch)
    chosen = compiler or find_compiler(environ)
    texts = sources()
    root = cache or cache_dir() / "kernels"
    folder = root / f"{arch}-{key(variant, arch, chosen, flags, texts)}"
    if (folder / "meta.json").is_file():
        return Built(folder, arch, chosen, variant, fresh=False)
    try:
        root.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(prefix=".build-", dir=root) as name:
            _compile(chosen, variant, arch, flags, texts, Path(name) / "new", environ)
            try:
                (Path(name) / "new").rename(folder)
            except OSError:
                if not (folder / "meta.json").is_file():  # somebody else built the same at the same time
                    raise
    except OSError as error:
        raise HybridctlError(f"can't keep a build in {root}: {error.strerror}", "HYBRIDCTL_HOME=DIR") from error
    return Built(folder, arch, chosen, variant, fresh=True)


def _compile(
    compiler: Compiler,
    variant: Variant,
    arch: str,
    flags: tuple[str, ...],
    texts: Mapping[str, str],
    folder: Path,
    environ: Mapping[str, str],
) -> None:
    folder.mkdir()
    defines = [f"-D{name}={value}" for name, value in variant.macros().items()]
    if compiler.kind == "nvcc":
        text, cubin, log = _with_nvcc(compiler, arch, [*defines, *flags], texts, folder, environ)
    else:
        text, cubin, log = nvrtc.compile_source(Path(compiler.path), texts, MAIN, arch, [*defines, *flags])
    if found := ptx.fast_math(text):
        first = found[0]
        raise HybridctlError(
            f"{len(found)} instructions of fast-math in the PTX, the first is {first.instruction} in line {first.line}: "
            "this compiler was told to by something that hybridctl does not see",
            "env | grep -i nvcc",
        )
    (folder / "linear_attention.ptx").write_text(text, encoding="utf-8")
    if cubin:
        (folder / "linear_attention.cubin").write_bytes(cubin)
    (folder / "build.log").write_text(log, encoding="utf-8")
    meta = {
        "schema_version": 1,
        "arch": arch,
        "macros": variant.macros(),
        "compiler": [compiler.kind, compiler.version],
        "ptx_isa": ptx.isa(text),
        "entries": ptx.entries(text),
        "cubin_bytes": len(cubin),
    }
    (folder / "meta.json").write_text(json.dumps(meta, indent=1) + "\n", encoding="utf-8")


def _with_nvcc(
    compiler: Compiler, arch: str, flags: list[str], texts: Mapping[str, str], folder: Path, environ: Mapping[str, str]
) -> tuple[str, bytes, str]:
    work = folder / "src"
    work.mkdir()
    for name, text in texts.items():
        (work / name).write_text(text, encoding="utf-8")
    kept = {**environ, "TMPDIR": str(folder)}
    out, cubin = folder / "out.ptx", folder / "out.cubin"
    log = _run(nvcc_line(compiler.path, arch, flags, str(work / MAIN), str(out)), kept)
    log += _run([compiler.path, "-cubin", f"-arch={arch}", "-Xptxas", "-v", "-o", str(cubin), str(out)], kept)
    text, code = out.read_text(encoding="utf-8"), cubin.read_bytes()
    for path in (out, cubin):
        path.unlink()
    shutil.rmtree(work)
    return text, code, log


def nvcc_line(nvcc: str, arch: str, flags: Iterable[str], source: str, out: str) -> list[str]:
    """The command that writes the PTX."""
    return [nvcc, "-std=c++17", "-ptx", f"-arch={arch}", *flags, "-o", out, source]


def _run(line: list[str], environ: Mapping[str, str]) -> str:
    try:
        done = subprocess.run(line, capture_output=True, text=True, timeout=SECONDS, check=False, env=dict(environ))
    except subprocess.TimeoutExpired as error:
        raise HybridctlError(f"{line[0]} did not end within {SECONDS} s", " ".join(line)) from error
    if done.returncode:
        said = next((x.strip() for x in done.stderr.splitlines() if "error" in x), done.stderr.strip()[-200:])
        raise HybridctlError(f"{line[0]} failed: {said[:300]}", " ".join(line))
    return done.stdout + done.stderr


def kept(cache: Path | None = None) -> list[tuple[Path, dict[str, object]]]:
    """Every kept build: its folder and what ``meta.json`` says. One that can't be read says ``{"problem": …}``."""
    root = cache or cache_dir() / "kernels"
    found: list[tuple[Path, dict[str, object]]] = []
    for file in sorted(root.glob("sm_*/meta.json")):
        try:
            document = json.loads(file.read_text(encoding="utf-8"))
        except (OSError, ValueError) as error:
            document = {"problem": str(error)}
        found.append((file.parent, document if isinstance(document, dict) else {"problem": "no JSON object"}))
    return found
