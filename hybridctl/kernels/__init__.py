"""Attention kernels and their reference. Needs torch, which the base installation does not bring."""
