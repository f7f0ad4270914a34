// One block of a kernel in execution: its fibers, warps, barriers and shared memory. A Block is
// kept and used again for the next block of the grid, and for the next launch.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <memory>
#include <stdexcept>
#include <string>
#include <vector>

#include "gpu/executor_options.hpp"
#include "gpu/host/executor/async_engine.hpp"
#include "gpu/host/executor/copy_engine.hpp"
#include "gpu/host/executor/fiber.hpp"
#include "gpu/host/executor/random.hpp"
#include "gpu/host/executor/ready_queue.hpp"
#include "gpu/host/executor/runtime.hpp"
#include "gpu/host/executor/shared_memory.hpp"

namespace gpu::host {

inline constexpr int kLanesPerWarp = 32;
inline constexpr std::uint32_t kAllLanes = 0xffffffffU;
/// bar.sync knows barriers 0 to 15 (PTX ISA, "bar, barrier").
inline constexpr int kBarriers = 16;
/// The most threads of a block (CUDA C++ Programming Guide, "Technical Specifications").
inline constexpr int kMaxThreads = 1024;

class Block;
class EarlierKernels;
class GlobalStores;
struct AsyncUnits;

/// An error that the kernel made, on its way out of the kernel.
class KernelError : public std::runtime_error {
 public:
  using std::runtime_error::runtime_error;
};

/// Thrown in every other thread of the block after an error, to unwind it.
struct Cancelled {};

/// The primitive that a thread called last, for reports and to compare the lanes of a warp.
struct Operation {
  // No numbers that a kernel would pass, right or wrong.
  static constexpr int kNoBarrier = std::numeric_limits<int>::min();
  static constexpr int kWholeBlock = kNoBarrier + 1;

  const char* name = nullptr;  ///< null before the first
  Location loc;
  int barrier = kNoBarrier;  ///< a barrier's number
  int threads = 0;           ///< that a named barrier waits for

  /// Whether two lanes are at the same instruction.
  bool operator==(const Operation& other) const;
  /// The same, and in the same function with the same template arguments.
  bool is_instruction_of(const Operation& other) const;
};

/// One CUDA thread.
struct Fiber : Lane, Context {
  Fiber(int index, Block& owner);
  ~Fiber();
  Fiber(const Fiber&) = delete;
  Fiber& operator=(const Fiber&) = delete;

  Block& block;
  Stack stack;
  Operation at;
  bool exited = true;
  CopyEngine copies;
  AsyncEngine tma{"TMA"};
  std::vector<std::uintptr_t> unfenced;  ///< its part of GlobalStores
  bool has_acquired = false;             ///< since its last fence_proxy_async_global
};

struct Warp;
/// What the last lane to arrive does for the whole warp.
using WarpAction = void (*)(Warp& warp);

struct Warp {
  std::array<Fiber*, kLanesPerWarp> fibers{};
  std::array<void*, kLanesPerWarp> arguments{};  ///< what each lane passed
  std::uint32_t arrived = 0;                     ///< lanes at the instruction `at`
  std::uint32_t exited = 0;
  Operation at;
  std::uint64_t phase = 0;
  // For TSan: a token by phase, the phase that a barrier was in when the first lane came to it, and
  // the token of the phase in which the warp was counted.
  std::array<char, 2> tokens{};
  std::uint64_t barrier_phase = 0;
  void* barrier_token = nullptr;

  void* token() { return &tokens[phase % tokens.size()]; }
  void next_phase() {
    arrived = 0;
    ++phase;
  }
};

struct Barrier {
  int threads = 0;            ///< what this phase waits for
  std::uint32_t arrived = 0;  ///< warps that count in this phase
  std::uint32_t waiting = 0;  ///< those of them that are blocked
  Operation first;            ///< of this phase
  Operation first_waiting;    ///< likewise, of those that are blocked
  std::uint64_t phase = 0;
  std::array<char, 2> tokens{};  ///< for TSan, by phase

  void* token() { return &tokens[phase % tokens.size()]; }
};

class Block {
 public:
  Block();
  ~Block();
  Block(const Block&) = delete;
  Block& operator=(const Block&) = delete;

  /// Makes block `index` of the launch ready. Throws std::bad_alloc.
  void start(const Launch& launch, const fp8_sdpa::ExecutorOptions& options, uint3 index,
             EarlierKernels& earlier, GlobalStores& global_stores);
  /// Runs threads until none of this block is ready. False if none was.
  bool resume();
  /// After the last resume(): empty, or what the kernel did wrong.
  std::string end();
  bool failed() const { return !error_.empty(); }
  /// Whether threads wait for words of global memory, which another block may write.
  bool waits_for_words() const { return !waiting_for_words_.empty(); }

