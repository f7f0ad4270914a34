// What a family serves, from both sides of each limit; nothing is launched or read.
#include <gtest/gtest.h>

#include <array>
#include <cstdint>
#include <ostream>
#include <string>
#include <tuple>

#include "attention/ladder_limits.hpp"
#include "dispatch/resources.hpp"
#include "dispatch/variant.hpp"
#include "dispatch/variant_impl.hpp"
#include "sm90/sm90.hpp"
#include "tests/host/kernels/made_up.hpp"

namespace fp8_sdpa {

namespace sm90 {
static void PrintTo(const TileShape& shape, std::ostream* os) { *os << shape.kernel; }
}  // namespace sm90

namespace tests {
namespace {

/// Served, or declined with a message in which `reason` stands.
void expect_limit(const Status& status, bool served, const char* reason) {
  EXPECT_EQ(status.ok(), served) << status.message();
  if (served) return;
  EXPECT_EQ(status.code(), StatusCode::kUnsupported);
  EXPECT_NE(status.message().find(reason), std::string::npos) << status.message();
}

/// One head of a tile of query rows, and keys that the kernel serves.
/// Of V, beside signed bytes.
Dtype value_format(const sm90::TileShape& shape) {
  return shape.config.formats == sm90::Formats::kInt8Half ? Dtype::kHalf : Dtype::kBFloat16;
}
Problem problem_of(const sm90::TileShape& shape) {
  Problem p =
      made_up(1, 1, 1, shape.config.tile_m(), shape.config.two_terms ? 128 : 256, shape.head_dim);
  if (shape.config.int8()) {
    p.q.dtype = p.k.dtype = Dtype::kInt8;
    p.v.dtype = value_format(shape);
  }
  return p;
}

class Sm90Limits : public testing::TestWithParam<sm90::TileShape> {
 protected:
  static Status supports(const Problem& p) {
    return sm90::supports(GetParam(), p, host_executor());
  }
};

TEST_P(Sm90Limits, Sm90AndNoOtherDevice) {
  for (const int sm : {80, 89, 90, 91, 100, 103, 120}) {
    expect_limit(sm90::supports(GetParam(), problem_of(GetParam()), made_up_device(sm)), sm == 90,
                 " needs sm_90; ");
  }
}

TEST_P(Sm90Limits, Sequences) {
  constexpr std::int64_t kMost = 1'073'741'823;
  const char* const reason = " serves sequences up to 1073741823, not ";
  for (const std::int64_t seq : {kMost, kMost + 1}) {
    Problem p = problem_of(GetParam());
    p.seq_q = seq;
    expect_limit(supports(p), seq == kMost, reason);
    const sm90::Config& config = GetParam().config;
    if (config.two_terms || config.transposes_once()) continue;  // limits of their own
    p = problem_of(GetParam());
    p.seq_kv = seq;
    expect_limit(supports(p), seq == kMost, reason);
  }
}

TEST_P(Sm90Limits, KeysOfTwoTerms) {
  const bool few = GetParam().config.two_terms;
  for (const std::int64_t keys : {1, 127, 128, 129}) {
    Problem p = problem_of(GetParam());
    p.seq_kv = keys;
    const std::string reason = " 128 keys, not " + std::to_string(keys);
    const bool any = GetParam().config.int8();
    expect_limit(supports(p), any || few == (keys <= 128), reason.c_str());
  }
}

// Signed bytes, and V in the kernel's format of 16 bits.
TEST_P(Sm90Limits, FormatsOfInt8) {
  if (!GetParam().config.int8()) return;
  const Dtype own = value_format(GetParam());
  for (const Dtype v : {Dtype::kHalf, Dtype::kBFloat16}) {
    Problem p = problem_of(GetParam());
    p.v.dtype = v;
    const std::string reason =
        std::string(" serves int8 q and k and ") + name_of(own) + " v, not int8 and " + name_of(v);
    expect_limit(supports(p), v == own, reason.c_str());
    p.v.dtype = own;
    p.descales.v = nullptr;
    expect_limit(supports(p), true, "");
    std::tie(p.v.stride_seq, p.v.stride_dim) = std::pair{1, 256};
    expect_limit(supports(p), false, " serves a row-major v (stride_dim 1), not stride_dim 256");
  }
}

// E4M3 throughout, and otherwise each tensor's format is said.
TEST_P(Sm90Limits, Formats) {
  if (GetParam().config.int8()) return;
  constexpr std::array kFormats = {Dtype::kE4M3, Dtype::kE5M2};
  for (const Dtype q : kFormats) {
    for (const Dtype k : kFormats) {
      for (const Dtype v : kFormats) {
        Problem p = problem_of(GetParam());
        p.q.dtype = q;
        p.k.dtype = k;
        p.v.dtype = v;
        const std::string reason =
            q == k && k == v ? " serves e4m3, not e5m2"
                             : std::string(" serves one FP8 format for q, k and v, not ") +
                                   name_of(q) + ", " + name_of(k) + " and " + name_of(v);
        expect_limit(supports(p), q == k && k == v && q == Dtype::kE4M3, reason.c_str());
      }
    }
  }
}

// Each used axis of each of q, k and v. That of one element may have any stride.
TEST_P(Sm90Limits, StridesOfMaps) {
  constexpr std::int64_t kBelow = std::int64_t{1} << 40;
  for (const int tensor : {0, 1, 2, 3}) {  // 3: v, transposed
    for (const int axis : {0, 1, 2}) {
      for (const bool alone : {false, true}) {
        Problem p = problem_of(GetParam());
        p.batch = p.heads_q = p.heads_kv = 2;
        p.seq_q = 2;
        if (GetParam().config.two_terms) p.seq_kv = 2;
        if (alone && axis == 0) p.batch = 1;
        if (alone && axis == 1) p.heads_q = p.heads_kv = 1;
        if (alone && axis == 2) {
          // One query or, of two_terms, one key: no other kernel serves so few.
          const bool one_key = GetParam().config.two_terms || GetParam().config.int8();
          if (tensor == 3 || (tensor > 0 && !one_key)) continue;
          (tensor == 0 ? p.seq_q : p.seq_kv) = 1;
        }
        Tensor& t = *std::array{&p.q, &p.k, &p.v, &p.v}[static_cast<std::size_t>(tensor)];
        const bool row_major_alone = GetParam().config.ragged || GetParam().config.int8();
        if (tensor == 3 && row_major_alone) continue;
        if (tensor == 3) std::tie(t.stride_seq, t.stride_dim) = std::pair{1, 256};
        std::int64_t& stride = *std::array{
            &t.stride_batch, &t.stride_head,
            tensor == 3 ? &t.stride_dim : &t.stride_seq}[static_cast<std::size_t>(axis)];
        SCOPED_TRACE(testing::Message() << tensor << " " << axis << " " << alone);
        for (const std::int64_t value : {kBelow - 16, kBelow}) {
          stride = value / size_of(t.dtype);
          expect_limit(supports(p), alone || value < kBelow, " serves strides below 2^40 bytes");
        }
        stride = 0;
        expect_limit(supports(p), alone || axis < 2, " serves no broadcast rows (stride 0) in ");
      }
    }
  }
}

/// Sizes and whether they are served.
struct Tiles {
  int batch, heads;
  std::int64_t tiles;
  bool served;
};

// Blocks that transpose V for each other count in 24 bits: units of V, and tiles of query rows that
// may ask for one in vain.
TEST_P(Sm90Limits, UnitsOfV) {
  const sm90::Config& config = GetParam().config;
  if (!config.transposes_once()) return;
  constexpr std::int64_t kMost = 16'711'680;
  const char* const reason =
      " serves at most 16711680 units of V (128 keys) and tiles of query rows together";
  ASSERT_EQ(config.tile_n, 128);
  ASSERT_EQ(GetParam().head_dim, 256);  // two units a tile of keys
  for (const std::int64_t more : {0, 1}) {
    const std::int64_t keys = (kMost - 1) / 2 * config.tile_n + more;  // and one tile of rows
    Problem p = made_up(1, 1, 1, 1, keys, GetParam().head_dim);
    expect_limit(supports(p), more == 0, reason);
    // Two heads of as many tiles of rows, and two tiles of keys.
    const std::int64_t rows = (kMost - 4) / 2 * config.tile_m() + more;
    p = made_up(1, 2, 1, rows, 2 * config.tile_n, GetParam().head_dim);
    expect_limit(supports(p), more == 0, reason);
    // Two batches of two heads: eight units a tile of keys, four tiles a tile of rows.
    p = made_up(2, 2, 2, (2 + more) * config.tile_m(), (kMost / 8 - 1) * config.tile_n,
                GetParam().head_dim);
    expect_limit(supports(p), more == 0, reason);
  }
}

TEST_P(Sm90Limits, ResourcesAreOfAKernelOfTheVariant) {
  const auto variant = find_variant(GetParam().variant);
  ASSERT_TRUE(variant.ok());
  const Resources resources = resources_at(**variant, GetParam().head_dim);
  bool found = false;
  for (const sm90::TileShape& shape : sm90::kTileShapes) {
    found = found ||
            (shape.variant == GetParam().variant && shape.head_dim == GetParam().head_dim &&
             shape.config.tile_m() == resources.tile_m && shape.config.tile_n == resources.tile_n);
  }
  EXPECT_TRUE(found) << resources.tile_m << " x " << resources.tile_n;
}

TEST_P(Sm90Limits, WorkTiles) {
  const sm90::Config& config = GetParam().config;
  if (config.transposes_once()) return;  // its units of V have a lower limit
  constexpr int kMost = 1'073'741'823;
  for (const auto& [batch, heads, tiles, served] :
       {Tiles{1, kMost, 1, true}, Tiles{1, kMost + 1, 1, false}, Tiles{2, kMost / 2, 1, true},
        Tiles{2, kMost / 2 + 1, 1, false}, Tiles{kMost, 1, 1, true}, Tiles{kMost + 1, 1, 1, false},
        Tiles{1, 1 << 20, 1023, true}, Tiles{1, 1 << 20, 1024, false},
        Tiles{2, 1 << 19, 1023, true}, Tiles{2, 1 << 19, 1024, false},
        // 2^32 of them: 0, as an int.
        Tiles{1 << 28, 16, 1, false}}) {
    if (batch > 2 && config.v_in_workspace()) continue;  // their keys have a lower limit
    SCOPED_TRACE(testing::Message() << batch << " x " << heads << " x " << tiles);
    Problem p = problem_of(GetParam());
    p.batch = batch;
    p.heads_q = heads;
    for (const int rows : {1, config.tile_m()}) {  // of the last tile
      p.seq_q = (tiles - 1) * config.tile_m() + rows;
      expect_limit(supports(p), served, " serves at most 1073741823 tiles of ");
    }
  }
}

TEST_P(Sm90Limits, TilesOfKeysInTheWorkspace) {
  const sm90::Config& config = GetParam().config;
  if (!config.v_in_workspace() || config.transposes_once()) return;
  for (const auto& [batch, heads, tiles, served] :
       {Tiles{1, 268'435'455, 2, true}, Tiles{1, 268'435'456, 2, false},
        Tiles{2, 134'217'727, 2, true}, Tiles{2, 134'217'728, 2, false},
        Tiles{1, 178'956'970, 3, true}, Tiles{1, 178'956'971, 3, false}}) {
    SCOPED_TRACE(testing::Message() << batch << " x " << heads << " x " << tiles);
    Problem p = problem_of(GetParam());
    p.batch = batch;
    p.heads_q = p.heads_kv = heads;
    for (const int keys : {1, config.tile_n}) {
      p.seq_kv = (tiles - 1) * config.tile_n + keys;
      expect_limit(supports(p), served, " serves at most 1073741823 tiles of 128 keys");
    }
  }
}

// A kernel of exact sums beside one of rounded weights.
TEST_P(Sm90Limits, KernelsOfExactSumsAreKnown) {
  int kernels = 0;
  for (const sm90::TileShape& other : sm90::kTileShapes) {
    kernels += other.variant == GetParam().variant && other.head_dim == GetParam().head_dim ? 1 : 0;
  }
  const Variant& variant = **find_variant(GetParam().variant);
  EXPECT_EQ(variant.has_kernel_of_exact_sums(GetParam().head_dim), kernels == 2);
  EXPECT_FALSE(variant.has_kernel_of_exact_sums(96));
}

INSTANTIATE_TEST_SUITE_P(Limits, Sm90Limits, testing::ValuesIn(sm90::kTileShapes),
                         [](const testing::TestParamInfo<sm90::TileShape>& info) {
                           return std::string(info.param.kernel);
                         });

constexpr attention::LadderFamily kLadder{
    .name = "ladder", .min_sm_version = 89, .tile_m = 32, .tile_n = 64};

// Each family's devices, whatever this build has code for.
TEST(Supports, DevicesThatAFamilyIsNotForAreDeclined) {
  const Problem problem = made_up(1, 2, 2, 32, 32, 64);
  for (const int sm : {75, 79, 80, 86, 88, 89, 90, 91, 100, 120}) {
    const Device device = made_up_device(sm);
    for (const Variant& variant : variants()) {
      if (!variant.supports(problem, host_executor()).ok()) continue;  // for other head dims
      SCOPED_TRACE(testing::Message() << variant.name << " on sm_" << sm);
      const Status status = variant.impl->supports(problem, device);
      const bool is_sm90 = variant.family == Family::kSm90;
      const int oldest = variant.family == Family::kSm89 ? 89 : 80;
      if (is_sm90 ? sm != 90 : sm < oldest) {
        EXPECT_NE(status.message().find(is_sm90 ? " needs sm_90; " : " or newer; "),
                  std::string::npos)
            << status.message();
        EXPECT_EQ(variant.supports(problem, device).code(), StatusCode::kUnsupported);
      } else {
        EXPECT_TRUE(status.ok() ||
                    status.message().find(" was not compiled for ") != std::string::npos)
            << status.message();
      }
    }
  }
}

TEST(LadderLimits, DevicesAndTheCodeForThem) {
  struct Row {
    const char* archs;
    int sm;
    const char* reason;  ///< "": served
  };
  for (const auto& [archs, sm, reason] :
       {Row{"89-real", 88, " needs sm_89 or newer; "}, Row{"", 75, " needs sm_89 or newer; "},
        Row{"89-real", 89, ""}, Row{"89-real", 90, ": this build has device code for 89-real; "},
        Row{"80-real", 89, " was not compiled for sm_89 "}, Row{"80-virtual", 90, " not compiled "},
        Row{"88-virtual", 90, " not compiled "}, Row{"89-virtual", 120, ""},
        Row{"80-real,90-virtual", 90, ""}, Row{"90a-real", 90, ""},
        Row{"90a-real", 89, " not compiled "}, Row{"90a-real", 100, " not compiled "},
        Row{"", 90, " device code for nothing; "}}) {
    SCOPED_TRACE(testing::Message() << "'" << archs << "' on sm_" << sm);
    const Problem p = made_up(1, 1, 1, 32, 32, 64);
    Device device = made_up_device(sm);
    expect_limit(attention::check_ladder_limits(kLadder, p, device, {archs}), *reason == '\0',
                 reason);
    device.backend = Backend::kHost;
    expect_limit(attention::check_ladder_limits(kLadder, p, device, {archs}), true, "");
  }
}

TEST(LadderLimits, Sequences) {
  constexpr std::int64_t kMost = 2'147'483'647 - 128;  // tiles of 64 keys
  for (const std::int64_t seq : {kMost, kMost + 1}) {
    const std::string reason = " serves sequences up to 2147483519, not ";
    const std::string text = std::to_string(seq);
    expect_limit(
        attention::check_ladder_limits(kLadder, made_up(1, 1, 1, seq, 1, 64), host_executor()),
        seq == kMost, (reason + text + " and 1").c_str());
    expect_limit(
        attention::check_ladder_limits(kLadder, made_up(1, 1, 1, 1, seq, 64), host_executor()),
        seq == kMost, (reason + "1 and " + text).c_str());
  }
}

TEST(LadderLimits, Blocks) {
  constexpr int kMost = 2'147'483'647;
  for (const auto& [batch, heads, tiles, served] :
       {Tiles{1, kMost, 1, true}, Tiles{2, kMost / 2, 1, true}, Tiles{2, kMost / 2 + 1, 1, false},
        Tiles{kMost, 1, 1, true}, Tiles{kMost, 1, 2, false}, Tiles{1, 1 << 20, 2047, true},
        Tiles{1, 1 << 20, 2048, false}}) {
    SCOPED_TRACE(testing::Message() << batch << " x " << heads << " x " << tiles);
    Problem p = made_up(1, 1, 1, 32, 32, 64);
    p.batch = batch;
    p.heads_q = p.heads_kv = heads;
    for (const int rows : {1, kLadder.tile_m}) {
      p.seq_q = (tiles - 1) * kLadder.tile_m + rows;
      expect_limit(
          attention::check_ladder_limits(kLadder, p, host_executor()), served,
          " launches one block per 32 query rows and head, at most 2147483647 blocks, not ");
    }
  }
}

}  // namespace
}  // namespace tests
}  // namespace fp8_sdpa
