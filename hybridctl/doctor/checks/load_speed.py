"""Does the start take long, and what of the facts explains it? Speaks only where the report says that it does."""

from __future__ import annotations

import re

from hybridctl.doctor.checks import Check, Context
from hybridctl.doctor.checks import _reading as read
from hybridctl.doctor.checks import _speed as speed
from hybridctl.doctor.facts.model import Fact, Facts
from hybridctl.doctor.findings import Finding, Fix, Outcome
from hybridctl.patterns import late

_REMOTE_WORDS = late(
    r"\b(?:NFS|EFS|SMB|CIFS|S3|GCS|BlobFuse|gcsfuse|Ceph|Lustre|GPFS|JuiceFS|GlusterFS|"
    r"network (?:drive|storage|disk|volume|mount)|HDD|"
    r"spinning)\b",
    re.IGNORECASE,
)
_REMOTE_PATH = late(
    r"/(?:nfs\w*|efs|gpfs|lustre|beegfs|ceph|bucket|s3|gcs|juicefs|smb|cifs|gluster\w*)(?:/|$)", re.IGNORECASE
)
_COMPILE = late(r"compil|warm-?up|cold start|every restart|graph capture|captur", re.IGNORECASE)


def run(context: Context) -> Outcome:
    facts = context.facts
    said = speed.complaint(facts, "start")
    if said is None:
        return CHECK.unknown("a remark that says that the start takes long")
    remote = _remote(facts)
    if remote is not None:
        return CHECK.found(_network(said, remote))
    return CHECK.found(_compiling(said) if _COMPILE.search(str(said.value)) else _disk(said))


def _remote(facts: Facts) -> Fact | None:
    for key in ("model.name", "flag.model", "flag.download-dir", "env.HF_HOME", "command.mounts"):
        for fact in facts.all(key):
            if _REMOTE_PATH.search(str(fact.value)):
                return fact
    return next((f for f in facts.all("report.said") if _REMOTE_WORDS.search(str(f.value))), None)


def _make(id: str, title: str, cause: str, said: list[Fact], fix: list[Fix], source: list[str]) -> Finding:
    evidence = [read.quote(f) for f in dict.fromkeys(said)]
    return read.finding(id, title, "slow", "warning", cause, evidence, fix, source, "inferred")


def _network(said: Fact, remote: Fact) -> Finding:
    return _make(
        "weights-on-network-storage",
        "The weights are read page by page over a network",
        "safetensors files are mapped into memory by default: many small reads, each of which waits "
        "for the network. Every rank reads as "
        "well.",
        [said, remote],
        [
            Fix("Read whole files in order.", "vllm serve MODEL --safetensors-load-strategy eager"),
            Fix("Or copy the checkpoint to a local disk once.", "rsync -a --info=progress2 /nfs/MODEL /local/MODEL"),
        ],
        [
            "https://github.com/vllm-project/vllm/pull/24469",
            "https://github.com/safetensors/safetensors/issues/562",
            "https://github.com/modelplaneai/modelplane/issues/204",
        ],
    )


def _compiling(said: Fact) -> Finding:
    return _make(
        "compile-cache-not-kept",
        "Graphs and kernels are compiled anew at every start",
        "torch.compile, Triton and FlashInfer keep what they built under ~/.cache; in a container "
        "without a volume there it is lost with "
        "the container.",
        [said],
        [
            Fix(
                "Keep the caches in a volume.",
                "docker run --gpus all --ipc=host -v vllm-cache:/root/.cache -p 8000:8000 "
                "vllm/vllm-openai:latest --model MODEL",
            ),
            Fix("Fewer sizes to capture shorten the start as well.", "vllm serve MODEL --max-num-seqs 16"),
        ],
        [
            "https://github.com/vllm-project/vllm/pull/49782",
            "https://github.com/mitchross/talos-argocd-proxmox/pull/1848",
            "https://docs.vllm.ai/en/latest/design/torch_compile/",
        ],
    )


def _disk(said: Fact) -> Finding:
    return _make(
        "slow-weight-loading",
        "Loading takes long: disk, network drive or too little free memory for the page cache",
        "Loading is bound by how fast the files can be read; a container limit on memory keeps them "
        "out of the page cache, so that each "
        "rank reads them again.",
        [said],
        [
            Fix("Measure the disk.", "dd if=model-00001-of-00002.safetensors of=/dev/null bs=16M status=progress"),
            Fix("Read whole files in order.", "vllm serve MODEL --safetensors-load-strategy eager"),
            Fix("Give the container at least as much memory as the checkpoint is big."),
        ],
        ["https://github.com/vllm-project/vllm/issues/6319", "https://github.com/vllm-project/vllm/issues/6876"],
    )


CHECK = Check("load-speed", "Time that the start takes", run)
