// Plan::explain() says what plan() did. Nothing is launched.
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdio>
#include <sstream>
#include <string>
#include <vector>

#include "dispatch/choose.hpp"
#include "dispatch/variant.hpp"
#include "fp8_sdpa/plan.hpp"
#include "tests/host/kernels/made_up.hpp"

namespace fp8_sdpa {
namespace {

std::vector<std::string> lines_of(const Problem& problem, const Device& device,
                                  const Variant* variant = nullptr,
                                  const PlanOptions& options = {}) {
  const Result<Plan> made = plan(problem, device, variant, options);
  EXPECT_TRUE(made.ok()) << made.status().message();
  std::vector<std::string> lines;
  if (!made.ok()) return lines;
  std::istringstream text(made->explain());
  for (std::string line; std::getline(text, line);) lines.push_back(line);
  return lines;
}

bool says(const std::vector<std::string>& lines, const std::string& line) {
  return std::ranges::find(lines, line) != lines.end();
}

const std::string* starting(const std::vector<std::string>& lines, const std::string& with) {
  const auto found =
      std::ranges::find_if(lines, [&](const std::string& line) { return line.starts_with(with); });
  return found == lines.end() ? nullptr : &*found;
}

TEST(Explain, NamesTheVariantTheDeviceAndTheWorkspace) {
  const Problem problem = tests::made_up(2, 8, 8, 4096, 4096, 64);
  const Result<Plan> made = plan(problem, host_executor());
  ASSERT_TRUE(made.ok());
  const std::vector<std::string> lines = lines_of(problem, host_executor());
  ASSERT_GE(lines.size(), 5U);
  EXPECT_EQ(lines[0],
            std::string(made->variant_name()) + ": " + std::string(made->variant().summary));
  EXPECT_EQ(lines[1],
            "device: host executor, sm_90 played on the CPU by the host executor: right, and slow");
  EXPECT_EQ(lines[2], "multiplies on: FP8 tensor cores (wgmma)");
  EXPECT_EQ(lines[3], "error to expect: 2.7 % of O, beside exact attention of these codes");
  EXPECT_EQ(lines[4], "workspace: " + std::to_string(made->workspace_bytes()) + " bytes");
  // Of the other families each has one that serves this.
  EXPECT_EQ(std::ranges::count_if(
                lines, [](const std::string& line) { return line.starts_with("declined:"); }),
            1);
  EXPECT_TRUE(says(lines,
                   "declined: decode_split_kv serves at most 64 query rows of a KV head of whole "
                   "tensors, not 4096 * 1 (seq_q * heads_q / heads_kv)"));
  EXPECT_FALSE(made->explain().ends_with("\n"));
}

// Of P in half, 2^-11 at the most, codes are exact in.
TEST(Explain, TheErrorOfWeightsInHalf) {
  const auto sm80 = find_variant("sm80_mma");
  if (!sm80.ok()) return;  // a build of some kernels
  const Result<Plan> made = plan(tests::made_up(2, 8, 8, 4096, 4096, 64), host_executor(), *sm80);
  ASSERT_TRUE(made.ok()) << made.status().message();
  EXPECT_NE(made->explain().find("\nerror to expect: 0.029 % of O, beside exact attention"),
            std::string::npos)
      << made->explain();
}

TEST(Explain, HasThePredictionsTheFastestFirst) {
  const Problem problem = tests::made_up(2, 8, 8, 4096, 4096, 64);
  const auto predicted = detail::predictions(problem, host_executor(), {});
  ASSERT_GE(predicted.size(), 5U);
  EXPECT_TRUE(std::ranges::is_sorted(predicted, {}, &detail::Prediction::us));
  const std::vector<std::string> lines = lines_of(problem, host_executor());
  char text[64];
  std::snprintf(text, sizeof text, "predicted for an sm_90: %.1f us", predicted[0].us);
  EXPECT_TRUE(says(lines, text)) << text;
  std::string others = "others predicted, in us: ";
  for (std::size_t i = 1; i < 5; ++i) {
    std::snprintf(text, sizeof text, "%s %.1f", std::string(predicted[i].variant->name).c_str(),
                  predicted[i].us);
    others += (i > 1 ? ", " : "") + std::string(text);
  }
  EXPECT_TRUE(says(lines, others)) << others;
  // Of other devices nothing has been measured.
  for (const int sm_version : {80, 89, 100}) {
    Device other = host_executor();
    other.sm_version = sm_version;
    EXPECT_EQ(starting(lines_of(problem, other), "predicted"), nullptr) << sm_version;
    EXPECT_EQ(starting(lines_of(problem, other), "others"), nullptr) << sm_version;
  }
  // Of another than the fastest, its own; and the options count.
  const std::vector<std::string> second = lines_of(problem, host_executor(), predicted[1].variant);
  std::snprintf(text, sizeof text, "predicted for an sm_90: %.1f us", predicted[1].us);
  EXPECT_TRUE(says(second, text)) << text;
  const PlanOptions invariant{.batch_invariant = true};
  const auto of_large = detail::predictions(problem, host_executor(), invariant);
  std::snprintf(text, sizeof text, "predicted for an sm_90: %.1f us", of_large[0].us);
  EXPECT_NE(of_large[0].us, predicted[0].us);
  EXPECT_TRUE(says(lines_of(problem, host_executor(), nullptr, invariant), text)) << text;
  const auto without = detail::predictions(problem, host_executor(), {.no_workspace = true});
  EXPECT_LT(without.size(), predicted.size());
}

TEST(Explain, SaysWhetherFp8TensorCoresMultiply) {
  const Problem problem = tests::made_up(1, 2, 2, 64, 64, 64);
  const auto multiplies = [&](const char* name, int sm_version) {
    Device device = host_executor();
    device.sm_version = sm_version;
    const Result<const Variant*> variant = find_variant(name);
    EXPECT_TRUE(variant.ok()) << name;
    return lines_of(problem, device, *variant)[2];
  };
  EXPECT_EQ(multiplies("sm80_mma", 90),
            "multiplies on: half tensor cores: codes are widened to half (no FP8 rate)");
  EXPECT_EQ(multiplies("stage_c", 80),
            "multiplies on: half tensor cores: codes are widened to half (no FP8 rate)");
  EXPECT_EQ(multiplies("decode_split_kv", 90),
            "multiplies on: half tensor cores: codes are widened to half (no FP8 rate)");
  EXPECT_EQ(multiplies("sm89_mma", 89), "multiplies on: FP8 tensor cores (mma.sync)");
  EXPECT_EQ(multiplies("sm89_mma", 90),
            "multiplies on: FP8 mma.sync, which this architecture runs at the rate of half");
}

TEST(Explain, SaysWhyFamiliesDoNotServe) {
  const Problem grouped = tests::made_up(1, 4, 2, 512, 512, 64);
  const std::vector<std::string> lines = lines_of(grouped, host_executor());
  // Of a family that has one which serves it, nothing is.
  EXPECT_EQ(starting(lines, "declined: sm90"), nullptr);
  // Few keys are served by the last of the family's variants.
  const Problem few = tests::made_up(1, 4, 2, 64, 64, 128);
  const std::vector<std::string> of_few = lines_of(few, host_executor());
  EXPECT_TRUE(of_few[0].starts_with("sm90_short: ")) << of_few[0];
  EXPECT_EQ(starting(of_few, "declined: sm90"), nullptr);
  EXPECT_TRUE(says(lines, "declined: stage_c serves heads_q == heads_kv, not 4 and 2"));
  EXPECT_TRUE(says(lines, "declined: sm80_mma serves heads_q == heads_kv, not 4 and 2"));
  EXPECT_TRUE(says(lines, "declined: sm89_mma serves heads_q == heads_kv, not 4 and 2"));
}

}  // namespace
}  // namespace fp8_sdpa
