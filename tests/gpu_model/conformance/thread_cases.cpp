// What concerns several threads: indices, barriers, shuffles, atomics, asynchronous copies.
#include <algorithm>
#include <cstdint>
#include <numeric>

#include "tests/gpu_model/conformance/case_builder.hpp"

namespace conformance {
namespace {

std::vector<int> numbers(int count, int step) {
  std::vector<int> values(static_cast<std::size_t>(count));
  for (int i = 0; i < count; ++i) values[i] = (i + 1) * step % 10007;
  return values;
}

Case indices_case() {
  std::vector<int> expected;
  const auto [gx, gy, gz] = kIndexGrid;
  for (unsigned z = 0; z < gz; ++z) {
    for (unsigned y = 0; y < gy; ++y) {
      for (unsigned x = 0; x < gx; ++x) {
        for (int t = 0; t < kIndexThreads; ++t) {
          const int fields[] = {t,
                                t & 31,
                                t >> 5,
                                static_cast<int>(x),
                                static_cast<int>(y),
                                static_cast<int>(z),
                                static_cast<int>(gx),
                                static_cast<int>(gy),
                                static_cast<int>(gz)};
          expected.insert(expected.end(), std::begin(fields), std::end(fields));
        }
      }
    }
  }
  return make_case("indices", Primitive::kIndices, kNoInput, expected, 0);
}

/// After each phase a thread holds what its partner held, plus the phase: with an even number of
/// phases it ends with its own number and the sum of the phases.
Case exchange_case(const char* name, Primitive primitive) {
  static_assert(kBarrierPhases % 2 == 0);
  std::vector<int> expected(kBarrierThreads);
  std::iota(expected.begin(), expected.end(), kBarrierPhases * (kBarrierPhases - 1) / 2);
  return make_case(name, primitive, kNoInput, expected, 0);
}

Case early_start_case() {
  std::vector<int> expected(2 * kEarlyWords);
  for (int i = 0; i < kEarlyWords; ++i) {
    expected[i] = i + 1;
    expected[kEarlyWords + i] = 2 * (kEarlyWords - i);
  }
  return make_case("pdl_wait", Primitive::kEarlyStart, kNoInput, expected, 0);
}

Case named_barriers_case() {
  const auto in = numbers(kRingTiles * kRingConsumers, 31);
  std::vector<int> expected(kRingConsumers, 0);
  for (int tile = 0; tile < kRingTiles; ++tile) {
    for (int i = 0; i < kRingConsumers; ++i) {
      expected[i] += in[tile * kRingConsumers + kRingConsumers - 1 - i];
    }
  }
  return make_case("named_barrier", Primitive::kNamedBarriers, in, expected, 0);
}

Case shuffle_case() {
  const auto in = numbers(kLanes, 77);
  std::vector<float> expected;
  for (int round = 0; round < kShuffleRounds; ++round) {
    for (int lane = 0; lane < kLanes; ++lane) {
      expected.push_back(static_cast<float>(in[(5 * lane + round) % kLanes]));
    }
  }
  return make_case("shfl", Primitive::kShuffle, in, expected, 0);
}

Case shuffle_xor_case() {
  const auto in = numbers(kLanes, 77);
  std::vector<int> expected;
  for (int mask = 0; mask < kLanes; ++mask) {
    for (int lane = 0; lane < kLanes; ++lane) expected.push_back(in[lane ^ mask]);
  }
  return make_case("shfl_xor", Primitive::kShuffleXor, in, expected, 0);
}

Case any_lane_case() {
  std::vector<int> in(kLanes);  // some of the numbers that are asked for, some of them twice
  for (int lane = 0; lane < kLanes; ++lane) in[lane] = lane * lane % (2 * kLanes);
  std::vector<int> expected;
  for (int round = 0; round < kLanes; ++round) {
    const int any = std::ranges::count(in, round) > 0 ? 1 : 0;
    expected.insert(expected.end(), kLanes, any);
  }
  return make_case("any_lane", Primitive::kAnyLane, in, expected, 0);
}

Case atomic_case(const char* name, Primitive primitive) {
  const auto in = numbers(kAtomicWarps * kLanes, 31);
  std::vector<std::uint32_t> expected(kAtomicWords, 0);
  expected[0] = kAtomicStep * kAtomicWarps;
  for (int warp = 0; warp < kAtomicWarps; ++warp) {
    expected[kAtomicTurns + warp] = 1;
    for (int lane = 0; lane < kLanes; ++lane) {
      const auto value = static_cast<std::uint32_t>(in[warp * kLanes + lane]);
      expected[kAtomicParts + lane * kAtomicWarps + warp] = value;
      expected[kAtomicSums + (lane ^ (kLanes - 1))] += value;
    }
  }
  return make_case(name, primitive, in, expected, 0);
}

/// The largest in the place of an even thread, above 2^31.
Case atomic_max_case() {
  std::vector<std::uint32_t> in;
  for (const int value : numbers(kAtomicWarps * kLanes, 37)) {
    in.push_back(static_cast<std::uint32_t>(value));
  }
  in[in.size() / 2 & ~std::size_t{1}] = 0xfffffff0U;
  in[in.size() / 3 | 1U] = 0x80000005U;
  const auto threads = static_cast<std::uint32_t>(in.size());
  const std::vector<std::uint32_t> expected = {0xfffffff0U, 0x80000005U, threads, threads};
  return make_case("atomic_max_relaxed", Primitive::kAtomicMax, in, expected, 0);
}

Case blocks_at_once_case() {
  std::vector<std::uint32_t> in;
  for (const int value : numbers(kAtomicWarps * kLanes, 37)) {
    in.push_back(static_cast<std::uint32_t>(value) * 2 + 1);
  }
  std::vector<std::uint32_t> expected = in;
  for (std::size_t i = 0; i < in.size(); ++i) {
    std::uint32_t sum = in[i];
    for (std::size_t j = i % kAtomicThreads; j < in.size(); j += kAtomicThreads) sum += in[j];
    expected.push_back(sum);
  }
  return make_case("blocks_at_once", Primitive::kBlocksAtOnce, in, expected, 0);
}

Case wait_for_word_case(const char* name, Primitive primitive, bool wide) {
  const auto in = numbers((kWordWarps - 1) * kLanes, 59);
  std::vector<std::uint32_t> expected(kWordSums + kLanes, 0);
  expected[0] = kWordWarps - 1;
  if (wide) expected[1] = kWordWarps - 1;
  for (int i = 0; i < (kWordWarps - 1) * kLanes; ++i) {
    const auto value = static_cast<std::uint32_t>(in[i]);
    expected[kWordParts + i] = value;
    expected[kWordSums + i % kLanes] += value;
  }
  for (int lane = 0; lane < kLanes; ++lane) expected[kWordSums + lane] += kWordWarps - 1;
  return make_case(name, primitive, in, expected, 0);
}

std::vector<std::uint8_t> some_bytes(int count) {
  std::vector<std::uint8_t> bytes(static_cast<std::size_t>(count));
  for (int i = 0; i < count; ++i) bytes[i] = static_cast<std::uint8_t>(i * 7 + i / 256 + 1);
  return bytes;
}

Case cp_async_case() {
  const auto in = some_bytes(kCopyTiles * kCopyThreads * kCopyBytes);
  std::vector<std::uint8_t> expected(in.size());
  for (int tile = 0; tile < kCopyTiles; ++tile) {
    for (int chunk = 0; chunk < kCopyThreads; ++chunk) {
      const int from = (tile * kCopyThreads + kCopyThreads - 1 - chunk) * kCopyBytes;
      const int to = (tile * kCopyThreads + chunk) * kCopyBytes;
      for (int i = 0; i < kCopyBytes; ++i) expected[to + i] = in[from + i];
    }
  }
  return make_case("cp_async_16", Primitive::kCpAsync, in, expected, 0);
}

Case cp_async_zfill_case() {
  const auto in = some_bytes(kLanes * kCopyBytes);
  std::vector<std::uint8_t> expected(in.size());
  for (int i = 0; i < kLanes * kCopyBytes; ++i) {
    expected[i] = i / kCopyBytes % 3 != 0 ? in[i] : std::uint8_t{0};
  }
  return make_case("cp_async_16_zfill", Primitive::kCpAsyncZfill, in, expected, 0);
}

}  // namespace

void add_thread_cases(std::vector<Case>& all) {
  all.push_back(indices_case());
  all.push_back(exchange_case("sync_block", Primitive::kSyncBlock));
  all.push_back(exchange_case("sync_warp", Primitive::kSyncWarp));
  all.push_back(named_barriers_case());
  all.push_back(shuffle_case());
  all.push_back(shuffle_xor_case());
  all.push_back(any_lane_case());
  all.push_back(atomic_case("atomic_add_acq_rel", Primitive::kAtomicAdd));
  all.push_back(atomic_case("atomic_cas_acq_rel_if", Primitive::kAtomicCas));
  all.push_back(atomic_max_case());
  all.push_back(blocks_at_once_case());
  all.push_back(wait_for_word_case("wait_for_word", Primitive::kWaitForWord, false));
  all.push_back(wait_for_word_case("wait_for_wide_word", Primitive::kWaitForWideWord, true));
  all.push_back(early_start_case());
  all.push_back(cp_async_case());
  all.push_back(cp_async_zfill_case());
}

}  // namespace conformance
