"""Rules that find what somebody asked of a running job; the readers of it are loaded where one hits."""

from __future__ import annotations

RAS_MISMATCH = "nccl-ras-mismatch"
RAS_REPORTS = frozenset({"nccl-ras-dead", "nccl-ras-incomplete", RAS_MISMATCH})
STACKS = frozenset({"fw-faulthandler-stack", "fw-pyspy-stack"})
LOADER = "data-pyspy-dataloader-get"
"""Finds a process that waits for data: in one look a guess, as all that stacks tell."""
