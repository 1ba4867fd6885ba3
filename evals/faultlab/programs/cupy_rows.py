"""Preprocesses batches with a CuPy kernel whose index runs out of the array."""
# mypy: ignore-errors

from __future__ import annotations

import logging
import sys

import cupy

logging.basicConfig(
    stream=sys.stdout, level=logging.INFO, format="%(asctime)s %(levelname)s %(message)s"
)
SOURCE = r"""
extern "C" __global__ void normalise(float* rows, long long width) {
  long long i = blockDim.x * (long long)blockIdx.x + threadIdx.x;
  rows[i * width] *= 0.5f;
}
"""
normalise = cupy.RawKernel(SOURCE, "normalise")
logging.info("cupy %s", cupy.__version__)
for batch in range(1, 30):
    rows = cupy.random.standard_normal((1024, 256), dtype=cupy.float32)
    # One batch is wider than the array is.
    normalise((4,), (256,), (rows, cupy.int64(256 if batch < 20 else 1 << 34)))
    mean = float(rows.mean())
    if batch % 5 == 0:
        logging.info("batch %d mean %.4f", batch, mean)
logging.info("preprocessing complete")
