"""Tokens × layers by kernel, counted where a kernel is called. They reach /metrics through prometheus_client's files."""

from __future__ import annotations

import os
from typing import Any

KERNELS = ("flash", "linear", "absorb")
METRIC = "hybridctl_kernel_tokens"
HELP = "Tokens times layers by the kernel that computed them (absorb: taken from K/V pages into a state)"


class Counters:
    """Counts of one process. ``publish`` says whether it is the one that feeds /metrics (tensor-parallel rank 0)."""

    def __init__(self) -> None:
        self.counts = dict.fromkeys(KERNELS, 0.0)
        self._sent = dict.fromkeys(KERNELS, 0.0)
        self._metric: Any = None
        self.publish = False

    def add(self, kernel: str, tokens: float, share: float = 1.0) -> None:
        """Count tokens of one layer, or of ``share`` of its KV groups."""
        self.counts[kernel] += tokens * share

    def flush(self) -> None:
        """Send what is new. Only where vLLM's server collects from several processes (PROMETHEUS_MULTIPROC_DIR)."""
        if not self.publish or "PROMETHEUS_MULTIPROC_DIR" not in os.environ:
            return
        if self._metric is None:
            from prometheus_client import Counter

            self._metric = Counter(METRIC, HELP, ("kernel",))
        for kernel, count in self.counts.items():
            if count > self._sent[kernel]:
                self._metric.labels(kernel).inc(count - self._sent[kernel])
                self._sent[kernel] = count


COUNTERS = Counters()
