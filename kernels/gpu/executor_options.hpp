// How the host executor plays a launch: what tests of kernels choose, and users do not.
#pragma once

#include <cstdint>
#include <functional>

namespace fp8_sdpa {

/// The order in which the host executor runs the threads of a block; blocks begin from the first to
/// the last with kFifo, from the last to the first with kLifo, at random with the others.
enum class Schedule : std::uint8_t {
  kFifo,            ///< round robin: the fastest
  kLifo,            ///< the thread that became ready last goes first
  kRandom,          ///< any ready thread
  kThreadPriority,  ///< a random fixed priority per thread (PCT, Burckhardt et al., ASPLOS 2010)
  kWarpPriority,  ///< a random fixed priority per warp: one warp runs as far ahead as the barriers
                  ///< let it
};

/// When an asynchronous copy lands.
enum class Asynchrony : std::uint8_t {
  kLate,   ///< at the wait that asks for it; its destination holds NaN bytes until then
  kEager,  ///< at once
};

/// How the host executor's FP8 wgmma adds. (Other multiplies add in fp32, one by one.)
enum class TensorCoreSums : std::uint8_t {
  kHopper,  ///< as the device: cut off 13 bits below the largest of 32 products and the accumulator
  kFloat,   ///< in fp32, in the order of k: to tell a kernel's own error from the device's
};

/// How the host executor plays one launch. Equal options give equal bits.
struct ExecutorOptions {
  Schedule schedule = Schedule::kFifo;
  std::uint64_t seed = 1;
  Asynchrony asynchrony = Asynchrony::kLate;
  bool poison_shared_memory = true;  ///< shared memory starts as 0xFF bytes: NaN in every format
  int os_threads = 0;                ///< OS threads that blocks are spread over; 0: one per core
  TensorCoreSums tensor_core_sums = TensorCoreSums::kHopper;
  /// What earlier kernels on the stream do. A kernel that may start before they have ended starts
  /// before they begin: this runs, once, when a block waits for them and nobody else of it can run.
  /// For other kernels, before they start.
  std::function<void()> earlier_kernels = nullptr;
};

}  // namespace fp8_sdpa
