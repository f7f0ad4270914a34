// DEBUG_PRINT: the lines that a kernel prints are the algorithm's own numbers. Compiled here with
// the option on, for kernels of tags of this file's own.
#define FP8_SDPA_DEBUG_PRINT 1
#include <gtest/gtest.h>

#include <cmath>
#include <sstream>
#include <string>
#include <vector>

#include "reference/formats/fp8.hpp"
#include "stage_c/kernel.cuh"
#include "tests/gates/gate_cases.hpp"

namespace fp8_sdpa::tests {
namespace {

constexpr int kRows = 2;
constexpr int kDim = 64;
constexpr int kSeqKv = 80;  // two whole tiles and a half
constexpr int kTile = stage_c::kTileN;

struct Printed : stage_c::tag::stage_c_cp_async {};
struct PrintedByConsumers : stage_c::tag::stage_c_cp_async_wmma_pv_warp_spec_swizzle {};

/// One line: "tile=0 row=1 S: 0.5 ..." or "tile=0 row=1 m: 0.5 l: 2".
struct Line {
  int tile = -1, row = -1;
  std::string name;
  std::vector<double> values;
};

Line parse(const std::string& text) {
  Line line;
  char name[8] = "";
  int used = 0;
  if (std::sscanf(text.c_str(), "tile=%d row=%d %1[SmU]:%n", &line.tile, &line.row, name, &used) !=
      3) {
    return line;
  }
  line.name = name;
  std::istringstream rest(text.substr(static_cast<std::size_t>(used)));
  for (std::string word; rest >> word;) {
    if (word != "l:") line.values.push_back(std::stod(word));
  }
  return line;
}

/// What Tag's kernel prints on the case, line by line.
template <class Tag>
std::vector<Line> printed_lines(const reference::CaseData& data) {
  const auto& shape = data.shape;
  std::vector<std::uint16_t> out(static_cast<std::size_t>(shape.seq_q * kDim));
  const auto view = [](const void* codes, std::int64_t seq, Dtype dtype) {
    return Tensor{const_cast<void*>(codes), dtype, seq * kDim, seq * kDim, kDim, 1};
  };
  Problem problem;
  problem.batch = problem.heads_q = problem.heads_kv = 1;
  problem.seq_q = shape.seq_q;
  problem.seq_kv = shape.seq_kv;
  problem.head_dim = kDim;
  problem.q = view(data.q.codes.data(), shape.seq_q, Dtype::kE4M3);
  problem.k = view(data.k.codes.data(), shape.seq_kv, Dtype::kE4M3);
  problem.v = view(data.v.codes.data(), shape.seq_kv, Dtype::kE4M3);
  problem.o = view(out.data(), shape.seq_q, Dtype::kHalf);
  problem.descales = {data.q.descales.data(), data.k.descales.data(), data.v.descales.data()};
  problem.softmax_scale = data.softmax_scale;

  testing::internal::CaptureStdout();
  const Status status = gpu::launch<stage_c::Kernel<Tag>>(
      dim3(attention::forward_blocks(problem, stage_c::kTileM)),
      attention::forward_params(problem, stage_c::kTileM), gpu::Queue{});
  std::fflush(stdout);
  std::istringstream text(testing::internal::GetCapturedStdout());
  EXPECT_TRUE(status.ok()) << status.message();
  std::vector<Line> lines;
  for (std::string line; std::getline(text, line);) lines.push_back(parse(line));
  return lines;
}

/// The algorithm in fp64, one row: S, m, l and U after each tile.
struct Row {
  std::vector<double> s, u = std::vector<double>(kDim, 0.0);
  double m = -INFINITY, l = 0.0;

  void take(const reference::CaseData& data, int row, int tile) {
    const auto& decode = reference::decode_table(Dtype::kE4M3);
    s.clear();
    for (int key = tile * kTile; key < std::min((tile + 1) * kTile, kSeqKv); ++key) {
      double dot = 0.0;
      for (int d = 0; d < kDim; ++d) {
        dot += static_cast<double>(decode[data.q.codes[row * kDim + d]]) *
               decode[data.k.codes[key * kDim + d]];
      }
      s.push_back(dot * data.q.descales[0] * data.k.descales[0] * data.softmax_scale);
    }
    double next = m;
    for (const double x : s) next = std::max(next, x);
    const double rescale = std::exp(m - next);
    l *= rescale;
    for (double& x : u) x *= rescale;
    for (std::size_t i = 0; i < s.size(); ++i) {
      const double p = std::exp(s[i] - next);
      l += p;
      const auto* v = &data.v.codes[(tile * kTile + i) * kDim];
      for (int d = 0; d < kDim; ++d) u[d] += p * decode[v[d]] * data.v.descales[0];
    }
    m = next;
  }
};

/// Four digits are printed, of fp32 sums; `rounding` is what else the kernel may be off by.
void expect_near(const std::vector<double>& got, const std::vector<double>& want,
                 const std::string& what, double rounding = 0.0) {
  ASSERT_GE(got.size(), want.size()) << what;
  for (std::size_t i = 0; i < want.size(); ++i) {
    EXPECT_NEAR(got[i], want[i], 1e-3 * (1.0 + std::fabs(want[i])) + rounding)
        << what << "[" << i << "]";
  }
}

template <class Tag>
void expect_the_algorithm() {
  Device device;
  if (!use_backend(Backend::kHost, &device)) return;
  const auto data = case_data(make_shape(1, 1, 40, kSeqKv), 3);
  const std::vector<Line> lines = printed_lines<Tag>(*data);
  constexpr int kTiles = (kSeqKv + kTile - 1) / kTile;
  ASSERT_EQ(lines.size(), static_cast<std::size_t>(kTiles * kRows * 3));
  Row rows[kRows];
  std::size_t at = 0;
  for (int tile = 0; tile < kTiles; ++tile) {
    for (int row = 0; row < kRows; ++row) {
      rows[row].take(*data, row, tile);
      const Line& line = lines[at++];
      const std::string what = "S of tile " + std::to_string(tile) + ", row " + std::to_string(row);
      EXPECT_EQ(line.tile, tile) << what;
      EXPECT_EQ(line.row, row) << what;
      EXPECT_EQ(line.name, "S") << what;
      expect_near(line.values, rows[row].s, what);
    }
    for (int row = 0; row < kRows; ++row) {
      const std::string where = " of tile " + std::to_string(tile) + ", row " + std::to_string(row);
      const Line& sums = lines[at++];
      EXPECT_EQ(sums.name, "m") << where;
      expect_near(sums.values, {rows[row].m, rows[row].l}, "m and l" + where);
      const Line& outputs = lines[at++];
      EXPECT_EQ(outputs.name, "U") << where;
      // Weights that are halves are each off by 2^-11 of themselves at most; |V| <= 1.
      const double rounding = Tag::kToggles.wmma_pv ? std::ldexp(rows[row].l, -11) : 0.0;
      expect_near(outputs.values, rows[row].u, "U" + where, rounding);
    }
  }
}

TEST(DebugPrint, PrintsTheAlgorithmsNumbers) { expect_the_algorithm<Printed>(); }

TEST(DebugPrint, PrintsTheAlgorithmsNumbersWithAProducerWarp) {
  expect_the_algorithm<PrintedByConsumers>();
}

}  // namespace
}  // namespace fp8_sdpa::tests
