// A launch: its checks, the pool of blocks it runs on, and the OS threads it is spread over.
#include <algorithm>
#include <atomic>
#include <chrono>
#include <exception>
#include <limits>
#include <memory>
#include <mutex>
#include <new>
#include <numeric>
#include <string>
#include <system_error>
#include <thread>
#include <utility>
#include <vector>

#include "gpu/host/executor/block.hpp"
#include "gpu/host/executor/earlier_kernels.hpp"
#include "gpu/host/executor/random.hpp"
#include "gpu/host/executor/report.hpp"
#include "gpu/host/executor/sanitizers.hpp"
#include "gpu/host/executor/units.hpp"

namespace gpu::host {
namespace {

using fp8_sdpa::ExecutorOptions;
using fp8_sdpa::Status;
using fp8_sdpa::StatusCode;

/// Limits that CUDA itself would refuse (CUDA C++ Programming Guide, "Technical Specifications").
constexpr unsigned kMaxGridX = 0x7fffffffU;
constexpr unsigned kMaxGridYZ = 65535;
constexpr std::size_t kMaxSharedBytes = 227 * std::size_t{1024};

/// ThreadSanitizer takes a megabyte for every CUDA thread, and knows 8128 of them.
constexpr unsigned kMaxOsThreadsUnderTsan = 2;

Status check(const Launch& launch) {
  const dim3& grid = launch.grid;
  if (current_lane != nullptr) {
    return fp8_sdpa::unsupported("a kernel cannot launch a kernel on the host executor");
  }
  if (launch.threads <= 0 || launch.threads > kMaxThreads || launch.threads % kLanesPerWarp != 0) {
    return fp8_sdpa::invalid_argument("a block of " + std::to_string(launch.threads) +
                                      " threads: the host executor runs whole warps, so a "
                                      "multiple of 32 from 32 to 1024");
  }
  if (grid.x == 0 || grid.y == 0 || grid.z == 0 || grid.x > kMaxGridX || grid.y > kMaxGridYZ ||
      grid.z > kMaxGridYZ) {
    return fp8_sdpa::invalid_argument(
        "a grid of (" + std::to_string(grid.x) + ", " + std::to_string(grid.y) + ", " +
        std::to_string(grid.z) +
        ") blocks: each is at least 1, x at most 2^31 - 1, y and z at "
        "most 65535");
  }
  if (launch.shared_bytes > kMaxSharedBytes) {
    return fp8_sdpa::invalid_argument("a block of " + std::to_string(launch.shared_bytes) +
                                      " bytes of shared memory: at most " +
                                      std::to_string(kMaxSharedBytes));
  }
  return {};
}

/// Blocks that no launch uses now, with their fibers and stacks. As many as ever ran at once.
class BlockPool {
 public:
  static BlockPool& instance() {
    static BlockPool pool;
    return pool;
  }

  std::unique_ptr<Block> take() {
    const std::lock_guard lock(mutex_);
    if (idle_.empty()) return std::make_unique<Block>();
    auto block = std::move(idle_.back());
    idle_.pop_back();
    return block;
  }

  void give_back(std::unique_ptr<Block> block) {
    const std::lock_guard lock(mutex_);
    idle_.push_back(std::move(block));
  }

 private:
  std::mutex mutex_;
  std::vector<std::unique_ptr<Block>> idle_;
};

/// The order in which blocks begin. A GPU promises none, so that the schedule has its way here
/// too: kFifo first to last, kLifo last to first, the others at random.
class BlockOrder {
 public:
  BlockOrder(std::uint64_t blocks, const ExecutorOptions& options) : blocks_(blocks) {
    using fp8_sdpa::Schedule;
    if (blocks < 2 || options.schedule == Schedule::kFifo) return;
    if (options.schedule == Schedule::kLifo) {
      start_ = blocks - 1;
      step_ = blocks - 1;
      return;
    }
    Random random(options.seed);
    start_ = random.next() % blocks;
    do {
      step_ = 1 + random.next() % (blocks - 1);
    } while (std::gcd(step_, blocks) != 1);  // so that the steps come to every block once
  }

