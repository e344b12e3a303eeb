"""Which vLLM the plugin works with. One line for each kind of version outside the window."""

from __future__ import annotations

from packaging.version import Version

from hybridctl.errors import UsageError

LOWEST, BELOW = Version("0.30"), Version("0.34.dev0")


class VersionError(UsageError):
    """A vLLM outside the window."""


def check_version(text: str) -> None:
    """Raise :class:`VersionError` unless ``text`` (``vllm.__version__``) lies in >=0.30,<0.34."""
    version = Version(text)
    release = Version(version.base_version)
    if release >= LOWEST and version < BELOW:
        return
    window = "the hybridctl plugin works with vLLM >=0.30,<0.34"
    if release < Version("0.11"):
        why = "its old engine has none of the registries that the plugin needs"
    elif release < LOWEST:
        why = "its interfaces of attention backends and cache specs are those from before 0.30"
    else:
        why = "it is newer than what the plugin was tested with"
    raise VersionError(f"vLLM {text}: {why}; {window}", "serve with --no-hybrid, or install a vLLM in the window")