  /// Orders everything that the blocks run so far have done before what the caller does next.
  void join();

  // What follows is called by this block's threads, each with itself.

  void sync_warp(Fiber& me, const Operation& operation);
  void barrier(Fiber& me, const Operation& operation, bool wait_for_it);
  /// Waits for the whole warp, and has `action` applied to all lanes' arguments once.
  void collective(Fiber& me, const Operation& operation, WarpAction action, void* argument);
  /// Earlier kernels run as late as they may: when nobody else of the block can.
  void pdl_wait(Fiber& me);
  void wait_for_word(Fiber& me, const AwaitedWord& word);
  /// Lets another thread run, if the schedule is an adversary.
  void preempt(Fiber& me);

  /// Suspends `me` until somebody makes it ready.
  void suspend(Fiber& me) { wait(me); }
  void make_ready(Fiber& fiber) { ready_.push(&fiber); }

  SharedMemory& shared() { return shared_; }
  GlobalStores& global_stores() { return *global_stores_; }
  const Launch& launch() const { return launch_; }
  const fp8_sdpa::ExecutorOptions& options() const { return options_; }
  Random& random() { return random_; }
  AsyncUnits& async() { return *async_; }
  /// TMA loads, which land when nobody else can run.
  void load_takes_off() { ++loads_in_flight_; }
  void load_has_landed() { --loads_in_flight_; }
  const std::vector<Warp>& warps() const { return warps_; }
  /// For TSan: what is released to it happens before what follows the launch.
  void* end_token() { return &end_token_; }
  bool lands_late() const { return options_.asynchrony == fp8_sdpa::Asynchrony::kLate; }

 private:
  static void fiber_main(Context& context);
  void run_thread(Fiber& me);
  void record(const std::string& error);
  void exit_thread(Fiber& me);

  void prepare(uint3 index);
  void prepare_thread(Fiber& fiber, int thread, uint3 index);
  void finish();
  /// Unwinds every thread that is inside the kernel.
  void cancel();

  /// Counts `me` at its warp's next instruction. True for the last lane.
  bool arrive(Fiber& me, const Operation& operation, void* argument);
  /// Makes the other lanes of a complete warp ready.
  void release_warp(Fiber& me);
  Barrier& barrier_of(const Operation& operation);
  void check_barrier(Fiber& me, const Operation& operation);
  /// Counts the warp of `me`, its last lane, at a barrier. True if that completes the phase.
  bool count_warp(Fiber& me, const Operation& operation, bool wait_for_it);
  /// Suspends `me` until it is made ready and its turn comes.
  void wait(Fiber& me);
  /// Makes those ready that wait for earlier kernels, and takes one. Null if there is none.
  Fiber* end_waits_for_earlier();
  /// Makes those ready whose words have been written, and takes one. Null if there is none.
  Fiber* take_told();
  /// Suspends `me`; the next ready thread runs, or the OS thread if there is none.
  void leave(Fiber& me);
  void check_exit(Fiber& me);
  /// Lets TMA loads land: when nobody else can run, and by chance in random schedules.
  void land_loads();

  Launch launch_;
  fp8_sdpa::ExecutorOptions options_;
  Context os_thread_;
  std::vector<std::unique_ptr<Fiber>> fibers_;
  std::vector<Warp> warps_;
  std::array<Barrier, kBarriers> barriers_;
  ReadyQueue ready_;
  Random random_;
  SharedMemory shared_;
  EarlierKernels* earlier_ = nullptr;
  GlobalStores* global_stores_ = nullptr;
  bool has_waited_ = false;  ///< for earlier kernels
  std::vector<Fiber*> waiting_for_earlier_;
  struct WordWait {
    Fiber* fiber;
    AwaitedWord word;
  };
  std::vector<WordWait> waiting_for_words_;
  std::shared_ptr<AsyncUnits> async_;
  std::size_t loads_in_flight_ = 0;
  int live_ = 0;  ///< threads that have not exited
  bool cancelled_ = false;
  std::string error_;
  // For TSan: the block's start, and what the threads of every block did.
  char start_token_ = 0;
  char end_token_ = 0;
};

/// The CUDA thread that calls.
inline Fiber& current_fiber() {
  return const_cast<Fiber&>(static_cast<const Fiber&>(*current_lane));
}

}  // namespace gpu::host