  /// The block that begins as the `nth`.
  std::uint64_t at(std::uint64_t nth) const {
    return static_cast<std::uint64_t>((start_ + static_cast<Wide>(step_) * nth) % blocks_);
  }

 private:
  using Wide = unsigned __int128;
  std::uint64_t blocks_;
  std::uint64_t start_ = 0;
  std::uint64_t step_ = 1;
};

/// An OS thread that runs blocks, or is about to, and perhaps cannot go on before another one has
/// written a word.
class Stall {
 public:
  Stall(std::atomic<int>& running, std::atomic<int>& stalled)
      : running_(running), stalled_(stalled) {
    ++running_;
  }
  ~Stall() {
    ends();
    --running_;
  }
  Stall(const Stall&) = delete;
  Stall& operator=(const Stall&) = delete;

  /// Waits a moment. False: nobody is left who could write it. One that has not begun is not
  /// waited for: no GPU promises that it will.
  bool goes_on() {
    using Clock = std::chrono::steady_clock;
    constexpr auto kMoment = std::chrono::microseconds(50);
    constexpr auto kLongest = std::chrono::seconds(5);  // that a thread that could go on may rest
    if (!std::exchange(is_stalled_, true)) {
      ++stalled_;
      since_ = Clock::now();
    }
    // What the last other one wrote is looked at once more.
    if (running_ == 1) return !std::exchange(alone_, true);
    if (stalled_ < running_) since_ = Clock::now();
    if (Clock::now() - since_ > kLongest) return false;
    std::this_thread::sleep_for(kMoment);
    return true;
  }
  void ends() {
    if (std::exchange(is_stalled_, false)) --stalled_;
    alone_ = false;
  }

 private:
  std::atomic<int>& running_;
  std::atomic<int>& stalled_;
  bool is_stalled_ = false;
  bool alone_ = false;
  std::chrono::steady_clock::time_point since_;
};

/// One launch's blocks, handed out to OS threads.
class GridRun {
 public:
  GridRun(const Launch& launch, const ExecutorOptions& options)
      : launch_(launch),
        options_(options),
        blocks_(std::uint64_t{launch.grid.x} * launch.grid.y * launch.grid.z),
        order_(blocks_, options),
        earlier_(options.earlier_kernels) {}

  Status run() {
    if (!launch_.uses_pdl) earlier_.wait();
    std::vector<std::thread> helpers;
    const std::uint64_t wanted = std::min<std::uint64_t>(os_threads(), blocks_);
    try {
      while (helpers.size() + 1 < wanted) helpers.emplace_back([this] { work(); });
    } catch (const std::system_error&) {
      // The system has no more threads to give: those there are do all the work.
    }
    work();
    for (auto& helper : helpers) helper.join();
    return status_;
  }

 private:
  std::uint64_t os_threads() const {
    static const unsigned cores = std::max(1U, std::thread::hardware_concurrency());
    const unsigned wanted =
        options_.os_threads > 0 ? static_cast<unsigned>(options_.os_threads) : cores;
    return kTsan ? std::min(wanted, kMaxOsThreadsUnderTsan) : wanted;
  }

  struct Begun {
    std::uint64_t index;
    std::unique_ptr<Block> block;
  };

