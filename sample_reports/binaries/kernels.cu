// Kernels of our own, a fact of their code in each, compiled for the tests: see README.md beside this file.
#include <cuda_fp16.h>
#include <mma.h>

extern "C" __global__ void copy(const float *from, float *to, int n) {
  int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i < n) to[i] = from[i];
}

extern "C" __global__ void copy_wide(const float4 *from, float4 *to, int n) {
  int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i < n) to[i] = from[i];
}

extern "C" __global__ void __launch_bounds__(256, 2) reversed(const float *from, float *to) {
  __shared__ float held[256];
  int i = blockIdx.x * blockDim.x + threadIdx.x;
  held[threadIdx.x] = from[i];
  __syncthreads();
  to[i] = held[255 - threadIdx.x];
}

#ifdef CHANGED
#define BOUNDS
#else
#define BOUNDS __launch_bounds__(1024, 1)  // 64 registers a thread
#endif
extern "C" __global__ void BOUNDS crowded(const float *from, float *to, int rounds) {
  float held[72];
#pragma unroll
  for (int k = 0; k < 72; k++) held[k] = from[threadIdx.x + k * 1024];
#pragma unroll 1
  for (int round = 0; round < rounds; round++) {
#pragma unroll
    for (int k = 0; k < 72; k++) held[k] = held[k] * held[(k + 36) % 72] + held[(k + 1) % 72];
  }
#pragma unroll
  for (int k = 0; k < 72; k++) to[threadIdx.x + k * 1024] = held[k];
}

extern "C" __global__ void table(const int *where, float *to) {
  float held[8];
#pragma unroll 1
  for (int k = 0; k < 8; k++) held[where[k] & 7] = to[k];  // indexed by what is loaded: local memory, and no spill
  to[threadIdx.x] = held[where[threadIdx.x] & 7];
}

extern "C" __global__ void quotient(const float *up, const float *down, float *to) {
  int i = blockIdx.x * blockDim.x + threadIdx.x;
#ifdef CHANGED
  to[i] = __fdividef(up[i], down[i]);
#else
  to[i] = up[i] / down[i];
#endif
}

extern "C" __global__ void remainder_of(const int *up, int by, int *to) {
  int i = blockIdx.x * blockDim.x + threadIdx.x;
  to[i] = up[i] % by;
}

extern "C" __global__ void scaled(const float *from, float *to) {
  int i = blockIdx.x * blockDim.x + threadIdx.x;
  to[i] = from[i] * 0.1;  // a constant of double precision
}

extern "C" __global__ void counted(const int *from, int *bins, int n) {
  for (int i = blockIdx.x * blockDim.x + threadIdx.x; i < n; i += gridDim.x * blockDim.x) atomicAdd(bins + from[i], 1);
}

extern "C" __global__ void dot_rows(const float *a, const float *b, float *c, int n) {
  int row = blockIdx.y, column = blockIdx.x * blockDim.x + threadIdx.x;
  float sum = 0;
  for (int k = 0; k < n; k++) sum += a[row * n + k] * b[k * n + column];
  c[row * n + column] = sum;
}

extern "C" __global__ void tile_product(const half *a, const half *b, float *c, int n) {
  namespace w = nvcuda::wmma;
  w::fragment<w::matrix_a, 16, 16, 16, half, w::row_major> left;
  w::fragment<w::matrix_b, 16, 16, 16, half, w::row_major> right;
  w::fragment<w::accumulator, 16, 16, 16, float> sum;
  w::fill_fragment(sum, 0.0f);
  for (int k = 0; k < n; k += 16) {
    w::load_matrix_sync(left, a + blockIdx.y * 16 * n + k, n);
    w::load_matrix_sync(right, b + k * n + blockIdx.x * 16, n);
    w::mma_sync(sum, left, right, sum);
  }
  w::store_matrix_sync(c + blockIdx.y * 16 * n + blockIdx.x * 16, sum, n, w::mem_row_major);
}

template <typename T> __global__ void doubled(T *values) { values[threadIdx.x] += values[threadIdx.x]; }
template __global__ void doubled<float>(float *);
