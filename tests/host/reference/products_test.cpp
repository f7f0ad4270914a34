#include "reference/oracle/products.hpp"

#include <gtest/gtest.h>

#include <cstddef>
#include <vector>

#include "reference/inputs/distributions.hpp"
#include "reference/inputs/philox.hpp"
#include "tests/host/reference/cpu_vectors.hpp"

namespace fp8_sdpa::reference {
namespace {

/// Each sum is one chain in the order of the depth, by any vectors and of any width.
TEST(Products, AreTheDefinitionToTheLastBit) {
  constexpr std::size_t kDepth = 33;
  constexpr std::size_t kStride = 150;
  const PhiloxStream words(1, 0);
  std::vector<float> row(kDepth);
  std::vector<float> matrix(kDepth * kStride);
  for (std::size_t i = 0; i < row.size(); ++i) row[i] = normal_from_word(words.word(i), 0.0, 1.0);
  for (std::size_t i = 0; i < matrix.size(); ++i) {
    matrix[i] = normal_from_word(words.word(kDepth + i), 0.0, 1.0);
  }
  for (const std::size_t columns : {1, 8, 31, 32, 64, 100, 128, 150}) {
    std::vector<float> want(kStride, 0.5F);
    for (std::size_t c = 0; c < columns; ++c) {
      for (std::size_t k = 0; k < kDepth; ++k) want[c] += row[k] * matrix[k * kStride + c];
    }
    for (const Vectors vectors : vectors_of_this_cpu()) {
      std::vector<float> got(kStride, 0.5F);
      add_products(row.data(), matrix.data(), kStride, kDepth, columns, got.data(), vectors);
      EXPECT_EQ(got, want) << columns;
    }
  }
}

}  // namespace
}  // namespace fp8_sdpa::reference
