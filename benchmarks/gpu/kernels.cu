// Kernels with one fault each, and the same kernel without it: what a diagnosis has to find, and to find gone.
//
//     nvcc -O3 -lineinfo -arch=native -o kernels benchmarks/gpu/kernels.cu
//     ncu --set full --import-source yes --export spills kernels spills
//
// The names of the kernels are those of the arguments. Each is launched once.

#include <cstdio>
#include <cstring>
#include <cuda_profiler_api.h>
#include <cuda_runtime.h>

constexpr int TILE = 32;
constexpr int LIVE = 120;

// More values alive at once than the 32 registers a thread may have here, so that some go to local memory.
__device__ __forceinline__ float many_values_alive(const float *in, int n, int i) {
    float values[LIVE];
#pragma unroll
    for (int k = 0; k < LIVE; ++k) values[k] = in[(i + k * 1024) % n];
#pragma unroll
    for (int round = 0; round < 8; ++round)
#pragma unroll
        for (int k = 0; k < LIVE; ++k) values[k] = values[k] * values[(k + 37 * (round + 1)) % LIVE] + 1.0f;
    float sum = 0.0f;
#pragma unroll
    for (int k = 0; k < LIVE; ++k) sum += values[k];
    return sum;
}

__global__ void __launch_bounds__(1024, 2) spills(const float *in, float *out, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    out[i] = many_values_alive(in, n, i);
}

__global__ void __launch_bounds__(256, 1) spills_fixed(const float *in, float *out, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    out[i] = many_values_alive(in, n, i);
}

// A transpose by a tile in shared memory: a column of 32 floats is in one bank, of 33 in 32 banks.
template <int WIDTH> __device__ void transpose(const float *in, float *out, int side) {
    __shared__ float tile[TILE][WIDTH];
    int x = blockIdx.x * TILE + threadIdx.x, y = blockIdx.y * TILE + threadIdx.y;
    tile[threadIdx.y][threadIdx.x] = in[y * side + x];
    __syncthreads();
    out[(blockIdx.x * TILE + threadIdx.y) * side + blockIdx.y * TILE + threadIdx.x] = tile[threadIdx.x][threadIdx.y];
}

__global__ void conflicts(const float *in, float *out, int side) { transpose<TILE>(in, out, side); }
__global__ void conflicts_fixed(const float *in, float *out, int side) { transpose<TILE + 1>(in, out, side); }

// The 32 threads of a warp read 32 sectors; in the fixed kernel four. n is a power of two.
__global__ void strided(const float *in, float *out, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    out[i] = in[(unsigned)i * TILE & (n - 1)];
}

__global__ void strided_fixed(const float *in, float *out, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    out[i] = in[(unsigned)i & (n - 1)];
}

__device__ float iterated(float value, int rounds) {
    for (int k = 0; k < rounds; ++k) value = value * 0.999f + 0.5f;
    return value;
}

// 16 blocks, or as many as the GPU holds at once.
__global__ void starved(float *out, int rounds) {
    out[blockIdx.x * blockDim.x + threadIdx.x] = iterated(threadIdx.x, rounds);
}

__global__ void starved_fixed(float *out, int rounds) {
    out[blockIdx.x * blockDim.x + threadIdx.x] = iterated(threadIdx.x, rounds);
}

// One block more than two waves of them, or two waves.
__global__ void tail(float *out, int rounds) {
    out[blockIdx.x * blockDim.x + threadIdx.x] = iterated(threadIdx.x, rounds);
}

__global__ void tail_fixed(float *out, int rounds) {
    out[blockIdx.x * blockDim.x + threadIdx.x] = iterated(threadIdx.x, rounds);
}

// One thread of each warp does all of its work, or each does its share.
__global__ void divergent(float *out, int rounds) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    out[i] = iterated(i, threadIdx.x % 32 ? 1 : rounds * 32);
}

