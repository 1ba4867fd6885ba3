"""Triton kernels of the fault lab, in a file of their own, since Triton reads their source."""
# mypy: ignore-errors

import triton
import triton.language as tl


@triton.jit
def scale_rows(rows, stride, BLOCK: tl.constexpr):  # noqa: D103
    row = tl.program_id(0).to(tl.int64)
    column = tl.arange(0, BLOCK)
    tl.store(rows + row * stride + column, 0.5)


@triton.jit
def mix_rows(rows, weights, out, depth, BLOCK: tl.constexpr):  # noqa: D103
    row = tl.arange(0, 128)
    part = tl.arange(0, BLOCK)
    total = tl.zeros((128, 128), tl.float32)
    left = rows + row[:, None] * depth + part[None, :]
    right = weights + part[:, None] * 128 + row[None, :]
    for _ in range(0, depth, BLOCK):
        total += tl.dot(tl.load(left), tl.load(right))
        left += BLOCK
        right += BLOCK * 128
    tl.store(out + row[:, None] * 128 + row[None, :], total)
