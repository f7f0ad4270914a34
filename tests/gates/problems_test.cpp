// What the named shapes do not ask: partial tiles, S_q != S_kv, both FP8 formats, both outputs,
// both layouts.
#include <gtest/gtest.h>

#include <tuple>

#include "reference/judge/harness.hpp"
#include "tests/gates/gate_cases.hpp"

namespace fp8_sdpa::tests {
namespace {

class Problems : public VariantTest {};

// Every length around the tile sizes, as many queries as keys.
TEST_P(Problems, EveryLengthAroundTheTiles) {
  if (!ready_) return;
  for (const int seq : {1, 2, 15, 16, 17, 31, 33, 63, 64, 65, 97, 127, 128, 129}) {
    SCOPED_TRACE(seq);
    reference::CheckOptions options;
    options.padded = seq % 2 != 0;
    for (const int head_dim : head_dims()) {
      expect_pass_or_known_decline(variant(), make_shape(1, 2, seq, seq, head_dim), 3, device_,
                                   options);
    }
  }
}

TEST_P(Problems, MoreKeysThanQueriesAndFewer) {
  if (!ready_) return;
  for (const auto& [seq_q, seq_kv] : {std::pair{1, 129}, {113, 203}, {70, 1}, {33, 32}, {32, 33}}) {
    SCOPED_TRACE(testing::Message() << seq_q << " x " << seq_kv);
    for (const int head_dim : head_dims()) {
      expect_pass_or_known_decline(variant(), make_shape(2, 3, seq_q, seq_kv, head_dim), 4,
                                   device_);
    }
  }
}

// The first rows see a handful of keys, in problems that are judged as the named shapes are.
TEST_P(Problems, CausalRowsThatSeeFewKeys) {
  if (!ready_) return;
  for (const int seq : {129, 200}) {
    SCOPED_TRACE(seq);
    for (const int head_dim : head_dims()) {
      reference::Shape shape = make_shape(1, 2, seq, seq, head_dim);
      shape.mask = Mask::kCausal;
      shape.name += "_causal";
      expect_pass_or_known_decline(variant(), shape, 5, device_);
    }
  }
}

// NaN between the rows and behind each head, and an error for whoever reads it under
// AddressSanitizer.
TEST_P(Problems, NothingBetweenTheRowsIsRead) {
  if (!ready_) return;
  for (const auto& [seq_q, seq_kv] : {std::pair{33, 161}, {70, 1}, {1, 65}}) {
    for (const bool sequence_major : {false, true}) {
      SCOPED_TRACE(testing::Message()
                   << seq_q << " x " << seq_kv << (sequence_major ? " (B,S,H,D)" : " (B,H,S,D)"));
      reference::CheckOptions options;
      options.padded = true;
      options.sequence_major = sequence_major;
      for (const int head_dim : head_dims()) {
        expect_pass_or_known_decline(variant(), make_shape(2, 2, seq_q, seq_kv, head_dim), 4,
                                     device_, options);
      }
    }
  }
}

TEST_P(Problems, BothFormatsOutputsAndLayouts) {
  if (!ready_) return;
  for (const Dtype input : {Dtype::kE4M3, Dtype::kE5M2}) {
    for (const Dtype output : {Dtype::kHalf, Dtype::kBFloat16}) {
      for (const bool sequence_major : {false, true}) {
        SCOPED_TRACE(testing::Message() << name_of(input) << " -> " << name_of(output)
                                        << (sequence_major ? " (B,S,H,D)" : " (B,H,S,D)"));
        reference::CheckOptions options;
        options.output = output;
        options.sequence_major = sequence_major;
        for (const int head_dim : head_dims()) {
          for (const int seq_q : {5, 77}) {
            expect_pass_or_known_decline(variant(), make_shape(2, 2, seq_q, keys(77), head_dim), 5,
                                         device_, options, input);
          }
        }
      }
    }
  }
}

// V as a quantiser may leave it, (B,H,D,S): lengths that end a row of keys anywhere in 16 bytes,
// one KV tile and several, NaN in what pads the rows. Whoever does not serve it says so.
TEST_P(Problems, TransposedValues) {
  if (!ready_) return;
  for (const auto& [seq_q, seq_kv, head_dim] :
       {std::tuple{40, 1, 64}, {40, 48, 64}, {70, 333, 64}, {33, 203, 128}, {20, 300, 256}}) {
    for (const bool padded : {false, true}) {
      SCOPED_TRACE(testing::Message()
                   << seq_q << " x " << seq_kv << " x " << head_dim << (padded ? " padded" : ""));
      reference::CheckOptions options;
      options.transposed_v = true;
      options.padded = padded;
      expect_pass_or_known_decline(variant(), make_shape(1, 2, seq_q, seq_kv, head_dim), 8, device_,
                                   options);
    }
  }
}

TEST_P(Problems, WithoutLse) {
  if (!ready_) return;
  reference::CheckOptions options;
  options.lse = false;
  for (const int head_dim : head_dims()) {
    expect_pass(variant(), *case_data(make_shape(1, 1, 40, keys(40), head_dim), 6, codes()),
                device_, options);
  }
}

TEST_P(Problems, NoScaleMeansOneOverTheRootOfTheHeadDim) {
  if (!ready_) return;
  for (const int head_dim : head_dims()) {
    const reference::Shape shape = make_shape(1, 1, 40, keys(22), head_dim);
    reference::CaseData data = *case_data(shape, 10, codes());
    const auto said = reference::run_variant(variant(), data, device_, {});
    ASSERT_TRUE(said.ok()) << said.status().message();
    data.softmax_scale = 0.0F;
    const auto left_out = reference::run_variant(variant(), data, device_, {});
    ASSERT_TRUE(left_out.ok()) << left_out.status().message();
    EXPECT_EQ(*left_out, *said) << head_dim;
  }
}

INSTANTIATE_TEST_SUITE_P(Gates, Problems,
                         testing::Combine(testing::ValuesIn(kBackends),
                                          testing::ValuesIn(all_variants())),
                         name_of_parameter);

}  // namespace
}  // namespace fp8_sdpa::tests