  /// Runs blocks until none is left or one has failed: one at a time, or, where they may wait for
  /// each other, as many as have to begin for any to go on. Never throws.
  void work() {
    std::vector<Begun> mine;
    std::uint64_t current = 0;
    Stall stall(running_, stalled_);
    try {
      for (;;) {
        if (resume(mine)) {
          stall.ends();
        } else if (mine.empty() || launch_.cooperative) {
          const std::uint64_t nth = next_.fetch_add(1, std::memory_order_relaxed);
          if (nth < blocks_) {
            current = order_.at(nth);
            mine.push_back({current, BlockPool::instance().take()});
            mine.back().block->start(launch_, options_, index_of(current), earlier_,
                                     *global_stores_);
            continue;
          }
          if (mine.empty()) break;
          if (!stall.goes_on()) end(mine);
        } else if (!stall.goes_on()) {
          end(mine);
        }
      }
    } catch (const std::bad_alloc&) {
      report(current,
             {StatusCode::kOutOfMemory, "the host executor found no memory for a block of " +
                                            std::to_string(launch_.threads) + " threads"});
    } catch (const std::exception& error) {
      report(current, {StatusCode::kExecutorError,
                       std::string("the host executor failed: ") + error.what()});
    }
  }

  /// Runs each block as far as it comes; those that have ended are gone. False if none went on.
  bool resume(std::vector<Begun>& blocks) {
    bool any = false;
    for (std::size_t i = 0; i < blocks.size();) {
      Block& block = *blocks[i].block;
      if (block.resume()) {
        any = true;
      } else if (block.failed() || !block.waits_for_words()) {
        end(std::move(blocks[i]));
        blocks.erase(blocks.begin() + static_cast<std::ptrdiff_t>(i));
        any = true;
        continue;
      }
      ++i;
    }
    return any;
  }

  void end(Begun begun) {
    const std::string error = begun.block->end();
    if (!error.empty()) {
      report(begun.index, {StatusCode::kExecutorError, "kernel error in " + error});
    }
    begun.block->join();
    BlockPool::instance().give_back(std::move(begun.block));
  }
  /// None of which can go on.
  void end(std::vector<Begun>& blocks) {
    for (Begun& begun : std::exchange(blocks, {})) end(std::move(begun));
  }

  /// Keeps the error of the first block in the grid's order, and hands out no more blocks. Of
  /// blocks that wait for each other it keeps the one that came first: the others wait for that
  /// block.
  void report(std::uint64_t block, Status status) {
    const std::lock_guard lock(mutex_);
    next_.store(blocks_, std::memory_order_relaxed);
    if (launch_.cooperative ? status_.ok() : block < failed_block_) {
      failed_block_ = block;
      status_ = std::move(status);
    }
  }

  uint3 index_of(std::uint64_t linear) const {
    const dim3& grid = launch_.grid;
    return {static_cast<unsigned>(linear % grid.x), static_cast<unsigned>(linear / grid.x % grid.y),
            static_cast<unsigned>(linear / grid.x / grid.y)};
  }

  const Launch& launch_;
  const ExecutorOptions& options_;
  const std::uint64_t blocks_;
  const BlockOrder order_;
  EarlierKernels earlier_;
  const std::shared_ptr<GlobalStores> global_stores_ = make_global_stores();
  std::atomic<std::uint64_t> next_{0};  ///< of the blocks, in their order
  std::atomic<int> running_{0};         ///< OS threads
  std::atomic<int> stalled_{0};         ///< of them
  std::mutex mutex_;
  std::uint64_t failed_block_ = std::numeric_limits<std::uint64_t>::max();
  Status status_;
};

}  // namespace

void fail_operand(const char* name, const char* what_is_wrong, Location loc) {
  fail(current_fiber(), {.name = name, .loc = loc}, what_is_wrong);
}

void wait_for_word(const AwaitedWord& word, Location loc) {
  Fiber& me = current_fiber();
  me.at = {.name = "wait_for_word", .loc = loc};
  me.block.wait_for_word(me, word);
}

void schedule_point() {
  if (current_lane == nullptr) return;
  Fiber& me = current_fiber();
  me.block.preempt(me);
}

void pdl_wait() {
  Fiber& me = current_fiber();
  me.block.pdl_wait(me);
}

Status run_grid(const Launch& launch, const ExecutorOptions& options) {
  if (Status status = check(launch); !status.ok()) return status;
  return GridRun(launch, options).run();
}

}  // namespace gpu::host
