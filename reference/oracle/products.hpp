// The inner loops of the rounding model: a row times a matrix in fp32, and an FP8 multiply.
#pragma once

#include <cstddef>

#include "reference/oracle/vectors.hpp"

namespace fp8_sdpa::reference {

/// out[c] += sum over k < depth of row[k] * matrix[k * stride + c], c < columns, in the order of k,
/// one product after the other: the same bits by any vectors.
void add_products(const float* row, const float* matrix, std::size_t stride, std::size_t depth,
                  std::size_t columns, float* out, Vectors vectors = widest_vectors());

inline constexpr int kFp8Depth = 32;  ///< products of one FP8 multiply

/// sum + the products a[i] * b[i], as one FP8 tensor-core multiply adds them up.
float add_truncated(float sum, const float* a, const float* b, int count);

}  // namespace fp8_sdpa::reference