__global__ void divergent_fixed(float *out, int rounds) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    out[i] = iterated(i, rounds);
}

// Two kernels as one workload: launched by a CUDA graph, or in a range of the profiler.
void as_graph(const float *in, float *out, int n, int side, dim3 tiles, dim3 tile) {
    cudaStream_t stream;
    cudaGraph_t graph;
    cudaGraphExec_t ready;
    cudaStreamCreate(&stream);
    cudaStreamBeginCapture(stream, cudaStreamCaptureModeGlobal);
    strided_fixed<<<n / 1024, 1024, 0, stream>>>(in, out, n);
    conflicts_fixed<<<tiles, tile, 0, stream>>>(in, out, side);
    cudaStreamEndCapture(stream, &graph);
    cudaGraphInstantiate(&ready, graph, 0);
    cudaGraphLaunch(ready, stream);
}

void as_range(const float *in, float *out, int n, int side, dim3 tiles, dim3 tile) {
    cudaProfilerStart();
    strided_fixed<<<n / 1024, 1024>>>(in, out, n);
    conflicts_fixed<<<tiles, tile>>>(in, out, side);
    cudaProfilerStop();
}

int main(int count, char **arguments) {
    const char *name = count > 1 ? arguments[1] : "";
    const int n = 1 << 26, side = 1 << 13, rounds = 1 << 12;
    cudaDeviceProp gpu;
    float *in, *out;
    if (cudaGetDeviceProperties(&gpu, 0) != cudaSuccess || cudaMalloc(&in, n * sizeof(float)) != cudaSuccess ||
        cudaMalloc(&out, n * sizeof(float)) != cudaSuccess) {
        fprintf(stderr, "There is no GPU with 512 MB of free memory here.\n");
        return 1;
    }
    cudaMemset(in, 0, n * sizeof(float));
    const int sms = gpu.multiProcessorCount;
    int blocks_of_1024 = 1;
    cudaOccupancyMaxActiveBlocksPerMultiprocessor(&blocks_of_1024, tail, 1024, 0);
    const int wave = sms * blocks_of_1024;
    const dim3 tiles(side / TILE, side / TILE), tile(TILE, TILE);
    auto is = [name](const char *other) { return strcmp(name, other) == 0; };
    if (is("spills")) spills<<<8 * sms, 1024>>>(in, out, n);
    else if (is("spills_fixed")) spills_fixed<<<32 * sms, 256>>>(in, out, n);
    else if (is("conflicts")) conflicts<<<tiles, tile>>>(in, out, side);
    else if (is("conflicts_fixed")) conflicts_fixed<<<tiles, tile>>>(in, out, side);
    else if (is("strided")) strided<<<n / 1024, 1024>>>(in, out, n);
    else if (is("strided_fixed")) strided_fixed<<<n / 1024, 1024>>>(in, out, n);
    else if (is("starved")) starved<<<16, 1024>>>(out, rounds);
    else if (is("starved_fixed")) starved_fixed<<<wave, 1024>>>(out, rounds);
    else if (is("tail")) tail<<<2 * wave + 1, 1024>>>(out, rounds);
    else if (is("tail_fixed")) tail_fixed<<<2 * wave, 1024>>>(out, rounds);
    else if (is("divergent")) divergent<<<wave, 1024>>>(out, rounds);
    else if (is("divergent_fixed")) divergent_fixed<<<wave, 1024>>>(out, rounds);
    else if (is("graph")) as_graph(in, out, n, side, tiles, tile);
    else if (is("range")) as_range(in, out, n, side, tiles, tile);
    else {
        fprintf(stderr, "Name spills, conflicts, strided, starved, tail or divergent, or one with _fixed behind it; "
                        "or graph or range.\n");
        return 2;
    }
    cudaError_t ended = cudaDeviceSynchronize();
    if (ended != cudaSuccess) fprintf(stderr, "%s: %s\n", name, cudaGetErrorString(ended));
    return ended != cudaSuccess;
}
