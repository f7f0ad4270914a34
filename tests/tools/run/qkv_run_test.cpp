// A run on a user's own tensors: what it says of them, what it records, what it declines.
#include <gtest/gtest.h>

#include <array>
#include <cmath>
#include <cstdio>
#include <cstring>
#include <limits>
#include <string>
#include <vector>

#include "reference/formats/safetensors.hpp"
#include "tests/tools/tool_fixture.hpp"

namespace fp8_sdpa::bench {
namespace {

class QkvRun : public ToolTest {
 protected:
  /// (1, 2, 160, head_dim) tensors. `first` is the first element of K, whose first channel is off
  /// by `offset_k`; values that are all off by `offset_v` do not average to nothing.
  void write_tensors(std::uint64_t head_dim, float first = 0.5F, float offset_k = 0.0F,
                     float offset_v = 2.0F) const {
    std::vector<reference::SafetensorsTensor> tensors;
    for (const char name : {'Q', 'K', 'V'}) {
      std::vector<float> values(2 * 160 * head_dim);
      for (std::size_t i = 0; i < values.size(); ++i) {
        values[i] = std::sin(static_cast<float>(i * static_cast<std::size_t>(2 + name % 5)));
        if (name == 'K' && i % head_dim == 0) values[i] += offset_k;
        if (name == 'V') values[i] += offset_v;
      }
      if (name == 'K') values[0] = first;
      tensors.push_back({std::string(1, name), "F32", {1, 2, 160, head_dim}, {}});
      tensors.back().bytes.resize(values.size() * sizeof(float));
      std::memcpy(tensors.back().bytes.data(), values.data(), tensors.back().bytes.size());
    }
    ASSERT_TRUE(reference::write_safetensors(at("t.safetensors"), tensors).ok());
  }
  Ran judge(const std::string& variant, const std::vector<std::string>& more = {}) const {
    std::filesystem::remove_all(at("out"));
    std::vector<std::string> arguments = {"--backend",  "host",  "--qkv", "t.safetensors",
                                          "--variants", variant, "--out", "out"};
    arguments.insert(arguments.end(), more.begin(), more.end());
    return run(FP8_SDPA_RUN_BINARY, arguments, "SDPA_REQUIRE_GPU=0");
  }
  nlohmann::json recorded() const {
    EXPECT_EQ(run(FP8_SDPA_VALIDATE_BINARY, {at("out/") + kCorrectnessFile}).exit_code, 0);
    return read_json_file(at("out/") + kCorrectnessFile).at("results").at(0);
  }
};

TEST_F(QkvRun, SaysAndRecordsWhatItJudges) {
  write_tensors(32);
  const Ran ran = judge("sm80_mma");
  EXPECT_EQ(ran.exit_code, 0) << ran.out << ran.err;
  EXPECT_NE(
      ran.out.find("\ntensors: t.safetensors (bhsd): B=1 H=2 H_kv=2 S=160 S_kv=160 D=32 padded to "
                   "64, softmax scale 0.176777, no mask\n"),
      std::string::npos)
      << ran.out;
  EXPECT_NE(ran.out.find("% PASS (no gate on these three for a file's tensors: rel_l2=0.0"),
            std::string::npos)
      << ran.out;
  EXPECT_EQ(ran.out.find("note: NaN"), std::string::npos) << ran.out;
  const nlohmann::json tensors = recorded().at("tensors");
  EXPECT_EQ(tensors.at("file"), "t.safetensors");
  EXPECT_EQ(tensors.at("layout"), "bhsd");
  EXPECT_EQ(tensors.at("head_dim"), 32);
  EXPECT_FLOAT_EQ(tensors.at("softmax_scale").get<float>(), 1.0F / std::sqrt(32.0F));
  EXPECT_EQ(tensors.at("nan"), nlohmann::json({0, 0, 0}));
}

TEST_F(QkvRun, TakesNamesScaleAndMaskAndWritesO) {
  write_tensors(32);
  // Each row of Q and K, and so each score, is another one; V's rows are its own.
  const Ran whole = judge("sm90_independent");
  ASSERT_EQ(whole.exit_code, 0) << whole.out << whole.err;
  EXPECT_NE(whole.out.find("\nO of sm90_independent: out/o_sm90_independent.safetensors\n"),
            std::string::npos)
      << whole.out;
  const auto o_of = [&] { return read(at("out/o_sm90_independent.safetensors")); };
  const std::string o = o_of();
  EXPECT_NE(o.find(R"("shape":[1,2,160,32])"), std::string::npos) << o.substr(0, 120);
  const Ran masked = judge("sm90_independent",
                           {"--qkv-mask", "causal", "--qkv-scale", "0.25", "--qkv-names", "Q,K,V"});
  ASSERT_EQ(masked.exit_code, 0) << masked.out << masked.err;
  EXPECT_NE(masked.out.find(", softmax scale 0.25, causal mask\n"), std::string::npos)
      << masked.out;
  EXPECT_EQ(recorded().at("mask"), "causal");
  EXPECT_FLOAT_EQ(recorded().at("tensors").at("softmax_scale").get<float>(), 0.25F);
  EXPECT_NE(o_of(), o);
  EXPECT_NE(judge("sm90_independent", {"--qkv-names", "q,K,V"}).err.find("tensor \"q\" is missing"),
            std::string::npos);
  EXPECT_NE(judge("sm90_independent", {"--qkv-names", "Q,K"}).err.find(": expected three names"),
            std::string::npos);
}

// Offsets of K's first channel: of no head's O, but of its scale.
TEST_F(QkvRun, SaysWhatQuantisationCosts) {
  write_tensors(64, 0.5F, 80.0F, 0.0F);
  EXPECT_EQ(judge("sm80_mma").out.find("quantisation alone"), std::string::npos);
  const Ran ran = judge("sm80_mma", {"--qkv-costs"});
  const std::string table = read(at("out/QUANTISATION.md"));
  EXPECT_NE(ran.out.find("quantisation alone, no kernel: "), std::string::npos) << ran.out;
  EXPECT_NE(ran.out.find("\n" + table), std::string::npos) << ran.out;
  double plain = 0.0;
  double rotated = 0.0;
  double smoothed = 0.0;
  const std::size_t mean = table.find("| mean of | all 2 |");
  ASSERT_NE(mean, std::string::npos) << table;
  ASSERT_EQ(std::sscanf(table.c_str() + mean, "| mean of | all 2 | %lf | %lf | %lf", &plain,
                        &rotated, &smoothed),
            3)
      << table;
  EXPECT_LT(smoothed, 0.7 * plain) << table;
  EXPECT_NE(run(FP8_SDPA_RUN_BINARY, {"--qkv-costs"}).err.find("--qkv-costs requires --qkv"),
            std::string::npos);
}

// O and LSE are those of the file's tensors, however they were quantised.
TEST_F(QkvRun, QuantisesOriginalsByTheOptionsOfTheLibrary) {
  write_tensors(64, 8.5F, 8.0F);
  const auto floats_of_lse = [&] {
    const std::string file = read(at("out/o_sm90_block_scales.safetensors"));
    std::vector<float> lse(2 * 160);
    const std::size_t bytes = lse.size() * sizeof(float);
    if (file.size() > bytes) std::memcpy(lse.data(), &file[file.size() - bytes], bytes);
    return lse;
  };
  const Ran blocks = judge("sm90_block_scales", {"--qkv-blocks"});
  ASSERT_EQ(blocks.exit_code, 0) << blocks.out << blocks.err;
  EXPECT_NE(blocks.out.find(" D=64, quantised with blocks, softmax scale"), std::string::npos)
      << blocks.out;
  EXPECT_EQ(recorded().at("tensors").at("options"), nlohmann::json({"blocks"}));
  const std::vector<float> plain = floats_of_lse();
  const Ran all =
      judge("sm90_block_scales", {"--qkv-rotate", "--qkv-smooth", "--qkv-blocks", "--qkv-costs"});
  ASSERT_EQ(all.exit_code, 0) << all.out << all.err;
  EXPECT_NE(all.out.find(", quantised with rotate, smooth, blocks, softmax scale"),
            std::string::npos)
      << all.out;
  const std::vector<float> whole = floats_of_lse();
  for (std::size_t row = 0; row < plain.size(); ++row) {
    EXPECT_NEAR(whole[row], plain[row], 0.1) << row;
  }
  // Where nobody asks for a variant it is the library's choice: the usual ones know no blocks.
  std::filesystem::remove_all(at("out"));
  const Ran chosen =
      run(FP8_SDPA_RUN_BINARY,
          {"--backend", "host", "--qkv", "t.safetensors", "--qkv-blocks", "--out", "out"},
          "SDPA_REQUIRE_GPU=0");
  EXPECT_EQ(chosen.exit_code, 0) << chosen.out << chosen.err;
  EXPECT_NE(chosen.out.find("O of sm90_block_scales: "), std::string::npos) << chosen.out;
  EXPECT_EQ(judge("sm80_mma", {"--qkv-blocks"}).exit_code, 2);
}

TEST_F(QkvRun, DeclinesToQuantiseWhatItCannot) {
  write_tensors(64, std::numeric_limits<float>::infinity());
  for (const char* option : {"--qkv-rotate", "--qkv-smooth"}) {
    EXPECT_NE(judge("sm80_mma", {option}).err.find("t.safetensors has infinities"),
              std::string::npos);
  }
  EXPECT_NE(run(FP8_SDPA_RUN_BINARY, {"--qkv-blocks"}).err.find("--qkv-blocks requires --qkv"),
            std::string::npos);
}

TEST_F(QkvRun, WritesOInTheLayoutOfTheFileWithoutThePadding) {
  constexpr std::uint16_t kHeads = 2, kSeq = 3, kHeadDim = 2, kPadded = 64;
  QkvSource source;
  source.sizes = {1, kHeads, kHeads, kSeq, kSeq, kPadded, Mask::kNone};
  source.head_dim = kHeadDim;
  std::vector<std::uint16_t> output(kHeads * kSeq * kPadded);
  for (std::size_t i = 0; i < output.size(); ++i) output[i] = static_cast<std::uint16_t>(i);
  for (const char* layout : {"bhsd", "bshd"}) {
    source.layout = layout;
    ASSERT_TRUE(write_output(source, output, {}, at("o.safetensors")).ok());
    const bool head_major = source.layout == "bhsd";
    const std::string file = read(at("o.safetensors"));
    EXPECT_NE(file.find(head_major ? R"("shape":[1,2,3,2])" : R"("shape":[1,3,2,2])"),
              std::string::npos);
    std::array<std::uint16_t, kHeads * kSeq * kHeadDim> o{};
    ASSERT_GT(file.size(), sizeof(o));
    std::memcpy(o.data(), file.data() + file.size() - sizeof(o), sizeof(o));
    for (int h = 0; h < kHeads; ++h) {
      for (int s = 0; s < kSeq; ++s) {
        const int row = head_major ? h * kSeq + s : s * kHeads + h;
        for (int d = 0; d < kHeadDim; ++d) {
          EXPECT_EQ(o.at(row * kHeadDim + d), (h * kSeq + s) * kPadded + d) << layout;
        }
      }
    }
  }
}

// What a server keeps: codes and descales. O is that of the tensors which they stand for, and an
// LSE beside it.
TEST_F(QkvRun, JudgesCodesWithTheirDescales) {
  for (const std::string format : {"E4M3", "E5M2"}) {
    std::vector<reference::SafetensorsTensor> tensors;
    for (const char name : {'q', 'k', 'v'}) {
      tensors.push_back({std::string(1, name), "F8_" + format, {1, 2, 160, 64}, {}});
      for (std::size_t i = 0; i < std::size_t{2 * 160 * 64}; ++i) {
        // Of either sign, of magnitudes from 2^-3 to 1.
        const auto code = static_cast<std::uint8_t>(i * static_cast<std::size_t>(name % 7 + 3));
        const int one = format == "E4M3" ? 0x38 : 0x3c;
        const int step = format == "E4M3" ? 8 : 4;
        tensors.back().bytes.push_back(
            static_cast<std::uint8_t>((code & 0x80) | (one - code % (3 * step))));
      }
    }
    tensors.push_back({"v_descale", "F32", {1, 2}, std::vector<std::uint8_t>(8)});
    const std::array descales = {0.5F, 4.0F};
    std::memcpy(tensors.back().bytes.data(), descales.data(), sizeof descales);
    ASSERT_TRUE(reference::write_safetensors(at("t.safetensors"), tensors).ok());
    const Ran ran = judge("sm80_mma");
    EXPECT_EQ(ran.exit_code, 0) << ran.out << ran.err;
    const std::string name = format == "E4M3" ? "e4m3" : "e5m2";
    EXPECT_NE(ran.out.find(" D=64, " + name + " codes, softmax scale"), std::string::npos)
        << ran.out;
    EXPECT_EQ(recorded().at("dtype"), name);
    EXPECT_NE(judge("sm80_mma", {"--qkv-costs"}).err.find("--qkv-costs: t.safetensors has codes"),
              std::string::npos);
    EXPECT_NE(judge("sm80_mma", {"--qkv-blocks"}).err.find("t.safetensors has codes, which are"),
              std::string::npos);
    const Ran hopper = judge("sm90_independent");
    EXPECT_EQ(hopper.exit_code, format == "E4M3" ? 0 : 2) << hopper.out << hopper.err;
    if (hopper.exit_code != 0) continue;
    const std::string file = read(at("out/o_sm90_independent.safetensors"));
    EXPECT_NE(file.find(R"("lse":{"dtype":"F32","shape":[1,2,160])"), std::string::npos)
        << file.substr(0, 200);
  }
}

TEST_F(QkvRun, CountsWhatIsNotFinite) {
  write_tensors(64, std::numeric_limits<float>::quiet_NaN());
  EXPECT_NE(judge("sm80_mma").out.find("\nnote: NaN: 0 in Q, 1 in K, 0 in V; "), std::string::npos);
  EXPECT_EQ(recorded().at("tensors").at("nan"), nlohmann::json({0, 1, 0}));
  write_tensors(64, -std::numeric_limits<float>::infinity());
  EXPECT_NE(judge("sm80_mma").out.find("\nnote: infinities: 0 in Q, 1 in K, 0 in V; each is taken"),
            std::string::npos);
  EXPECT_EQ(recorded().at("tensors").at("infinite"), nlohmann::json({0, 1, 0}));
}

TEST_F(QkvRun, SaysThatTheQuantisationIsAtFault) {
  write_tensors(64, 30.0F, 30.0F, 0.0F);
  const Ran ran = judge("sm80_mma");
  EXPECT_EQ(ran.exit_code, 1);
  EXPECT_NE(
      ran.out.find("; at fault: the quantisation to FP8, not the kernel, whose own rel_l2 of "),
      std::string::npos)
      << ran.out;
}

TEST_F(QkvRun, PadsWhatAKernelServesPaddedAndNamesWhatIsServed) {
  write_tensors(96);
  const Ran served = judge("sm90_ping_pong");
  EXPECT_EQ(served.exit_code, 0) << served.out << served.err;
  EXPECT_NE(served.out.find(" D=96 padded to 128, "), std::string::npos) << served.out;
  const Ran declined = judge("sm80_mma");
  EXPECT_EQ(declined.exit_code, 2);
  EXPECT_NE(declined.err.find("shape qkv: no chosen variant serves it: "), std::string::npos);
  EXPECT_NE(declined.err.find("; they serve head_dim 64\n"), std::string::npos) << declined.err;
}

}  // namespace
}  // namespace fp8_sdpa::bench
