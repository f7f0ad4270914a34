// Where a kernel runs: a CUDA device, or the host executor that plays the CUDA programming model on
// the CPU.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <string>

#include "fp8_sdpa/status.hpp"

namespace fp8_sdpa {

enum class Backend : std::uint8_t { kDevice, kHost };
constexpr const char* name_of(Backend backend) {
  return backend == Backend::kDevice ? "device" : "host";
}

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

/// A place to run kernels, and its limits.
struct Device {
  Backend backend = Backend::kHost;
  int index = 0;       ///< CUDA device ordinal
  int sm_version = 0;  ///< compute capability as 10 * major + minor
  int sm_count = 0;
  std::size_t shared_memory_per_block = 0;  ///< bytes a block may opt in to
  std::string name;
  ExecutorOptions executor;  ///< used by Backend::kHost alone
};

/// The host executor, as a device that can run every variant.
Device host_executor(ExecutorOptions options = {});

/// The calling thread's current CUDA device. kUnsupported, with the reason, where there is none or
/// this build has no device code; kDeviceError where a CUDA call fails.
Result<Device> current_device();

}  // namespace fp8_sdpa
