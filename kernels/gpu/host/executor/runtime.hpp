// What the facade's headers ask of the host executor. The bodies live in .cpp files that are never
// built with -fsanitize=thread: they touch other lanes' registers, and tell ThreadSanitizer
// themselves what each primitive orders. A lane's own memory accesses stay in the headers, where
// sanitizers see them.
#pragma once

#include <vector_types.h>

#include <array>
#include <cstddef>
#include <cstdint>
#include <source_location>

#include "gpu/executor_options.hpp"
#include "gpu/types.hpp"

namespace gpu::host {

using Location = std::source_location;

/// The operands of wmma, each with its own lane layout.
enum WmmaOperand { kWmmaA, kWmmaB, kWmmaAccumulator, kWmmaOperands };

/// What a CUDA thread may ask about itself.
struct Lane {
  int thread = 0;
  int lane = 0;
  int warp = 0;
  uint3 block_idx{};
  uint3 grid_dim{};
  std::array<std::uint8_t, kWmmaOperands> wmma_chunk{};  ///< see wmma.hpp
};

/// The CUDA thread that this OS thread plays now; null outside a kernel.
extern thread_local constinit const Lane* current_lane;

/// Each of these throws, inside the kernel, what run_grid() turns into its Status.
void sync_block(Location loc);
void sync_warp(Location loc);
void named_barrier(int id, int threads, bool wait, Location loc);

/// The bits that lane `source_lane` of this warp passed to the same call.
std::uint64_t shuffle(std::uint64_t bits, int source_lane, const char* name, Location loc);
/// Whether any lane of this warp passed true to the same call.
bool any_lane(bool says, Location loc);

/// `name` is the primitive's, for reports; src_bytes of 16 are copied and the rest zeroed.
void cp_async(void* shared_dst, const void* global_src, int src_bytes, const char* name,
              Location loc);
void cp_async_commit(Location loc);
void cp_async_wait(int groups_in_flight, Location loc);

/// One lane's registers in a matrix multiply: 8 elements each, halves as bits.
struct WmmaArguments {
  const std::uint16_t* a;
  const std::uint16_t* b;
  const float* c;
  float* d;
  bool b_is_col_major;
};
void wmma_mma(WmmaArguments& arguments, Location loc);

/// Ends the kernel with an error: `name` was called at `loc` with an operand that is wrong.
[[noreturn]] void fail_operand(const char* name, const char* what_is_wrong, Location loc);

/// Runs ExecutorOptions::earlier_kernels, if no thread of the launch has.
void pdl_wait();

/// Lets other threads of the block run, if a kernel's thread asks: between an atomic and what is
/// done with its answer.
void schedule_point();

/// The thread, if a kernel's, has seen what others did before they wrote a word.
void note_acquire();

/// What a thread waits for: a word of global memory of 4 or 8 bytes that is `value`, or another.
struct AwaitedWord {
  const void* address;
  std::size_t bytes;
  std::uint64_t value;
  bool other = false;
};
/// Suspends the thread until the word is there, perhaps. Words of global memory are seen as late as
/// may be: when nobody else of the block can run.
void wait_for_word(const AwaitedWord& word, Location loc);

/// One launch, with the kernel's types erased.
struct Launch {
  dim3 grid;
  int threads = 0;               ///< per block
  int min_blocks = 1;            ///< a multiprocessor holds at once, as __launch_bounds__ says
  bool uses_pdl = false;         ///< before earlier kernels have ended
  bool cooperative = false;      ///< all blocks run at once, so that they may wait for each other
  std::size_t shared_bytes = 0;  ///< per block
  std::size_t shared_alignment = 1;
  void (*entry)(const void* params, void* shared) = nullptr;
  const void* params = nullptr;
  std::size_t params_bytes = 0;
};

/// Runs every block of the grid and returns when all have ended. Safe to call from several OS
/// threads at once. kInvalidArgument for a shape that CUDA would refuse, kOutOfMemory,
/// kExecutorError for an error that the kernel made.
fp8_sdpa::Status run_grid(const Launch& launch, const fp8_sdpa::ExecutorOptions& options);

}  // namespace gpu::host
