"""Calls the kernels of `rows.cu`, and their Triton kin, as an extension of a trainer does."""
# mypy: allow-untyped-calls, allow-untyped-decorators, ignore-missing-imports

from __future__ import annotations

import ctypes
from pathlib import Path
from typing import Any

import torch

FAR = 1 << 36


def run_kernel(library: Path, name: str, rows: Any) -> None:
    """Start one kernel on the current stream.

    Raises:
        RuntimeError: CUDA did not start it.
    """
    kernel = getattr(ctypes.CDLL(str(library)), name)
    kernel.restype = ctypes.c_char_p
    kernel.argtypes = [ctypes.c_void_p, ctypes.c_long, ctypes.c_void_p]
    stream = torch.cuda.current_stream().cuda_stream
    error = kernel(rows.data_ptr(), rows.numel(), stream)
    if error:
        raise RuntimeError(f"CUDA error: {error.decode()}")


def scale_with_triton(rows: Any, stride: int = FAR) -> None:
    """Scale rows in place; a stride that is too long leads far outside the matrix."""
    from rerail.evals.faultlab.programs import triton_rows

    triton_rows.scale_rows[(32,)](rows, stride, BLOCK=256)


def mix_with_triton(stages: int) -> None:
    """Multiply two matrices; each stage that is loaded ahead takes shared memory of its own."""
    from rerail.evals.faultlab.programs import triton_rows

    rows = torch.randn(128, 4096, device="cuda", dtype=torch.bfloat16)
    weights = torch.randn(4096, 128, device="cuda", dtype=torch.bfloat16)
    out = torch.empty(128, 128, device="cuda")
    triton_rows.mix_rows[(1,)](rows, weights, out, 4096, BLOCK=64, num_stages=stages)
