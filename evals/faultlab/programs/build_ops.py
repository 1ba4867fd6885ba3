"""Builds a CUDA extension when the trainer starts; its source does not compile."""
# mypy: allow-untyped-calls, ignore-missing-imports

from __future__ import annotations

from torch.utils.cpp_extension import load_inline

CUDA = """
#include <torch/types.h>
__global__ void scale(float* rows, long count) {
  long i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i < count) rows[i] *= factor;
}
torch::Tensor scale_rows(torch::Tensor rows) {
  scale<<<32, 256>>>(rows.data_ptr<float>(), rows.numel());
  return rows;
}
"""
print("building fused ops", flush=True)
ops = load_inline(
    name="fused_ops",
    cpp_sources="torch::Tensor scale_rows(torch::Tensor rows);",
    cuda_sources=CUDA,
    functions=["scale_rows"],
    verbose=True,
)
print("training starts", flush=True)
