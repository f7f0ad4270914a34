// Tensors of a file with descales of blocks of rows, and originals that are quantised in some way.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include "reference/formats/fp8.hpp"
#include "reference/formats/safetensors.hpp"
#include "reference/inputs/qkv.hpp"
#include "reference/oracle/case.hpp"

namespace fp8_sdpa::reference {
namespace {

constexpr std::uint64_t kSeqQ = 70, kSeqKv = 130, kDim = 64;  // two blocks each, the last short

SafetensorsTensor floats(const std::string& name, const std::vector<std::uint64_t>& shape,
                         const std::vector<float>& values) {
  SafetensorsTensor tensor{name, "F32", shape, {}};
  tensor.bytes.resize(values.size() * sizeof(float));
  std::memcpy(tensor.bytes.data(), values.data(), tensor.bytes.size());
  return tensor;
}

/// Two query heads, one KV head; codes of 1 to 2.
std::vector<SafetensorsTensor> codes() {
  std::vector<SafetensorsTensor> tensors;
  for (const auto& [name, heads, seq] :
       {std::tuple("q", 2, kSeqQ), std::tuple("k", 1, kSeqKv), std::tuple("v", 1, kSeqKv)}) {
    SafetensorsTensor tensor{
        name, "F8_E4M3", {1, static_cast<std::uint64_t>(heads), seq, kDim}, {}};
    for (std::uint64_t i = 0; i < static_cast<std::uint64_t>(heads) * seq * kDim; ++i) {
      tensor.bytes.push_back(static_cast<std::uint8_t>(0x38 + i % 9));
    }
    tensors.push_back(std::move(tensor));
  }
  return tensors;
}

float value_of(const QuantisedTensor& tensor, std::size_t element) {
  return decode_table(tensor.dtype)[tensor.codes[element]];
}

Result<Qkv> read(const std::vector<SafetensorsTensor>& more) {
  std::vector<SafetensorsTensor> tensors = codes();
  tensors.insert(tensors.end(), more.begin(), more.end());
  return parse_qkv(encode_safetensors(tensors), "x");
}

TEST(QkvBlocks, DescalesOfBlocksAreTakenAndThoseOfHeadsRepeated) {
  const auto qkv = read(
      {floats("k_descale", {1, 1, 2}, {0.5F, 2.0F}), floats("q_descale", {1, 2}, {3.0F, 5.0F})});
  ASSERT_TRUE(qkv.ok()) << qkv.status().message();
  ASSERT_TRUE(qkv->codes.has_value());
  EXPECT_EQ(qkv->codes->k.descales, (std::vector{0.5F, 2.0F}));
  EXPECT_EQ(qkv->codes->q.descales, (std::vector{3.0F, 3.0F, 5.0F, 5.0F}));
  EXPECT_EQ(qkv->codes->v.descales, (std::vector{1.0F, 1.0F}));
  const std::vector<float> k = dequantise(qkv->codes->k);
  EXPECT_EQ(k[127 * kDim], 0.5F * value_of(qkv->codes->k, 127 * kDim));
  EXPECT_EQ(k[128 * kDim], 2.0F * value_of(qkv->codes->k, 128 * kDim));
  const std::vector<float> q = dequantise(qkv->codes->q);
  EXPECT_EQ(q[kSeqQ * kDim], 5.0F * value_of(qkv->codes->q, kSeqQ * kDim));
}

TEST(QkvBlocks, WhatIsNoDescaleOfABlockIsRefused) {
  const auto refusal = [](const SafetensorsTensor& tensor) {
    const auto qkv = read({tensor});
    EXPECT_FALSE(qkv.ok());
    return qkv.ok() ? std::string() : qkv.status().message();
  };
  EXPECT_NE(refusal(floats("k_descale", {1, 1, 3}, {1, 1, 1}))
                .find("expected one element, (batch, heads), [1, 1], or (batch, heads, blocks of "
                      "128 rows), [1, 1, 2]"),
            std::string::npos);
  EXPECT_NE(refusal(floats("q_descale", {1, 2, 3}, {1, 1, 1, 1, 1, 1}))
                .find("blocks of 64 rows), [1, 2, 2]"),
            std::string::npos);
  for (const float bad : {0.0F, -1.0F}) {
    EXPECT_NE(refusal(floats("k_descale", {1, 1, 2}, {1.0F, bad})).find("is not positive"),
              std::string::npos);
  }
  EXPECT_NE(refusal(floats("v_descale", {1, 1, 2}, {1.0F, NAN})).find("element 1"),
            std::string::npos);
}

/// Values of which K's first channel is off by 8 in each row, and V's last block is smaller.
Qkv originals() {
  Qkv qkv;
  qkv.sizes = {1, 2, 1, kSeqQ, kSeqKv, kDim, Mask::kNone};
  qkv.original_head_dim = kDim;
  qkv.softmax_scale = 0.125F;
  for (auto* values : {&qkv.inputs.q, &qkv.inputs.k, &qkv.inputs.v}) {
    const bool of_q = values == &qkv.inputs.q;
    for (std::size_t i = 0; i < (of_q ? 2 * kSeqQ : kSeqKv) * kDim; ++i) {
      const float wave = std::sin(static_cast<float>(i * i % 1009) * (of_q ? 0.7F : 1.3F));
      const bool small = values == &qkv.inputs.v && i / kDim >= kKeysOfBlock;
      const bool off = values == &qkv.inputs.k && i % kDim == 0;
      values->push_back(off ? wave + 8.0F : small ? 0.4F * wave : wave);
    }
  }
  return qkv;
}

// Rotation and smoothing are of Q and K alone, and exact: O is that of the originals up to their
// rounding, and so is the LSE, once what smoothing took is put back.
TEST(QkvBlocks, OriginalsAreQuantisedInTheWayThatIsAskedFor) {
  const auto plain = make_case(originals(), "plain", Mask::kNone);
  ASSERT_TRUE(plain.ok());
  for (const QuantisingWay& way : {QuantisingWay{true, false, false},
                                   {false, true, false},
                                   {true, true, false},
                                   {true, true, true}}) {
    SCOPED_TRACE(way.rotate * 4 + way.smooth * 2 + static_cast<int>(way.blocks));
    const auto made = make_case(originals(), "made", Mask::kNone, Dtype::kE4M3, way);
    ASSERT_TRUE(made.ok());
    const CaseData& data = **made;
    EXPECT_EQ(data.inputs.k, (*plain)->inputs.k);
    EXPECT_EQ(data.reference_quantised.o, (*plain)->reference_quantised.o);
    EXPECT_NE(data.k.codes, (*plain)->k.codes);
    EXPECT_EQ(data.q.codes != (*plain)->q.codes, way.rotate || way.blocks);
    EXPECT_EQ(data.k.descales.size(), way.blocks ? 2U : 1U);
    EXPECT_EQ(data.q.descales.size(), way.blocks ? 4U : 2U);
    EXPECT_EQ(data.v.codes != (*plain)->v.codes, way.blocks);
    const std::vector<float> back =
        way.smooth ? lse_of_means(data, way.rotate) : std::vector<float>(2 * kSeqQ);
    for (std::size_t row = 0; row < back.size(); ++row) {
      EXPECT_NEAR(data.reference_kernel.lse[row] + back[row],
                  (*plain)->reference_quantised.lse[row], 0.1)
          << row;
      for (std::size_t d = 0; d < kDim; ++d) {
        EXPECT_NEAR(data.reference_kernel.o[row * kDim + d],
                    data.reference_quantised.o[row * kDim + d], 0.05);
      }
    }
    if (!way.smooth) continue;
    float largest = 0.0F;
    for (const float x : back) largest = std::max(largest, std::fabs(x));
    EXPECT_GT(largest, 0.3F) << "nothing was taken";
  }
}

}  // namespace
}  // namespace fp8_sdpa::reference
