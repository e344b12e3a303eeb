"""Attention kernels and their reference. Needs torch, which the base installation does not bring."""

OLDEST = 80
"""Compute capability ×10 of the oldest GPU that runs the kernels: tensor cores for bfloat16."""
