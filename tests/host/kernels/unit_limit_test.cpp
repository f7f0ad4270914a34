// How much V sm90 kernels serve whose blocks transpose it for each other, and count in 24 bits.
#include <gtest/gtest.h>

#include <cstdint>
#include <string>

#include "sm90/sm90.hpp"

namespace fp8_sdpa {
namespace {

constexpr std::int64_t kMostUnits = 16711680;  // 2^24, less room for what blocks claim in vain
constexpr std::int64_t kTileKeys = 128;
constexpr std::int64_t kTileRows = 128;

/// Contiguous, at no address: supports() looks at none.
Problem problem_of(int heads_q, int heads_kv, std::int64_t seq_q, std::int64_t seq_kv) {
  constexpr int kHeadDim = 256;
  Problem p;
  p.batch = 1;
  p.heads_q = heads_q;
  p.heads_kv = heads_kv;
  p.seq_q = seq_q;
  p.seq_kv = seq_kv;
  p.head_dim = kHeadDim;
  p.q = {nullptr, Dtype::kE4M3, seq_q * kHeadDim * heads_q, seq_q * kHeadDim, kHeadDim, 1};
  p.k = {nullptr, Dtype::kE4M3, seq_kv * kHeadDim * heads_kv, seq_kv * kHeadDim, kHeadDim, 1};
  p.v = p.k;
  return p;
}

TEST(Supports, UnitsThatBlocksCountHaveAnEnd) {
  const Device device = [] {
    Device hopper;
    hopper.backend = Backend::kDevice;
    hopper.sm_version = 90;
    return hopper;
  }();
  int asked = 0;
  for (const sm90::TileShape& shape : sm90::kTileShapes) {
    if (!shape.config.transposes_once()) continue;
    ++asked;
    // Two units a tile of keys, and one tile of rows.
    const std::int64_t tiles = (kMostUnits - 1) / 2;
    EXPECT_TRUE(sm90::supports(shape, problem_of(1, 1, 1, tiles * kTileKeys), device).ok());
    const Status keys = sm90::supports(shape, problem_of(1, 1, 1, tiles * kTileKeys + 1), device);
    EXPECT_EQ(keys.message(), std::string(shape.variant) +
                                  " serves at most 16711680 units of V (128 keys) and tiles of "
                                  "query rows together");
    // Two heads of as many tiles of rows, and two tiles of keys.
    const std::int64_t rows = (kMostUnits - 4) / 2 * kTileRows;
    EXPECT_TRUE(sm90::supports(shape, problem_of(2, 1, rows, 2 * kTileKeys), device).ok());
    EXPECT_EQ(sm90::supports(shape, problem_of(2, 1, rows + 1, 2 * kTileKeys), device).code(),
              StatusCode::kUnsupported);
  }
  EXPECT_GT(asked, 0);
}

}  // namespace
}  // namespace fp8_sdpa
