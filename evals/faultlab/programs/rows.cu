// Kernels of an ordinary extension (rows of a matrix are scaled, packed, checked, summed), each with
// one mistake. Built as a library that trainers load, or with -DPROGRAM as a program of its own.
#include <cstdio>
#include <cuda_runtime.h>

namespace {

// Writes far behind the matrix: the row number is multiplied by the size in bytes twice.
__global__ void scale_rows_kernel(float* rows, long count, float factor) {
  long i = blockIdx.x * (long)blockDim.x + threadIdx.x;
  if (i < count) rows[i * count * sizeof(float) * 4096] = factor;
}

// Reads four numbers at once from an address that is not a multiple of 16.
__global__ void pack_rows_kernel(float* rows, long count) {
  long i = blockIdx.x * (long)blockDim.x + threadIdx.x;
  if (4 * i + 5 < count) {
    float4 four = *reinterpret_cast<float4*>(rows + 4 * i + 1);
    rows[i] = four.x + four.y + four.z + four.w;
  }
}

// Stops the whole kernel where a number is not the one that is expected.
__global__ void check_rows_kernel(float* rows, long count) {
  long i = blockIdx.x * (long)blockDim.x + threadIdx.x;
  if (i < count && rows[i] != -1.0f) __trap();
}

// Sums a tree by recursion without an end.
__device__ __noinline__ float sum_tree(volatile float* rows, long node, long count) {
  volatile float part[64];
  part[node & 63] = rows[node % count];
  float left = sum_tree(rows, 2 * node + 1, count);
  return part[node & 63] + left + sum_tree(rows, 2 * node + 2, count);
}

__global__ void sum_rows_kernel(float* rows, long count) {
  if (threadIdx.x == 0) rows[0] = sum_tree(rows, 0, count);
}

// Waits for a flag that another block should set.
__global__ void gather_rows_kernel(volatile float* rows) {
  while (rows[0] != -12345.0f) {
  }
}

// Takes so many registers a thread that 1024 threads have too few, and is started with 1024 threads.
__global__ void tile_rows_kernel(float* rows, long count) {
  float held[160];
  for (int k = 0; k < 160; ++k) held[k] = rows[(threadIdx.x * 160 + k) % count];
  for (long turn = 0; turn < count; ++turn)
#pragma unroll
    for (int k = 0; k < 160; ++k) {
      held[k] = held[k] * held[(k + 7) % 160] + rows[turn % count];
    }
#pragma unroll
  for (int k = 0; k < 160; ++k) rows[(threadIdx.x * 160 + k) % count] = held[k];
}

const char* launched() {
  cudaError_t error = cudaGetLastError();
  return error == cudaSuccess ? nullptr : cudaGetErrorString(error);
}

}  // namespace

extern "C" {
const char* scale_rows(float* rows, long count, cudaStream_t stream) {
  scale_rows_kernel<<<32, 256, 0, stream>>>(rows, count, 0.5f);
  return launched();
}
const char* pack_rows(float* rows, long count, cudaStream_t stream) {
  pack_rows_kernel<<<32, 256, 0, stream>>>(rows, count);
  return launched();
}
const char* check_rows(float* rows, long count, cudaStream_t stream) {
  check_rows_kernel<<<1, 32, 0, stream>>>(rows, count);
  return launched();
}
const char* sum_rows(float* rows, long count, cudaStream_t stream) {
  sum_rows_kernel<<<1, 32, 0, stream>>>(rows, count);
  return launched();
}
const char* gather_rows(float* rows, long count, cudaStream_t stream) {
  gather_rows_kernel<<<1, 1, 0, stream>>>(rows);
  return launched();
}
const char* tile_rows(float* rows, long count, cudaStream_t stream) {
  tile_rows_kernel<<<1, 1024, 0, stream>>>(rows, count);
  return launched();
}
}

#ifdef PROGRAM
int main() {
  long count = 1 << 16;
  float* rows = nullptr;
  cudaMalloc(&rows, count * sizeof(float));
  std::printf("scaling %ld rows\n", count);
  const char* error = scale_rows(rows, count, nullptr);
  cudaError_t done = cudaDeviceSynchronize();
  if (!error && done != cudaSuccess) error = cudaGetErrorString(done);
  if (error) {
    std::fprintf(stderr, "scale_rows: %s\n", error);
    return 1;
  }
  std::printf("done\n");
  return 0;
}
#endif
