"""Does LD_LIBRARY_PATH put CUDA libraries before torch's own that are older than those, or of another kind?"""

from __future__ import annotations

from hybridctl.doctor.checks import Check, Context
from hybridctl.doctor.checks import _reading as read
from hybridctl.doctor.checks._local import is_for_gpu, runs_in_image
from hybridctl.doctor.facts.model import Facts
from hybridctl.doctor.findings import Fix, Outcome
from hybridctl.patterns import late
from hybridctl.versions import parse_version

_FILE = late(r"lib(\w+)\.so\.(\d+(?:\.\d+)*)$")
# File name → the wheel that brings it, before the CUDA major.
_WHEELS = {
    "nvJitLink": "nvidia-nvjitlink", "cudart": "nvidia-cuda-runtime", "cublas": "nvidia-cublas", "cublasLt": "nvidia-cublas",
    "cusparse": "nvidia-cusparse", "cudnn": "nvidia-cudnn", "nccl": "nvidia-nccl", "nvrtc": "nvidia-cuda-nvrtc",
    "cufft": "nvidia-cufft", "cusolver": "nvidia-cusolver",
}  # fmt: skip
_SOURCES = [
    "https://github.com/pytorch/pytorch/issues/152783",
    "https://github.com/vllm-project/vllm/issues/10300",
    "https://github.com/pytorch/pytorch/issues/80637",
]


def _wheel(facts: Facts, library: str, major: int) -> read.Reading | None:
    """What torch brought: since CUDA 13 most of these wheels carry no major in their names."""
    base = _WHEELS.get(library)
    names = (f"{base}-cu{major}", base) if base else ()
    return next((found for name in names if (found := read.version(facts, f"pkg.{name}"))), None)


def run(context: Context) -> Outcome:
    facts = context.facts
    path, torch = facts.get("cuda.shadowing"), read.version(facts, "torch.cuda")
    for_gpu = is_for_gpu(facts)
    if for_gpu is False:
        return CHECK.not_applicable("this torch is not built for CUDA")
    if runs_in_image(facts):
        return CHECK.not_applicable("the image has variables of its own")
    if for_gpu is None or torch is None or torch.versions.lowest is None:
        return CHECK.unknown("torch.cuda")
    if path is None or not isinstance(path.value, list):
        if facts.get("env.LD_LIBRARY_PATH") is None and facts.get("platform.ports"):  # this machine was looked at
            return CHECK.ok("LD_LIBRARY_PATH is not set")
        return CHECK.unknown("cuda.shadowing of this machine")
    if read.past(facts, "import"):
        return CHECK.not_applicable("the log shows that vLLM was imported")
    older: list[str] = []
    wheels = []
    for place in path.value:
        name = _FILE.search(place)
        wheel = _wheel(facts, name[1], torch.versions.lowest.major) if name else None
        if name is None or wheel is None:
            continue
        there, own = parse_version(name[2]), wheel.versions.lowest
        # Fewer numbers than a release has (libcudart.so.12) say only the interface; of another one torch takes no notice.
        if there is None or there.lowest is None or own is None or name[2].count(".") < 2:
            continue
        if there.lowest.major == own.major and there.lowest < own:
            older.append(place)
            wheels.append(wheel)
    if not older:
        return CHECK.ok("no older CUDA library in LD_LIBRARY_PATH")
    model = facts.value("model.name") or "MODEL"
    return CHECK.found(
        read.finding(
            "library-path-before-torch",
            "LD_LIBRARY_PATH puts older CUDA libraries before those of torch",
            "torch-abi",
            "warning",
            "The loader prefers LD_LIBRARY_PATH to the libraries that torch's wheels bring. An older one lacks names that the "
            f"others need: the import ends in 'undefined symbol' (as with __nvJitLink…), or NCCL and cuDNN behave as their old "
            f"release. Older: {', '.join(older[:4])}.",
            [read.quote(path, "none older than the wheels"), *(w.evidence() for w in wheels[:4]), torch.evidence()],
            [
                Fix("Unset it for the server.", f"env -u LD_LIBRARY_PATH vllm serve {model}"),
                Fix("Or take only these folders out of it, in ~/.bashrc, the unit file or the module that sets it."),
            ],
            _SOURCES,
            "maintainer-confirmed",
            explains=["nvjitlink-shadowed", "cublas-undefined-symbol"],
        )
    )


CHECK = Check("library-path", "LD_LIBRARY_PATH against torch's libraries", run, phase="import")
