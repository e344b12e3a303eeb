"""The folder that models are downloaded to: on which file system it lies, and how much room there is."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from hybridctl.doctor.facts.local_machine import Machine
from hybridctl.doctor.facts.local_read import local_fact
from hybridctl.doctor.facts.model import Fact
from hybridctl.doctor.findings import Unknown
from hybridctl.patterns import late

_REMOTE = late(r"9p|drvfs|nfs|cifs|smb|fuse\.|lustre|gpfs|ceph|beegfs|afs|gluster|virtiofs")
_OCTAL = late(r"\\([0-7]{3})")
_WINDOWS_DRIVE = late(r"aname=drvfs|path=[A-Za-z]:|^[A-Za-z]:\\")
_MAX_LINKS = 40  # as the kernel follows
_MAX_TABLE = 1 << 20


@dataclass(frozen=True, slots=True)
class Mount:
    """A mounted file system; ``kind`` is drvfs for a Windows drive, whatever carries it."""

    point: str
    kind: str
    line: str

    @property
    def remote(self) -> bool:
        """Whether a look at it may hang."""
        return _REMOTE.match(self.kind) is not None


def hub_home(machine: Machine) -> str | None:
    """Folder of the hub's own files, as huggingface_hub chooses it; ``None`` without any home."""
    if stated := machine.environ.get("HF_HOME"):
        return _expanded(stated, machine)
    base = machine.environ.get("XDG_CACHE_HOME") or (machine.join(machine.home(), ".cache") if machine.home() else "")
    return machine.join(_expanded(base, machine), "huggingface") if base else None


def cache_folder(machine: Machine) -> tuple[str, str] | None:
    """``(folder, what says it)`` of the cache of models; ``None`` without any home."""
    for name in ("HF_HUB_CACHE", "HUGGINGFACE_HUB_CACHE"):
        if stated := machine.environ.get(name):
            return _expanded(stated, machine), name
    home = hub_home(machine)
    if home is None:
        return None
    return machine.join(home, "hub"), "HF_HOME" if machine.environ.get("HF_HOME") else "the default place"


def _expanded(path: str, machine: Machine) -> str:
    return machine.home() + path[1:] if path.startswith("~") and machine.home() else path


def disk_facts(machine: Machine) -> Iterable[Fact | Unknown]:
    """Folder, file system and room of the cache. The mount table is asked before the disk, which may hang."""
    found = cache_folder(machine)
    if found is None:
        yield Unknown("hub-cache", "HOME or HF_HOME")
        return
    folder, says = found
    yield local_fact("disk.cache", folder, f"{says}: {folder}")
    mounts = read_mounts(machine)
    reached, mount = _reach(machine, folder, mounts)
    if mount is not None:
        yield local_fact("disk.cache_fs", mount.kind, mount.line)
    space = machine.space(machine.path(_existing(machine, reached)))
    if space is not None:
        yield local_fact("disk.cache_free_gib", round(space[1] / 1024**3, 1), f"{folder}: {space[1]} bytes free")


def read_mounts(machine: Machine) -> list[Mount]:
    """Everything that is mounted, as the process sees it; the mount of the longest path counts."""
    mounts = []
    for line in machine.head(f"{machine.proc}/mountinfo", _MAX_TABLE).splitlines():
        fields, _, rest = line.partition(" - ")
        parts, tail = fields.split(), rest.split()
        if len(parts) < 5 or len(tail) < 2:
            continue
        point, source = (_OCTAL.sub(lambda m: chr(int(m[1], 8)), text) for text in (parts[4], tail[1]))
        options = tail[2] if len(tail) > 2 else ""
        kind = "drvfs" if _WINDOWS_DRIVE.search(options) or _WINDOWS_DRIVE.search(source) else tail[0]
        mounts.append(Mount(point, kind, f"{source} on {point} type {tail[0]}"))
    return mounts


def _mount_of(path: str, mounts: list[Mount]) -> Mount | None:
    around = [m for m in mounts if path == m.point or path.startswith(m.point.rstrip("/") + "/")]
    return max(
        reversed(around), key=lambda m: len(m.point), default=None
    )  # of two on one point the later hides the other


def _reach(machine: Machine, path: str, mounts: list[Mount]) -> tuple[str, Mount | None]:
    """Where a path leads with its links followed, and what is mounted there. What lies on a remote mount is not touched."""
    if machine.windows:
        return path, None
    todo = [part for part in reversed(path.split("/")) if part]
    at, links = "", 0
    while todo:
        part = todo.pop()
        if part in (".", ".."):
            at = at.rpartition("/")[0] if part == ".." else at
            continue
        step = f"{at}/{part}"
        mount = _mount_of(step, mounts)
        if mount is not None and mount.remote:
            return "/".join([step, *reversed(todo)]), mount
        target = machine.link(step)
        if target is None or links >= _MAX_LINKS:
            at = step
            continue
        links += 1
        at = "" if target.startswith("/") else at
        todo += [part for part in reversed(target.split("/")) if part]
    return at, _mount_of(at, mounts)


def _existing(machine: Machine, path: str) -> str:
    """The folder, or the one above it that is there: the cache is made at the first download."""
    separator = "\\" if machine.windows else "/"
    while path.rstrip(separator) and not machine.exists(path):
        shorter = path.rstrip(separator).rpartition(separator)[0]
        if shorter == path:
            break
        path = shorter
    return path or separator
