// What the conformance kernels of both backends have in common.
#pragma once

#include "gpu/gpu.hpp"
#include "tests/gpu_model/conformance/conformance.hpp"

namespace conformance {
inline namespace GPU_BACKEND {

struct Buffers {
  const void* in;
  void* out;
  int count;
};

struct Nothing {};

/// What most of the kernels have in common.
template <int kThreadsOfBlock, class SharedMemory = Nothing>
struct KernelBase {
  using Params = Buffers;
  using Shared = SharedMemory;
  static constexpr int kThreads = kThreadsOfBlock;
  static constexpr int kMinBlocks = 1;
};

/// out[i] = Op::apply(in[i])
template <class Op>
struct Elementwise : KernelBase<256> {
  static constexpr int kPerThread = 16;
  static constexpr int kPerBlock = 256 * kPerThread;
  GPU_FN static void run(const Buffers& p, Nothing&) {
    const auto* in = static_cast<const typename Op::In*>(p.in);
    auto* out = static_cast<typename Op::Out*>(p.out);
    const int first = static_cast<int>(gpu::block_idx().x) * kPerBlock + gpu::thread_idx();
    for (int n = 0; n < kPerThread; ++n) {
      const int i = first + n * 256;
      if (i < p.count) out[i] = Op::apply(in[i]);
    }
  }
};

}  // namespace GPU_BACKEND
}  // namespace conformance
