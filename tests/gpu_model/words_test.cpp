// Words of global memory that one thread waits for and another one changes.
#include <cstdint>

#include "tests/gpu_model/support.hpp"

namespace gpu_model::words {
namespace {

using fp8_sdpa::ExecutorOptions;

constexpr int kThreads = 64;
constexpr unsigned kBlocks = 6;

struct Words {
  std::uint32_t told[kBlocks] = {};
  int written[kBlocks] = {};
  int seen[kBlocks] = {};
};

/// One warp waits for what the other tells it.
TEST(Words, AWarpWaitsForAnother) {
  for (const ExecutorOptions& options : adversaries(4)) {
    Words words;
    const auto status = run_kernel<kThreads>(
        [](void* data, NoShared&) {
          auto& w = *static_cast<Words*>(data);
          if (gpu::lane_idx() != 0) return;
          if (gpu::warp_idx() == 0) {
            gpu::wait_for_word(w.told, 2);
            w.seen[0] = w.written[0];
          } else {
            gpu::atomic_add_acq_rel(w.told, 1);
            w.written[0] = 7;
            gpu::atomic_add_acq_rel(w.told, 1);
          }
        },
        &words, options);
    ASSERT_TRUE(status.ok()) << status.message();
    EXPECT_EQ(words.seen[0], 7);
    EXPECT_EQ(gpu::load_acquire(words.told), 2U);
  }
}

/// Each block writes, tells the next one, and waits for the one before it: in the order of their
/// beginning nobody waits for one that has not begun.
struct Chain {
  struct Params {
    Words* words;
  };
  using Shared = NoShared;
  static constexpr int kThreads = 32;
  static constexpr int kMinBlocks = 1;
  GPU_FN static void run(const Params& p, Shared& /*unused*/) {
    if (gpu::thread_idx() != 0) return;
    Words& words = *p.words;
    const unsigned block = gpu::block_idx().x;
    if (block > 0) {
      gpu::wait_for_word(words.told + block - 1, 1);
      words.seen[block] = words.written[block - 1];
    }
    words.written[block] = static_cast<int>(block) + 100;
    gpu::atomic_add_acq_rel(words.told + block, 1);
  }
};

TEST(Words, BlocksWaitForThoseThatRun) {
  for (int os_threads = 1; os_threads <= 4; ++os_threads) {
    for (int repeat = 0; repeat < 10; ++repeat) {
      Words words;
      const ExecutorOptions options{.schedule = fp8_sdpa::Schedule::kFifo,
                                    .os_threads = os_threads};
      const auto status = gpu::launch<Chain>(dim3(kBlocks), {&words}, {.executor = &options});
      ASSERT_TRUE(status.ok()) << status.message();
      for (unsigned block = 1; block < kBlocks; ++block) {
        EXPECT_EQ(words.seen[block], static_cast<int>(block) + 99);
      }
    }
  }
}

// No GPU promises that a block begins while another one waits for it.
TEST(Words, NobodyIsWaitedForWhoHasNotBegun) {
  Words words;
  const ExecutorOptions options{.schedule = fp8_sdpa::Schedule::kLifo, .os_threads = 1};
  const auto status = gpu::launch<Chain>(dim3(kBlocks), {&words}, {.executor = &options});
  expect_kernel_error(status, {"block (5, 0, 0)", "deadlock", "wait_for_word", "words_test.cpp"});
}

/// Each block tells the others, and waits for all of them.
template <bool kAtOnce>
struct Ring {
  struct Params {
    Words* words;
    unsigned silent;  ///< a block that tells nobody
  };
  using Shared = NoShared;
  static constexpr int kThreads = 32;
  static constexpr int kMinBlocks = 1;
  static constexpr bool kCooperative = kAtOnce;
  GPU_FN static void run(const Params& p, Shared& /*unused*/) {
    if (gpu::thread_idx() != 0) return;
    const unsigned block = gpu::block_idx().x;
    if (block != p.silent) gpu::store_relaxed(&p.words->told[block], block + 1);
    for (unsigned other = 0; other < kBlocks; ++other) {
      p.words->seen[block] += static_cast<int>(gpu::wait_while_zero(&p.words->told[other]));
    }
  }
};

TEST(Words, BlocksThatRunAtOnceWaitForEachOther) {
  for (int os_threads = 1; os_threads <= 4; ++os_threads) {
    for (const auto schedule : {fp8_sdpa::Schedule::kFifo, fp8_sdpa::Schedule::kLifo}) {
      Words words;
      const ExecutorOptions options{.schedule = schedule, .os_threads = os_threads};
      const auto status =
          gpu::launch<Ring<true>>(dim3(kBlocks), {&words, kBlocks}, {.executor = &options});
      ASSERT_TRUE(status.ok()) << status.message();
      for (const int seen : words.seen) EXPECT_EQ(seen, 21);
    }
  }
}

// What a launch that is not cooperative would be left with on a GPU that is busy.
TEST(Words, BlocksThatMayNotRunAtOnceWaitForEachOtherInVain) {
  Words words;
  const ExecutorOptions options{.os_threads = 1};
  const auto status =
      gpu::launch<Ring<false>>(dim3(kBlocks), {&words, kBlocks}, {.executor = &options});
  expect_kernel_error(status, {"deadlock", "wait_for_word", "words_test.cpp"});
}

TEST(Words, BlocksThatRunAtOnceAndWaitForOneThatIsSilentAreADeadlock) {
  for (int os_threads = 1; os_threads <= 2; ++os_threads) {
    Words words;
    const ExecutorOptions options{.os_threads = os_threads};
    const auto status = gpu::launch<Ring<true>>(dim3(kBlocks), {&words, 3}, {.executor = &options});
    expect_kernel_error(status, {"deadlock", "wait_for_word", "words_test.cpp"});
  }
}

TEST(Words, AWordThatNobodyWritesIsADeadlock) {
  for (int os_threads = 1; os_threads <= 2; ++os_threads) {
    Words words;
    const auto status = run_kernel<kThreads>(
        [](void* data, NoShared&) {
          auto& w = *static_cast<Words*>(data);
          if (gpu::thread_idx() == 40) gpu::wait_for_word(w.told, 1);
          gpu::sync_block();
        },
        &words, ExecutorOptions{.os_threads = os_threads}, dim3(2));
    expect_kernel_error(status, {"deadlock", "threads 40 wait", "wait_for_word", "words_test.cpp"});
  }
}

}  // namespace
}  // namespace gpu_model::words
