// One problem for kernels of several makers, and judging any of their outputs.
#include "benchmarks/peers/sampled_case.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <bit>
#include <cmath>

#include "benchmarks/peers/flash3/flash3_peers.hpp"
#include "benchmarks/peers/judged_run.hpp"
#include "benchmarks/peers/peer.hpp"
#include "benchmarks/run/goal_shapes.hpp"
#include "reference/formats/fp8.hpp"
#include "reference/formats/half.hpp"

namespace fp8_sdpa::bench {
namespace {

using reference::Shape;
using reference::Weights;

Shape shape_of(int batch, int heads, int heads_kv, int seq, int seq_kv, Mask mask) {
  Shape shape;
  shape.name = "made";
  shape.batch = batch;
  shape.heads_q = heads;
  shape.heads_kv = heads_kv;
  shape.seq_q = seq;
  shape.seq_kv = seq_kv;
  shape.head_dim = 64;
  shape.mask = mask;
  return shape;
}

reference::Tolerances tolerances() {
  const auto config = reference::load_config(FP8_SDPA_SOURCE_DIR "/config_forward.json");
  return config.ok() ? config->tolerances : reference::Tolerances{};
}

SampledCase sample(const Shape& shape, std::int64_t max_scores = reference::kWholeScores) {
  auto sampled = sample_case(shape, 0, max_scores);
  EXPECT_TRUE(sampled.ok());
  return std::move(*sampled);
}

/// What a perfect kernel leaves of the whole problem.
std::vector<float> right_output(const SampledCase& sampled) {
  const reference::CaseData& data = *sampled.whole;
  return reference::attention_fp64(dequantise(data.q), dequantise(data.k), dequantise(data.v),
                                   sizes_of(data.shape), data.softmax_scale)
      .o;
}

std::vector<std::uint16_t> bits_of(const std::vector<float>& o, Dtype format, float scale) {
  std::vector<std::uint16_t> bits(o.size(), 0xFFFF);
  auto* bytes = reinterpret_cast<std::uint8_t*>(bits.data());
  for (std::size_t i = 0; i < o.size(); ++i) {
    if (size_of(format) == 2) {
      bits[i] = reference::encode_16(o[i] * scale, format);
    } else {
      bytes[i] = reference::encode_code(o[i] * scale, format);
    }
  }
  return bits;
}

TEST(SampledCase, HasOnePowerOfTwoScaleATensorAndValuesThatBf16Holds) {
  const SampledCase sampled = sample(shape_of(2, 4, 2, 40, 40, Mask::kNone));
  for (const auto* tensor : {&sampled.whole->q, &sampled.whole->k, &sampled.whole->v}) {
    int exponent = 0;
    EXPECT_EQ(std::frexp(tensor->descales.front(), &exponent), 0.5F);
    for (const float descale : tensor->descales) EXPECT_EQ(descale, tensor->descales.front());
    for (const float value : dequantise(*tensor)) {
      EXPECT_EQ(
          reference::decode_16(reference::encode_16(value, Dtype::kBFloat16), Dtype::kBFloat16),
          value);
    }
  }
}

TEST(SampledCase, ScaleIsTheSmallestPowerOfTwoThatFits) {
  const auto scale_of = [](float amax) {
    return reference::quantise_with_one_scale({amax, -amax / 2}, 1, 2, Dtype::kE4M3)
        .descales.front();
  };
  EXPECT_EQ(scale_of(448.0F), 1.0F);
  EXPECT_EQ(scale_of(449.0F), 2.0F);
  EXPECT_EQ(scale_of(224.0F), 0.5F);
  EXPECT_EQ(scale_of(0.0F), 1.0F);
}

TEST(SampledCase, SmallOnesAreWhole) {
  const SampledCase sampled = sample(shape_of(2, 4, 2, 40, 50, Mask::kCausal));
  ASSERT_EQ(sampled.sample.ranges.size(), 1U);
  EXPECT_EQ(sampled.sample.ranges.front().rows, 40);
  EXPECT_EQ(sampled.sample.rows->reference_kernel.o, right_output(sampled));
}

/// What is judged of large problems, against the oracle on the whole problem.
TEST(SampledCase, SamplesAreRowsOfTheWhole) {
  constexpr std::int64_t kFew = 50'000;
  for (const Shape& shape :
       {shape_of(2, 4, 4, 300, 300, Mask::kNone), shape_of(2, 4, 2, 300, 333, Mask::kCausal),
        shape_of(1, 4, 1, 300, 300, Mask::kCausal), shape_of(1, 2, 2, 300, 200, Mask::kCausal)}) {
    const SampledCase sampled = sample(shape, kFew);
    ASSERT_EQ(sampled.sample.ranges.size(), 8U);
    EXPECT_EQ(sampled.sample.rows->reference_kernel.o,
              rows_of(right_output(sampled), shape, sampled.sample.ranges));
  }
}

/// A right kernel's output in every format that peers write passes; the scale comes back out.
TEST(JudgeOutput, PassesRightOutputsOfEveryFormat) {
  struct Entry {
    Formats formats;
    float scale;
  };
  for (const std::int64_t max_scores : {reference::kWholeScores, std::int64_t{50'000}}) {
    const SampledCase sampled = sample(shape_of(1, 4, 2, 300, 300, Mask::kNone), max_scores);
    const std::vector<float> right = right_output(sampled);
    for (const Entry& entry : {Entry{{Weights::kHalf, Dtype::kHalf}, 1.0F},
                               Entry{{Weights::kBFloat16, Dtype::kBFloat16}, 1.0F},
                               Entry{{Weights::kE4M3, Dtype::kE4M3}, 1024.0F}}) {
      const auto bits = bits_of(right, entry.formats.output, entry.scale);
      const auto o = decode_output(bits, entry.formats.output, 1.0 / entry.scale);
      const auto result = judge_output(sampled, o, entry.formats, tolerances());
      EXPECT_TRUE(result.pass) << name_of(entry.formats.output) << ": " << result.failure();
      EXPECT_GE(result.gates.size(), 7U);
    }
  }
}

/// What the judge must not let through, whole and sampled.
TEST(JudgeOutput, RefusesWrongOutputs) {
  for (const std::int64_t max_scores : {reference::kWholeScores, std::int64_t{50'000}}) {
    const SampledCase sampled = sample(shape_of(1, 4, 2, 300, 300, Mask::kNone), max_scores);
    const std::vector<float> right = right_output(sampled);
    const auto refused = [&](const std::vector<float>& o, const Formats& formats) {
      const auto result = judge_output(sampled, o, formats, tolerances());
      return !result.pass && !result.failure().empty();
    };
    for (const Formats& formats :
         {Formats{Weights::kHalf, Dtype::kHalf}, Formats{Weights::kBFloat16, Dtype::kBFloat16},
          Formats{Weights::kE4M3, Dtype::kE4M3}}) {
      EXPECT_TRUE(refused(std::vector<float>(right.size(), 0.0F), formats)) << "all zero";
      std::vector<float> wrong = right;
      for (float& value : wrong) value *= 1.125F;
      EXPECT_TRUE(refused(wrong, formats)) << "a wrong scale";
      wrong = right;
      // The last row of the last head, which every sample holds.
      for (std::size_t i = wrong.size() - 64; i < wrong.size(); ++i) wrong[i] = -wrong[i];
      EXPECT_TRUE(refused(wrong, formats)) << "one row";
      wrong = right;
      wrong.back() = std::nanf("");
      EXPECT_TRUE(refused(wrong, formats)) << "a NaN";
      EXPECT_TRUE(refused({}, formats)) << "no output";
    }
  }
}

/// An FP8 output's coarser steps are in its budget, and only in its.
TEST(JudgeOutput, BudgetsAreThoseOfTheFormat) {
  const SampledCase sampled = sample(shape_of(1, 2, 2, 256, 256, Mask::kNone));
  const auto o = decode_output(bits_of(right_output(sampled), Dtype::kE4M3, 1024.0F), Dtype::kE4M3,
                               1.0 / 1024);
  EXPECT_TRUE(judge_output(sampled, o, {Weights::kE4M3, Dtype::kE4M3}, tolerances()).pass);
  EXPECT_FALSE(judge_output(sampled, o, {Weights::kBFloat16, Dtype::kBFloat16}, tolerances()).pass);
}

TEST(RunAndJudge, PassesALibraryVariantOnTheHostExecutor) {
  const SampledCase sampled = sample(shape_of(1, 2, 2, 64, 64, Mask::kNone));
  const auto workload = Workload::make(*sampled.whole, host_executor());
  ASSERT_TRUE(workload.ok());
  const auto variant = find_variant("sm80_mma");
  ASSERT_TRUE(variant.ok());
  const auto plan = workload->plan_for(**variant);
  ASSERT_TRUE(plan.ok());
  const auto judged =
      run_and_judge(*workload, *plan, sampled, formats_of(**variant), 1.0, tolerances());
  ASSERT_TRUE(judged.ok());
  EXPECT_TRUE(judged->result.pass) << judged->result.failure();
  EXPECT_EQ(judged->result.variant, "sm80_mma");
  // The same bits, taken for another format or scale, are wrong.
  const auto scaled =
      run_and_judge(*workload, *plan, sampled, formats_of(**variant), 2.0, tolerances());
  ASSERT_TRUE(scaled.ok());
  EXPECT_FALSE(scaled->result.pass);
}

/// The inputs of the goal shapes, with one scale a tensor: what a contest times of ours has to
/// pass, whole and by some of its rows.
TEST(RunAndJudge, PassesTheHopperFamilyOnSmallCells) {
  constexpr std::int64_t kFew = std::int64_t{1} << 18;
  int judged = 0;
  for (const GoalSize& goal :
       {GoalSize{"short", 1, 1, 32, 64}, GoalSize{"d64", 1, 2, 640, 64},
        GoalSize{"d128", 1, 2, 640, 128}, GoalSize{"d256", 1, 1, 640, 256}}) {
    for (const Mask mask : {Mask::kNone, Mask::kCausal}) {
      const SampledCase sampled = sample(bench::shape_of(goal, mask), kFew);
      const auto workload = Workload::make(*sampled.whole, host_executor());
      ASSERT_TRUE(workload.ok());
      for (const Variant& variant : variants()) {
        if (variant.name.substr(0, 4) != "sm90") continue;
        const auto plan = workload->plan_for(variant);
        if (!plan.ok()) continue;
        const auto result =
            run_and_judge(*workload, *plan, sampled, formats_of(variant), 1.0, tolerances());
        ASSERT_TRUE(result.ok()) << result.status().message();
        EXPECT_TRUE(result->result.pass) << variant.name << " on " << sampled.whole->shape.name
                                         << ": " << result->result.failure();
        ++judged;
      }
    }
  }
  EXPECT_GE(judged, 16);
}

TEST(RunAndJudge, JudgesOurLseOfTheSampledRows) {
  const SampledCase sampled = sample(shape_of(1, 2, 2, 300, 300, Mask::kCausal), 50'000);
  const auto workload =
      Workload::make(*sampled.whole, host_executor(), Dtype::kBFloat16, LseSum::kDenominator);
  ASSERT_TRUE(workload.ok());
  const auto variant = find_variant("sm90_independent");
  ASSERT_TRUE(variant.ok());
  const auto plan = workload->plan_for(**variant);
  ASSERT_TRUE(plan.ok()) << plan.status().message();
  const auto judged =
      run_and_judge(*workload, *plan, sampled, formats_of(**variant, Dtype::kBFloat16), 1.0,
                    tolerances(), /*budgets_only=*/true);
  ASSERT_TRUE(judged.ok());
  EXPECT_TRUE(judged->result.pass) << judged->result.failure();
  for (const char* name : {"lse", "lse_finite", "rerun_equal", "budget_row"}) {
    EXPECT_EQ(std::count_if(judged->result.gates.begin(), judged->result.gates.end(),
                            [&](const auto& gate) { return gate.name == name; }),
              1)
        << name;
  }
  const auto lse = workload->lse();
  ASSERT_TRUE(lse.ok());
  EXPECT_EQ(lse->size(), 600U);
  ASSERT_TRUE(workload->poison().ok());
  EXPECT_TRUE(std::isnan(workload->lse()->front()));
}

/// Without cudnn-frontend, without a library of FlashAttention-3's or without a GPU, peers say in
/// one line how to get them.
TEST(Peers, SayWhatIsMissing) {
  const Problem problem = problem_of(shape_of(1, 1, 1, 64, 64, Mask::kNone), Dtype::kE4M3);
  std::size_t absent = 0;
  for (const PeerSource* source : {&cudnn_source(), &flash3_source()}) {
    absent += source->missing().empty() ? 0 : 1;
    for (const Peer& peer : source->peers) {
      EXPECT_EQ(peer.variant.name.substr(0, 5), "peer/");
      EXPECT_FALSE(peer.variant.supports(problem, host_executor()).ok());
    }
  }
  const std::vector<std::string> lines = missing_peers();
  ASSERT_EQ(lines.size(), absent);
  for (const std::string& line : lines) {
    EXPECT_EQ(line.find('\n'), std::string::npos);
    EXPECT_NE(line.find("left out: "), std::string::npos) << line;
  }
  if (cudnn_source().peers.empty()) {
    EXPECT_NE(cudnn_source().missing().find("pip install nvidia-cudnn-frontend"),
              std::string::npos);
  }
}

TEST(Flash3, SaysHowToBuildTheLibrary) {
  for (const char* path :
       {static_cast<const char*>(nullptr), "", "/no/such/library.so", "libm.so.6"}) {
    const auto loaded = load_flash3(path);
    ASSERT_FALSE(loaded.ok());
    const std::string line = loaded.status().message();
    EXPECT_EQ(loaded.status().code(), StatusCode::kUnsupported);
    EXPECT_EQ(line.find('\n'), std::string::npos);
    for (const char* part : {"benchmarks/peers/flash3/build.sh", "SDPA_FLASH3_LIBRARY=OUT.so"}) {
      EXPECT_NE(line.find(part), std::string::npos) << line;
    }
  }
  EXPECT_NE(load_flash3(nullptr).status().message().find("is not set"), std::string::npos);
}

}  // namespace
}  // namespace fp8_sdpa::bench
