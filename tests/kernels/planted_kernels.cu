#include "gpu/gpu.hpp"
#include "tests/kernels/planted_kernels.hpp"

namespace fp8_sdpa::planted {

struct Params {
  float* data;
};

template <std::size_t kBytes>
struct SharedBytes {
  alignas(16) unsigned char bytes[kBytes];
};

/// Holds kLive values per thread across a barrier.
template <int kLive>
GPU_FN void keep_alive(float* data) {
  float values[kLive];
#pragma unroll
  for (int i = 0; i < kLive; ++i) values[i] = data[i * 1024 + gpu::thread_idx()];
  gpu::sync_block();
#pragma unroll
  for (int i = 0; i < kLive; ++i) data[i * 1024 + gpu::thread_idx()] = values[kLive - 1 - i];
}

template <class Tag, int kThreadsOfBlock, int kLive, std::size_t kBytes>
struct Kernel {
  using Params = planted::Params;
  using Shared = SharedBytes<kBytes>;
  static constexpr int kThreads = kThreadsOfBlock;
  static constexpr int kMinBlocks = 1;

  GPU_FN static void run(const Params& p, Shared& shared) {
    shared.bytes[gpu::thread_idx()] = 1;
    keep_alive<kLive>(p.data);
    p.data[gpu::thread_idx()] += static_cast<float>(shared.bytes[kBytes - 1]);
  }
};

// 256 threads may have 255 registers each, 1024 threads 64.
using TooManyRegisters = Kernel<tag::too_many_registers, 256, 160, kSharedBytes>;
using TooMuchShared = Kernel<tag::too_much_shared, 256, 16, kTooManySharedBytes>;
using Spills = Kernel<tag::spills, 1024, 160, kSharedBytes>;

}  // namespace fp8_sdpa::planted

namespace gpu {
inline namespace GPU_BACKEND {

namespace planted = fp8_sdpa::planted;

template fp8_sdpa::Status launch<planted::TooManyRegisters>(dim3, const planted::Params&,
                                                            const Queue&);
template fp8_sdpa::Status launch<planted::TooMuchShared>(dim3, const planted::Params&,
                                                         const Queue&);
template fp8_sdpa::Status launch<planted::Spills>(dim3, const planted::Params&, const Queue&);

}  // namespace GPU_BACKEND
}  // namespace gpu
