// The kernels that device limits are measured with, as launches.
#pragma once

#include <cstddef>
#include <cstdint>

#include "fp8_sdpa/status.hpp"

struct CUstream_st;

namespace fp8_sdpa::bench {

/// The instruction that every lane of a saturating kernel issues, over and over.
enum class Instruction : std::uint8_t {
  kEx2,  ///< ex2.approx.ftz.f32: the multi-function unit
  kFma,  ///< fma.rn.f32
};

/// A kernel that fills every multiprocessor with chains of one instruction.
struct Saturation {
  int blocks = 0;      ///< as many as are resident at once
  int iterations = 0;  ///< kChains instructions of each lane in each
};
inline constexpr int kSaturationThreads = 256;
/// 1024 threads: eight warps a scheduler. Every architecture holds them at once.
inline constexpr int kBlocksPerSm = 4;
inline constexpr int kChains = 8;  ///< independent ones of a lane, so that latency is hidden

/// Lane instructions of one launch.
constexpr double instruction_count(const Saturation& size) {
  return static_cast<double>(size.blocks) * kSaturationThreads * size.iterations * kChains;
}

/// Launches it. `cycles` (device memory, one value) becomes at least those of the warp that took
/// longest; `sink` (device memory, one value) is where results would go.
Status launch_saturation(Instruction instruction, const Saturation& size, long long* cycles,
                         float* sink, CUstream_st* stream);

/// Bytes of a load.
inline constexpr std::size_t kReadMultiple = 16;
/// Launches a kernel that reads `bytes`, a multiple of that, from every multiprocessor. `sink`
/// (device memory, one value) is where what it read would go.
Status launch_read(const void* from, std::size_t bytes, int sm_count, float* sink,
                   CUstream_st* stream);

/// Launches a kernel of one thread that does nothing.
Status launch_empty(CUstream_st* stream);

}  // namespace fp8_sdpa::bench
