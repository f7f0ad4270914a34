// mbarrier, TMA, elect.sync, setmaxnreg: what they must move and count.
#include <algorithm>
#include <array>
#include <cstdint>
#include <numeric>

#include "gpu/host/executor/random.hpp"
#include "tests/gpu_model/conformance/case_builder.hpp"

namespace conformance {
namespace {

Case hopper_only(Case c, bool only_sm_90a) {
  c.min_sm_version = 90;
  c.only_sm_90a = only_sm_90a;
  return c;
}

Case mbarrier_case() {
  std::vector<int> in(static_cast<std::size_t>(kMBarrierTiles) * kMBarrierConsumers);
  for (std::size_t i = 0; i < in.size(); ++i) in[i] = static_cast<int>((i + 1) * 7919 % 10007);
  std::vector<int> expected(kMBarrierConsumers, 0);
  for (int t = 0; t < kMBarrierConsumers; ++t) {
    for (int tile = 0; tile < kMBarrierTiles; ++tile) {
      expected[t] += in[tile * kMBarrierConsumers + (t + 1) % kMBarrierConsumers];
    }
  }
  return make_case("mbarrier_ring", Primitive::kMBarrier, in, expected, 0);
}

Case mbarrier_arrive_if_case() {
  std::vector<int> in(kArriveIfThreads);
  for (int t = 0; t < kArriveIfThreads; ++t) in[t] = (t + 1) * 7919 % 10007;
  std::vector<int> values = in;
  for (int round = 0; round < kArriveIfRounds; ++round) {
    const std::vector<int> before = values;
    for (int t = 0; t < kArriveIfThreads; ++t) {
      const int next = (t / kArriveIfEvery + 1) % kArriveIfCount;
      values[t] += before[next * kArriveIfEvery + round % kArriveIfEvery];
    }
  }
  return make_case("mbarrier_arrive_if", Primitive::kMBarrierArriveIf, in, values, 0);
}

std::vector<std::uint8_t> random_bytes(int count) {
  gpu::host::Random random(21);
  std::vector<std::uint8_t> bytes(static_cast<std::size_t>(count));
  for (auto& byte : bytes) byte = static_cast<std::uint8_t>(random.below(256));
  return bytes;
}

/// Where the byte that is number `linear` of a box lies. A row is as wide as the swizzle, and its
/// 16-byte chunks are permuted by the row's number, in steps that fill 128 bytes.
int place(const TmaConfig& c, int linear) {
  if (c.swizzle_bytes == 0) return linear;
  const int row = linear / c.swizzle_bytes;
  const int chunk = linear % c.swizzle_bytes / 16;
  const int chunks = c.swizzle_bytes / 16;
  const int rows_per_line = 128 / c.swizzle_bytes;
  return row * c.swizzle_bytes + (chunk ^ (row / rows_per_line % chunks)) * 16 + linear % 16;
}

/// Calls visit(byte of the box, byte of the tensor or -1 if that is outside).
template <class Visit>
void for_each_byte(const TmaConfig& c, Visit visit) {
  const int row_bytes = c.box[0] * c.element_bytes;
  const int pitch = (c.sizes[0] * c.element_bytes + 15) / 16 * 16;
  int linear = 0;
  for (int w = 0; w < c.box[3]; ++w) {
    for (int z = 0; z < c.box[2]; ++z) {
      for (int y = 0; y < c.box[1]; ++y) {
        for (int byte = 0; byte < row_bytes; ++byte, ++linear) {
          const std::array<int, 4> at = {c.at[0] + byte / c.element_bytes, c.at[1] + y, c.at[2] + z,
                                         c.at[3] + w};
          bool inside = true;
          for (int d = 0; d < c.rank; ++d) inside = inside && at[d] >= 0 && at[d] < c.sizes[d];
          const int row = (at[3] * c.sizes[2] + at[2]) * c.sizes[1] + at[1];
          visit(linear, inside ? row * pitch + c.at[0] * c.element_bytes + byte : -1);
        }
      }
    }
  }
}

Case tma_load_case() {
  const auto in = random_bytes(kTmaTensorSlot);
  std::vector<std::uint8_t> expected(static_cast<std::size_t>(kTmaCount) * kTmaBoxSlot, 0xff);
  for (int i = 0; i < kTmaCount; ++i) {
    for_each_byte(kTmaConfigs[i], [&](int box, int tensor) {
      expected[i * kTmaBoxSlot + place(kTmaConfigs[i], box)] = tensor < 0 ? 0 : in[tensor];
    });
  }
  return make_case("tma_load", Primitive::kTmaLoad, in, expected, 0);
}

Case bulk_load_case() {
  const auto in = random_bytes(kBulkIn);
  std::vector<std::uint8_t> expected;
  for (int round = 0; round < kBulkRounds; ++round) {
    std::vector<std::uint8_t> shared(kBulkOut, static_cast<std::uint8_t>(round));
    for (const BulkCopy& copy : kBulkCopies) {
      std::copy_n(in.begin() + copy.from, copy.bytes, shared.begin() + copy.to);
    }
    expected.insert(expected.end(), shared.begin(), shared.end());
  }
  return make_case("bulk_load", Primitive::kBulkLoad, in, expected, 0);
}

Case global_store_case() {
  constexpr int kChunk = 16;
  const auto in = random_bytes(kStoreRounds * kStoreBytes);
  std::vector<std::uint8_t> fetched;
  for (int round = 0; round < kStoreRounds; ++round) {
    for (int t = 0; t < kStoreThreads; ++t) {
      const auto from = in.begin() + round * kStoreBytes + (kStoreThreads - 1 - t) * kChunk;
      fetched.insert(fetched.end(), from, from + kChunk);
    }
  }
  std::vector<std::uint8_t> expected(fetched.end() - kStoreBytes, fetched.end());
  expected.insert(expected.end(), fetched.begin(), fetched.end());
  return make_case("store_global_16", Primitive::kGlobalStore, in, expected, 0);
}

Case elect_case() {
  std::vector<int> expected;
  for (int warp = 0; warp < kElectThreads / kLanes; ++warp) {
    expected.insert(expected.end(), {kElectRounds, 1});
  }
  return make_case("elect_one", Primitive::kElectOne, kNoInput, expected, 0);
}

Case setmaxnreg_case() {
  std::vector<int> expected(kSetmaxnregThreads);
  for (int t = 0; t < kSetmaxnregThreads; ++t) expected[t] = t < 128 ? t : -t;
  return make_case("setmaxnreg", Primitive::kSetmaxnreg, kNoInput, expected, 0);
}

}  // namespace

void add_hopper_cases(std::vector<Case>& all) {
  all.push_back(hopper_only(mbarrier_case(), false));
  all.push_back(hopper_only(mbarrier_arrive_if_case(), false));
  all.push_back(hopper_only(tma_load_case(), true));
  all.push_back(hopper_only(bulk_load_case(), false));
  all.push_back(hopper_only(global_store_case(), false));
  all.push_back(hopper_only(elect_case(), false));
  all.push_back(hopper_only(setmaxnreg_case(), true));
}

}  // namespace conformance
