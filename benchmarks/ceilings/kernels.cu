#include <cuda_runtime.h>

#include "benchmarks/ceilings/kernels.hpp"
#include "gpu/cuda_check.hpp"

namespace fp8_sdpa::bench {
namespace {

constexpr int kReadThreads = 256;
constexpr int kReadBlocksPerSm = 4;

/// One instruction on `x`. Both have a fixed point, so that no chain leaves the normal numbers.
template <int kInstruction>
__device__ float step(float x, float a, float b) {
  if constexpr (kInstruction == static_cast<int>(Instruction::kEx2)) {
    float y;
    // Negated: 2^-x has a fixed point, and the instruction negates its operand for nothing.
    asm volatile("ex2.approx.ftz.f32 %0, %1;" : "=f"(y) : "f"(-x));
    return y;
  } else {
    return fmaf(x, a, b);
  }
}

template <int kInstruction>
__global__ void __launch_bounds__(kSaturationThreads, kBlocksPerSm)
    saturate(int iterations, float a, float b, long long* cycles, float* sink) {
  float chain[kChains];
#pragma unroll
  for (int c = 0; c < kChains; ++c) chain[c] = static_cast<float>(threadIdx.x + c) * b;
  const long long start = clock64();
#pragma unroll 4
  for (int i = 0; i < iterations; ++i) {
#pragma unroll
    for (int c = 0; c < kChains; ++c) chain[c] = step<kInstruction>(chain[c], a, b);
  }
  const long long end = clock64();
  float sum = 0;
#pragma unroll
  for (int c = 0; c < kChains; ++c) sum += chain[c];
  // Never so, but the compiler does not know: the chains must be computed.
  if (sum == -1.0F) *sink = sum;
  // Older warps go first: only the last to end has seen all of a multiprocessor's work.
  if (threadIdx.x % warpSize == 0) {
    atomicMax(reinterpret_cast<unsigned long long*>(cycles),
              static_cast<unsigned long long>(end - start));
  }
}

/// Eight loads of a thread are on their way at a time.
__global__ void __launch_bounds__(kReadThreads, kReadBlocksPerSm)
    read(const uint4* from, std::size_t vectors, float* sink) {
  constexpr int kAtOnce = 8;
  const std::size_t threads = std::size_t{gridDim.x} * kReadThreads;
  std::size_t at = std::size_t{blockIdx.x} * kReadThreads + threadIdx.x;
  unsigned any = 0;
  for (; at + (kAtOnce - 1) * threads < vectors; at += kAtOnce * threads) {
    uint4 value[kAtOnce];
#pragma unroll
    for (int i = 0; i < kAtOnce; ++i) value[i] = __ldcs(from + at + i * threads);
#pragma unroll
    for (int i = 0; i < kAtOnce; ++i) any |= value[i].x ^ value[i].y ^ value[i].z ^ value[i].w;
  }
  for (; at < vectors; at += threads) any |= from[at].x;
  // Whatever this stores nobody reads, but the compiler does not know: all must be read.
  if (any == 0x12345678U) *sink = 1.0F;
}

__global__ void do_nothing() {}

}  // namespace

Status launch_saturation(Instruction instruction, const Saturation& size, long long* cycles,
                         float* sink, CUstream_st* stream) {
  constexpr float kFactor = 0.5F;
  constexpr float kSummand = 0.25F;
  constexpr int kEx2 = static_cast<int>(Instruction::kEx2);
  constexpr int kFma = static_cast<int>(Instruction::kFma);
  if (instruction == Instruction::kEx2) {
    saturate<kEx2><<<size.blocks, kSaturationThreads, 0, stream>>>(size.iterations, kFactor,
                                                                   kSummand, cycles, sink);
  } else {
    saturate<kFma><<<size.blocks, kSaturationThreads, 0, stream>>>(size.iterations, kFactor,
                                                                   kSummand, cycles, sink);
  }
  return FP8_SDPA_CUDA_STATUS(cudaGetLastError());
}

Status launch_read(const void* from, std::size_t bytes, int sm_count, float* sink,
                   CUstream_st* stream) {
  read<<<sm_count * kReadBlocksPerSm, kReadThreads, 0, stream>>>(static_cast<const uint4*>(from),
                                                                 bytes / sizeof(uint4), sink);
  return FP8_SDPA_CUDA_STATUS(cudaGetLastError());
}

Status launch_empty(CUstream_st* stream) {
  do_nothing<<<1, 1, 0, stream>>>();
  return FP8_SDPA_CUDA_STATUS(cudaGetLastError());
}

}  // namespace fp8_sdpa::bench
