// Rows of the tensor in a warp's registers: loaded, and rotated on the tensor cores.
//
// A warp has 16 rows. With g = lane / 4 and t = lane % 4, a lane has of rows g and g + 8 the
// columns 32 i + 8 t .. + 7, i < head_dim / 32: 16 bytes of bf16 or half at a time, and 8 of codes.
//
// The Hadamard matrix of head_dim is a product over the bits of a column: H[c][n] = (-1)^(ones of
// c & n). The bits of t and the lowest two are a multiply by the one of 16, with mma: its operand
// takes a lane's elements where they are, as k = 2 t, 2 t + 1, 8 + 2 t, 9 + 2 t, and its result
// leaves them there. The others are sums and differences of a lane's own.
#pragma once

#include <cmath>
#include <cstdint>
#include <cstring>

#include "gpu/gpu.hpp"
#include "quantise/params.hpp"

namespace fp8_sdpa::quantiser {
inline namespace GPU_BACKEND {

template <int kDim>
inline constexpr int kParts = kDim / 32;

/// A lane's elements.
template <int kDim, int kRows>
struct Rows {
  float x[kRows][kParts<kDim>][8];
};

/// Of a lane's row `nth`.
GPU_FN int row_in_warp(int nth) { return gpu::lane_idx() / 4 + 8 * nth; }
GPU_FN int first_column(int part) { return 32 * part + gpu::lane_idx() % 4 * 8; }

/// Whether the rotation turns a column's sign.
GPU_FN bool flips(const Params& p, int column) {
  return (p.signs[column / 64] >> (column % 64) & 1U) != 0;
}

/// The signs as masks: of two 16-bit columns a word.
template <int kDim>
struct SignMasks {
  uint4 of_eight[kDim / 8];

  /// Filled by all threads of the block, which wait for each other then.
  GPU_FN void fill(const Params& p) {
    auto* const words = reinterpret_cast<std::uint32_t*>(of_eight);
    for (int i = gpu::thread_idx(); i < kDim / 2; i += kWarps * gpu::kWarpSize) {
      words[i] = (flips(p, 2 * i) ? 0x8000U : 0U) | (flips(p, 2 * i + 1) ? 0x80000000U : 0U);
    }
  }
};

/// Whether so many bits are set, up to 8: -1 in the Hadamard matrix.
GPU_FN bool is_odd(unsigned bits) {
  bits ^= bits >> 4;
  bits ^= bits >> 2;
  return ((bits ^ bits >> 1) & 1U) != 0;
}

/// 1 / sqrt(head_dim)
template <int kDim>
inline constexpr float kHadamardFactor = kDim == 64    ? 0x1p-3F
                                         : kDim == 128 ? 0x1.6a09e6p-4F
                                                       : 0x1p-4F;

/// The Hadamard matrix of 16 as an operand.
template <gpu::Float16 kType>
struct Hadamard16 {
  std::uint32_t b[2][2];

  GPU_FN Hadamard16() {
    const int g = gpu::lane_idx() / 4;
    const int t = gpu::lane_idx() % 4;
    constexpr std::uint32_t kOne = kType == gpu::Float16::kHalf ? 0x3c00 : 0x3f80;
    const auto sign = [](unsigned bits) { return is_odd(bits) ? 1U : 0U; };
#pragma unroll
    for (int tile = 0; tile < 2; ++tile) {
      // A column of the result: the two bits of t from g / 2, the lowest two from the tile and g.
      const auto to = static_cast<unsigned>(g / 2 * 4 + 2 * tile + g % 2);
#pragma unroll
      for (int i = 0; i < 2; ++i) {
        const auto from = static_cast<unsigned>(4 * t + 2 * i);
        b[tile][i] = kOne | sign(from & to) << 15 | (kOne | sign((from | 1U) & to) << 15) << 16;
      }
    }
  }

  /// Adds the products with a lane's 8 columns of a part.
  template <int kRows, int kPartsOfRow>
  GPU_FN void add(const std::uint32_t (&words)[kRows][4], float (&x)[kRows][kPartsOfRow][8],
                  int part) const {
    constexpr int kLast = kRows - 1;  // of one row, what mma does with the other's is not looked at
#pragma unroll
    for (int four = 0; four < 8; four += 4) {
      const int w = four / 2;
      const std::uint32_t a[4] = {words[0][w], words[kLast][w], words[0][w + 1],
                                  words[kLast][w + 1]};
#pragma unroll
      for (int tile = 0; tile < 2; ++tile) {
        float* const low = &x[0][part][four + 2 * tile];
        float* const high = &x[kLast][part][four + 2 * tile];
        float d[4] = {low[0], low[1], high[0], high[1]};
        gpu::mma_m16n8k16<kType>(d, a, b[tile]);
        high[0] = d[2];
        high[1] = d[3];
        low[0] = d[0];
        low[1] = d[1];
      }
    }
  }
};

/// The sums and differences that are left, and the factor.
template <int kDim, int kRows>
GPU_FN void finish_hadamard(Rows<kDim, kRows>& rows) {
  const auto both = [](float& a, float& b) {
    const float sum = a + b;
    b = a - b;
    a = sum;
  };
#pragma unroll
  for (auto& x : rows.x) {
#pragma unroll
    for (int part = 0; part < kParts<kDim>; ++part) {
#pragma unroll
      for (int c = 0; c < 4; ++c) both(x[part][c], x[part][c + 4]);
    }
#pragma unroll
    for (int bit = 1; bit < kParts<kDim>; bit *= 2) {
#pragma unroll
      for (int part = 0; part < kParts<kDim>; ++part) {
        if ((part & bit) != 0) continue;
#pragma unroll
        for (int c = 0; c < 8; ++c) both(x[part][c], x[part | bit][c]);
      }
    }
#pragma unroll
    for (int part = 0; part < kParts<kDim>; ++part) {
#pragma unroll
      for (int c = 0; c < 8; ++c) x[part][c] *= kHadamardFactor<kDim>;
    }
  }
}

/// Loads 16 bytes for each of a lane's rows and parts; zeros for rows past the end.
template <int kDim, int kRows, class Element, class Take>
GPU_FN void load(const Params& p, const Element* head, int warp_row, const Take& take) {
#pragma unroll
  for (int nth = 0; nth < kRows; ++nth) {
    const int row = warp_row + row_in_warp(nth);
    const bool there = row < p.seq;
    const Element* const from = head + (there ? row * p.from_strides.seq : 0);
    constexpr int kVector = 16 / static_cast<int>(sizeof(Element));
#pragma unroll
    for (int part = 0; part < kParts<kDim>; ++part) {
#pragma unroll
      for (int i = 0; i < 8 / kVector; ++i) {
        uint4 vector = {};
        if (there) {
          vector = *reinterpret_cast<const uint4*>(from + first_column(part) + i * kVector);
        }
        take(nth, part, i, vector);
      }
    }
  }
}

/// Two elements of a word.
template <Dtype kFrom>
GPU_FN float2 two_values(std::uint32_t word) {
  if constexpr (kFrom == Dtype::kHalf) {
    __half2 two;
    memcpy(static_cast<void*>(&two), &word, sizeof two);
    return gpu::half2_to_float2(two);
  } else {
    const std::uint32_t bits[2] = {word << 16, word & 0xffff0000U};
    float2 two;
    memcpy(&two, bits, sizeof two);
    return two;
  }
}

/// bf16 or half, two a word.
template <Dtype kFrom, int kDim>
struct Source {
  static constexpr int kRows = rows_of_lane(kFrom, kDim);
  static constexpr gpu::Float16 kType =
      kFrom == Dtype::kHalf ? gpu::Float16::kHalf : gpu::Float16::kBFloat16;
  using Element = std::uint16_t;
  std::uint32_t words[kParts<kDim>][kRows][4];

  GPU_FN void load_rows(const Params& p, const Element* head, int warp_row) {
    load<kDim, kRows>(p, head, warp_row, [&](int nth, int part, int /*i*/, const uint4& vector) {
      std::uint32_t(&to)[4] = words[part][nth];
      to[0] = vector.x;
      to[1] = vector.y;
      to[2] = vector.z;
      to[3] = vector.w;
    });
  }

  GPU_FN int infinities() const {
    constexpr std::uint32_t kInfinity = kFrom == Dtype::kHalf ? 0x7c00 : 0x7f80;
    int count = 0;
#pragma unroll
    for (const auto& part : words) {
#pragma unroll
      for (const auto& row : part) {
#pragma unroll
        for (const std::uint32_t word : row) {
          count += static_cast<int>((word & 0x7fffU) == kInfinity) +
                   static_cast<int>((word >> 16 & 0x7fffU) == kInfinity);
        }
      }
    }
    return count;
  }

  GPU_FN void values(Rows<kDim, kRows>& rows) const {
#pragma unroll
    for (int part = 0; part < kParts<kDim>; ++part) {
#pragma unroll
      for (int nth = 0; nth < kRows; ++nth) {
#pragma unroll
        for (int i = 0; i < 4; ++i) {
          const float2 two = two_values<kFrom>(words[part][nth][i]);
          rows.x[nth][part][2 * i] = two.x;
          rows.x[nth][part][2 * i + 1] = two.y;
        }
      }
    }
  }

  GPU_FN void rotated(const SignMasks<kDim>& signs, Rows<kDim, kRows>& rows) {
    const Hadamard16<kType> hadamard;
    rows = {};
#pragma unroll
    for (int part = 0; part < kParts<kDim>; ++part) {
      const uint4 masks = signs.of_eight[first_column(part) / 8];
      for (auto& row : words[part]) {
        row[0] ^= masks.x;
        row[1] ^= masks.y;
        row[2] ^= masks.z;
        row[3] ^= masks.w;
      }
      hadamard.add(words[part], rows.x, part);
    }
    finish_hadamard(rows);
  }
};

/// float: for mma the sum of three bf16, of 8 bits each, which is exact.
template <int kDim>
struct Source<Dtype::kFloat, kDim> {
  static constexpr int kRows = rows_of_lane(Dtype::kFloat, kDim);
  using Element = float;
  Rows<kDim, kRows> from;

  GPU_FN void load_rows(const Params& p, const Element* head, int warp_row) {
    load<kDim, kRows>(p, head, warp_row, [&](int nth, int part, int i, const uint4& vector) {
      memcpy(&from.x[nth][part][4 * i], &vector, sizeof vector);
    });
  }

  GPU_FN int infinities() const {
    int count = 0;
#pragma unroll
    for (const auto& part : from.x[0]) {
#pragma unroll
      for (const float x : part) count += static_cast<int>(std::fabs(x) == INFINITY);
    }
    return count;
  }

  GPU_FN void values(Rows<kDim, kRows>& rows) const { rows = from; }

  /// Cuts the upper 16 bits off what is left of two elements. A NaN or an infinity goes whole.
  GPU_FN static std::uint32_t cut(float* two) {
    std::uint32_t upper[2];
#pragma unroll
    for (int i = 0; i < 2; ++i) {
      memcpy(&upper[i], &two[i], sizeof(float));
      const bool finite = std::fabs(two[i]) < INFINITY;
      if (two[i] != two[i]) upper[i] |= 0x00400000U;
      upper[i] &= 0xffff0000U;
      float taken;
      memcpy(&taken, &upper[i], sizeof taken);
      two[i] = finite ? two[i] - taken : 0.0F;
    }
    return upper[0] >> 16 | upper[1];
  }

  GPU_FN void rotated(const SignMasks<kDim>& signs, Rows<kDim, kRows>& rows) const {
    const Hadamard16<gpu::Float16::kBFloat16> hadamard;
    rows = {};
#pragma unroll
    for (int part = 0; part < kParts<kDim>; ++part) {
      const uint4 eight = signs.of_eight[first_column(part) / 8];
      const std::uint32_t masks[4] = {eight.x, eight.y, eight.z, eight.w};
      float left[8];
#pragma unroll
      for (int c = 0; c < 8; ++c) left[c] = from.x[0][part][c];
#pragma unroll
      for (int term = 0; term < 3; ++term) {
        std::uint32_t words[1][4];
#pragma unroll
        for (int i = 0; i < 4; ++i) words[0][i] = cut(&left[2 * i]) ^ masks[i];
        hadamard.add(words, rows.x, part);
      }
    }
    finish_hadamard(rows);
  }
};

}  // namespace GPU_BACKEND
}  // namespace fp8_sdpa::quantiser
