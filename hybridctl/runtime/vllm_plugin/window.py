"""Which vLLM the plugin works with, and one line for each kind of version that it does not."""

from __future__ import annotations

from packaging.version import Version

from hybridctl.errors import UsageError

LOWEST, BELOW = Version("0.30"), Version("0.34.dev0")
WINDOW = "the hybridctl plugin works with vLLM >=0.30,<0.34"
# (below this release, what is missing there); read from the wheels of 0.6.3, 0.22.1, 0.23.0, 0.26.0, 0.28.0 and 0.29.0.
MISSING = (
    (Version("0.8"), "its engine (V0) takes no attention backend and no cache spec from a plugin"),
    (Version("0.23"), "it has no registry of cache specs, in which freed pages and linear states are declared"),
    (LOWEST, "its attention metadata lose the row lengths from which a step is planned (seq_lens_cpu_upper_bound)"),
)


class VersionError(UsageError):
    """A vLLM outside the window."""


def check_version(text: str) -> None:
    """Raise :class:`VersionError` unless ``text`` (``vllm.__version__``) lies in >=0.30,<0.34."""
    version = Version(text)
    release = Version(version.base_version)
    if release >= LOWEST and version < BELOW:
        return
    for below, why in MISSING:
        if release < below:
            hint = "pip install 'vllm>=0.30,<0.34' (hybridctl doctor says what stands against it), or serve with --no-hybrid"
            raise VersionError(f"vLLM {text} is too old: {why}; {WINDOW}", hint)
    hint = "pip install --upgrade hybridctl (a newer one may know it), or serve with --no-hybrid"
    raise VersionError(f"vLLM {text} is too new: the plugin was not tested with it; {WINDOW}", hint)
