// config_forward.json: what is read, and what is refused in which words.
#include "reference/config/config.hpp"

#include <gtest/gtest.h>

#include <fstream>
#include <nlohmann/json.hpp>
#include <string>

namespace fp8_sdpa::reference {
namespace {

using nlohmann::json;

/// A small legal configuration.
json legal() {
  return json::parse(R"({
    "schema_version": 1,
    "inputs": { "family": "uniform", "low": -1.0, "high": 1.0 },
    "shapes": [
      { "name": "small", "B": 1, "H": 8, "S": 32, "D": 64, "suites": ["default"] },
      { "name": "big", "B": 2, "H": 8, "S": 64, "D": 128, "suites": ["default", "extended"],
        "H_kv": 2, "S_kv": 96, "mask": "causal",
        "inputs": { "family": "normal", "mean": 0.5, "stddev": 2 } }
    ],
    "seeds": [0, 18446744073709551615],
    "tolerances": { "max_abs_err": 0.06, "mean_abs_err": 0.02, "pct_bad": 1.0,
                    "bad_threshold": 0.06, "rel_l2_quantised": 0.06, "abs_kernel": 0.01,
                    "rel_l2_kernel": 0.005, "rel_l2_kernel_fp8_p": 0.04 },
    "timing": { "warmup_iters": 0, "timed_iters": 500 }
  })");
}

std::string refusal(const std::string& text) {
  const auto config = parse_config(text, "c.json");
  return config.ok() ? "accepted" : config.status().message();
}

TEST(Config, ShippedFileHoldsTheSpecifiedShapes) {
  const auto config = load_config(FP8_SDPA_SOURCE_DIR "/config_forward.json");
  ASSERT_TRUE(config.ok()) << config.status().message();
  struct Want {
    const char* name;
    int batch, heads;
    std::int64_t seq;
    const char* suite;
  };
  const Want wanted[] = {{"small", 1, 1, 32, "default"},
                         {"mission", 1, 8, 512, "default"},
                         {"long", 1, 8, 2048, "default"},
                         {"batch2", 2, 8, 512, "extended"},
                         {"batch2_long", 2, 8, 2048, "extended"}};
  for (const Want& want : wanted) {
    const Shape* shape = config->find_shape(want.name);
    ASSERT_NE(shape, nullptr) << want.name;
    EXPECT_EQ(shape->batch, want.batch);
    EXPECT_EQ(shape->heads_q, want.heads);
    EXPECT_EQ(shape->heads_kv, want.heads);
    EXPECT_EQ(shape->seq_q, want.seq);
    EXPECT_EQ(shape->seq_kv, want.seq);
    EXPECT_EQ(shape->head_dim, 64);
    EXPECT_EQ(shape->suites, std::vector<std::string>{want.suite});
  }
  EXPECT_EQ(config->seeds, (std::vector<std::uint64_t>{0, 1, 2}));
  EXPECT_EQ(config->timing.warmup_iters, 100);
  EXPECT_EQ(config->timing.timed_iters, 500);
  EXPECT_EQ(config->tolerances.rel_l2_kernel_fp8_p, 0.04);
}

TEST(Config, ReadsEveryField) {
  const auto config = parse_config(legal().dump(), "c.json");
  ASSERT_TRUE(config.ok()) << config.status().message();
  EXPECT_EQ(config->path, "c.json");
  EXPECT_EQ(config->find_shape("nobody"), nullptr);
  const Shape* small = config->find_shape("small");
  ASSERT_NE(small, nullptr);
  EXPECT_EQ(small->heads_kv, 8);
  EXPECT_EQ(small->seq_kv, 32);
  EXPECT_EQ(small->mask, Mask::kNone);
  EXPECT_EQ(small->inputs.family, "uniform");
  EXPECT_EQ(small->inputs.low, -1.0);
  const Shape* big = config->find_shape("big");
  ASSERT_NE(big, nullptr);
  EXPECT_EQ(big->batch, 2);
  EXPECT_EQ(big->heads_kv, 2);
  EXPECT_EQ(big->seq_q, 64);
  EXPECT_EQ(big->seq_kv, 96);
  EXPECT_EQ(big->head_dim, 128);
  EXPECT_EQ(big->mask, Mask::kCausal);
  EXPECT_EQ(big->inputs.family, "normal");
  EXPECT_EQ(big->inputs.mean, 0.5);
  EXPECT_EQ(big->inputs.stddev, 2.0);
  EXPECT_EQ(big->suites, (std::vector<std::string>{"default", "extended"}));
  EXPECT_EQ(config->seeds.back(), UINT64_MAX);
  EXPECT_EQ(config->tolerances.max_abs_err, 0.06);
  EXPECT_EQ(config->tolerances.mean_abs_err, 0.02);
  EXPECT_EQ(config->tolerances.pct_bad, 1.0);
  EXPECT_EQ(config->tolerances.bad_threshold, 0.06);
  EXPECT_EQ(config->tolerances.rel_l2_quantised, 0.06);
  EXPECT_EQ(config->tolerances.abs_kernel, 0.01);
  EXPECT_EQ(config->tolerances.rel_l2_kernel, 0.005);
}

/// A legal configuration with one member replaced, and the one line that it gets.
struct BadMember {
  const char* name;
  const char* pointer;
  const char* value;  ///< JSON; nullptr removes the member
  const char* message;
};
void PrintTo(const BadMember& bad, std::ostream* out) { *out << bad.name; }

class ConfigRefuses : public testing::TestWithParam<BadMember> {};

TEST_P(ConfigRefuses, WithPointerValueAndExpectation) {
  json document = legal();
  const json::json_pointer at(GetParam().pointer);
  if (GetParam().value == nullptr) {
    document.at(at.parent_pointer()).erase(at.back());
  } else {
    document[at] = json::parse(GetParam().value);
  }
  EXPECT_EQ(refusal(document.dump()), GetParam().message);
}

#define KEYS "schema_version, inputs, shapes, seeds, tolerances, timing"
#define SHAPE_KEYS "name, B, H, S, D, suites"
#define SIZE "expected an integer in [1, 2147483647]"
#define NAME "expected a name of letters, digits and underscores"
#define MAGNITUDE "expected a number in [0, 1e+30]"

INSTANTIATE_TEST_SUITE_P(
    Config, ConfigRefuses,
    testing::Values(
        BadMember{"UnknownKey", "/shapes/0/colour", "3",
                  "c.json: /shapes/0/colour: unknown key with value 3, expected one of " SHAPE_KEYS
                  ", H_kv, S_kv, mask, inputs"},
        BadMember{"UnknownRootKey", "/extra", "null",
                  "c.json: /extra: unknown key with value null, expected one of " KEYS},
        BadMember{"KeyWithNewline", "/a\nb", "1",
                  "c.json: /a\\x0ab: unknown key with value 1, expected one of " KEYS},
        BadMember{"MissingKey", "/shapes/1/D", nullptr,
                  "c.json: /shapes/1/D: missing, expected the keys " SHAPE_KEYS},
        BadMember{"MissingTolerance", "/tolerances/pct_bad", nullptr,
                  "c.json: /tolerances/pct_bad: missing, expected the keys max_abs_err, "
                  "mean_abs_err, pct_bad, bad_threshold, rel_l2_quantised, abs_kernel, "
                  "rel_l2_kernel, rel_l2_kernel_fp8_p"},
        BadMember{"Version", "/schema_version", "2", "c.json: /schema_version: got 2, expected 1"},
        BadMember{"ShapeNotObject", "/shapes/0", "[]",
                  "c.json: /shapes/0: got [], expected an object with the keys " SHAPE_KEYS
                  ", H_kv, S_kv, mask, inputs"},
        BadMember{"SizeText", "/shapes/0/B", "\"1\"", "c.json: /shapes/0/B: got \"1\", " SIZE},
        BadMember{"SizeZero", "/shapes/0/S", "0", "c.json: /shapes/0/S: got 0, " SIZE},
        BadMember{"SizeNegative", "/shapes/0/H", "-8", "c.json: /shapes/0/H: got -8, " SIZE},
        BadMember{"SizeFraction", "/shapes/0/D", "64.0", "c.json: /shapes/0/D: got 64.0, " SIZE},
        BadMember{"SizeTrue", "/shapes/0/B", "true", "c.json: /shapes/0/B: got true, " SIZE},
        BadMember{"SizeOutOfRange", "/shapes/0/B", "2147483648",
                  "c.json: /shapes/0/B: got 2147483648, " SIZE},
        BadMember{"SizePastInt64", "/shapes/0/S", "18446744073709551615",
                  "c.json: /shapes/0/S: got 18446744073709551615, " SIZE},
        BadMember{"TooManyElements", "/shapes/1/S_kv", "2147483647",
                  "c.json: /shapes/1: got {\"B\":2,\"D\":128,\"H\":8,\"H_kv\":2,\"S\":64,"
                  "\"S_kv\":2147483647,\"inpu..., expected at most 1099511627776 elements in a "
                  "tensor"},
        BadMember{"HeadsNotMultiple", "/shapes/1/H_kv", "3",
                  "c.json: /shapes/1/H_kv: got 3, expected a divisor of H = 8"},
        BadMember{"HeadsKvMore", "/shapes/1/H_kv", "16",
                  "c.json: /shapes/1/H_kv: got 16, expected a divisor of H = 8"},
        BadMember{"DuplicateName", "/shapes/1/name", "\"small\"",
                  "c.json: /shapes/1/name: got \"small\", expected each name once (/shapes/0 has "
                  "it too)"},
        BadMember{"NameWithDash", "/shapes/0/name", "\"a-b\"",
                  "c.json: /shapes/0/name: got \"a-b\", " NAME},
        BadMember{"NameEmpty", "/shapes/0/name", "\"\"", "c.json: /shapes/0/name: got \"\", " NAME},
        BadMember{"NameNumber", "/shapes/0/name", "7", "c.json: /shapes/0/name: got 7, " NAME},
        BadMember{"NoShapes", "/shapes", "[]",
                  "c.json: /shapes: got [], expected a list of at least one shape"},
        BadMember{"NoSuites", "/shapes/0/suites", "[]",
                  "c.json: /shapes/0/suites: got [], expected a list of suite names, such as "
                  "[\"default\"]"},
        BadMember{"SuiteTwice", "/shapes/0/suites", R"(["a", "a"])",
                  "c.json: /shapes/0/suites/1: got \"a\", expected each suite once"},
        BadMember{"Mask", "/shapes/0/mask", "\"top_left\"",
                  "c.json: /shapes/0/mask: got \"top_left\", expected \"none\" or \"causal\""},
        BadMember{"NoSeeds", "/seeds", "[]",
                  "c.json: /seeds: got [], expected a list of at least one seed"},
        BadMember{"SeedTwice", "/seeds/1", "0", "c.json: /seeds/1: got 0, expected each seed once"},
        BadMember{"SeedNegative", "/seeds/0", "-1",
                  "c.json: /seeds/0: got -1, expected an integer in [0, 18446744073709551615]"},
        BadMember{"SeedFraction", "/seeds/0", "0.5",
                  "c.json: /seeds/0: got 0.5, expected an integer in [0, 18446744073709551615]"},
        BadMember{
            "Family", "/inputs/family", "\"cauchy\"",
            "c.json: /inputs/family: got \"cauchy\", expected one of uniform, normal, outliers, "
            "peaked, needle, sink, k_bias, v_bias, edges, constant_v, one_hot, zero_k, "
            "long_tail"},
        BadMember{"FamilyMissing", "/shapes/1/inputs/family", nullptr,
                  "c.json: /shapes/1/inputs/family: missing, expected the keys family"},
        BadMember{"FamilyOthersKey", "/inputs/mean", "0",
                  "c.json: /inputs/mean: unknown key with value 0, expected one of family, low, "
                  "high"},
        BadMember{"HighBelowLow", "/inputs/high", "-1",
                  "c.json: /inputs/high: got -1, expected a number > low = -1"},
        BadMember{"StddevZero", "/shapes/1/inputs/stddev", "0",
                  "c.json: /shapes/1/inputs/stddev: got 0, expected a number > 0"},
        BadMember{"LowTooLow", "/inputs/low", "-1e31",
                  "c.json: /inputs/low: got -1e+31, expected a number in [-1e+30, 1e+30]"},
        BadMember{"ToleranceNegative", "/tolerances/max_abs_err", "-0.06",
                  "c.json: /tolerances/max_abs_err: got -0.06, " MAGNITUDE},
        BadMember{"ToleranceNull", "/tolerances/abs_kernel", "null",
                  "c.json: /tolerances/abs_kernel: got null, " MAGNITUDE},
        BadMember{"ToleranceText", "/tolerances/abs_kernel", "\"NaN\"",
                  "c.json: /tolerances/abs_kernel: got \"NaN\", " MAGNITUDE},
        BadMember{"PercentAbove100", "/tolerances/pct_bad", "100.5",
                  "c.json: /tolerances/pct_bad: got 100.5, expected a number in [0, 100]"},
        BadMember{"NoTimedIterations", "/timing/timed_iters", "0",
                  "c.json: /timing/timed_iters: got 0, expected an integer in [1, 1000000]"},
        BadMember{"WarmupNegative", "/timing/warmup_iters", "-1",
                  "c.json: /timing/warmup_iters: got -1, expected an integer in [0, 1000000]"}),
    [](const auto& info) { return std::string(info.param.name); });

/// Text that is no JSON, or that a JSON tree would hide something of.
struct BadText {
  const char* name;
  const char* text;
  const char* message_start;
};
void PrintTo(const BadText& bad, std::ostream* out) { *out << bad.name; }

class ConfigRefusesText : public testing::TestWithParam<BadText> {};

TEST_P(ConfigRefusesText, InOneLine) {
  const std::string message = refusal(GetParam().text);
  EXPECT_EQ(message.rfind(GetParam().message_start, 0), 0U) << message;
  EXPECT_EQ(message.find('\n'), std::string::npos) << message;
}

INSTANTIATE_TEST_SUITE_P(
    Config, ConfigRefusesText,
    testing::Values(BadText{"Empty", "", "c.json: byte 1: got \"\", expected JSON ("},
                    BadText{"Truncated", "{\"seeds\": [0,", "c.json: byte 14: got "},
                    BadText{"Comment", "{ // no\n}",
                            "c.json: byte 3: got \"{ /\", expected JSON ("},
                    BadText{"Nan", "{\"a\": NaN}", "c.json: byte 7: got "},
                    BadText{"Overflow", "{\"a\": 1e999}", "c.json: byte 11: got "},
                    BadText{"Trailing", "{} x", "c.json: byte 4: got "},
                    BadText{"NotObject", "[1]",
                            "c.json: (root): got [1], expected an object with the keys " KEYS},
                    BadText{"DuplicateKey", R"({"seeds": [0], "seeds": [1]})",
                            "c.json: /seeds: duplicate key, expected each key once"},
                    BadText{"DuplicateDeep", R"({"shapes": [{}, {"B": 1, "B": 2}]})",
                            "c.json: /shapes/1/B: duplicate key, expected each key once"}),
    [](const auto& info) { return std::string(info.param.name); });

TEST(Config, NamesTheFileThatCannotBeRead) {
  const auto missing = load_config("/nowhere/c.json");
  ASSERT_FALSE(missing.ok());
  EXPECT_EQ(missing.status().message(),
            "/nowhere/c.json: No such file or directory, expected a readable JSON configuration "
            "file");
  const auto folder = load_config(testing::TempDir());
  ASSERT_FALSE(folder.ok());
  EXPECT_NE(folder.status().message().find("Is a directory"), std::string::npos)
      << folder.status().message();
}

TEST(Config, RefusesDeepNestingWithoutRecursion) {
  const std::string deep(400'000, '[');
  const std::string message = refusal(deep);
  EXPECT_EQ(message.rfind("c.json: /0/0/", 0), 0U) << message;
  EXPECT_NE(message.find("expected at most 64 levels of nesting"), std::string::npos) << message;
}

TEST(Config, RefusesWhatIsBehindTheDocument) {
  const std::string text = legal().dump();
  EXPECT_EQ(refusal(text + " \n"), "accepted");
  EXPECT_EQ(refusal(text + std::string("\0 {", 3)),
            "c.json: byte " + std::to_string(text.size() + 1) + ": got a NUL, expected JSON alone");
  EXPECT_EQ(refusal(std::string(1, '\0')).rfind("c.json: byte 1: ", 0), 0U);
}

TEST(Config, RefusesAnEndlessFile) {
  const auto endless = load_config("/dev/zero");
  ASSERT_FALSE(endless.ok());
  EXPECT_NE(endless.status().message().find("larger than 1048576 bytes"), std::string::npos);
}

}  // namespace
}  // namespace fp8_sdpa::reference
