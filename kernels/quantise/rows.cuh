// Rows of the tensor in a warp's registers: loaded, and rotated on the tensor cores.
//
// A warp has 16 rows. With g = lane / 4 and t = lane % 4, a lane has of rows g and g + 8 the
// columns 32 i + 8 t .. + 7, i < head_dim / 32: 16 bytes of bf16 or half at a time, and 8 of codes.
//
// The Hadamard matrix of head_dim is a product over the bits of a column: H[c][n] = (-1)^(ones of
// c & n). The bits of t and the lowest two are a multiply by the one of 16, with mma: its operand
// takes a lane's elements where they are, as k = 2 t, 2 t + 1, 8 + 2 t, 9 + 2 t, and its result
// leaves them there. The third is a second multiply that adds or subtracts. The others are sums and
// differences of a lane's own.
#pragma once

#include <cmath>
#include <cstdint>
#include <cstring>
#include <type_traits>

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

template <Dtype kFrom, int kDim>
inline constexpr int kRowsOfLane = rows_of_lane(kFrom, kDim);

/// Of a lane's row `nth`.
template <Dtype kFrom, int kDim>
GPU_FN int row_in_tile(int nth) {
  return 8 * (kRowsOfLane<kFrom, kDim> * gpu::warp_idx() + nth) + gpu::lane_idx() / 4;
}
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
  GPU_FN void fill(const Params& p, int threads) {
    auto* const words = reinterpret_cast<std::uint32_t*>(of_eight);
    for (int i = gpu::thread_idx(); i < kDim / 2; i += threads) {
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

/// 1 / sqrt(head_dim), by which rows are multiplied last.
template <int kDim>
inline constexpr float kHadamardFactor = kDim == 64    ? 0x1p-3F
                                         : kDim == 128 ? 0x1.6a09e6p-4F
                                                       : 0x1p-4F;

/// Rotated rows are short of this factor up to where they become codes.
template <int kDim>
GPU_FN float factor(const Params& p) {
  return p.rotate ? kHadamardFactor<kDim> : 1.0F;
}

/// The Hadamard matrix of 16 as an operand.
template <gpu::Float16 kType>
struct Hadamard16 {
  std::uint32_t b[2][2];

  GPU_FN void fill() {
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

  /// Of a lane's 8 columns of two parts, or of a part of two rows: the products of columns 0 to 3
  /// and of 4 to 7 with the matrix, their sum and their difference.
  GPU_FN void add(const std::uint32_t (&first)[4], const std::uint32_t (&second)[4], float (&x)[8],
                  float (&y)[8]) const {
#pragma unroll
    for (int four = 0; four < 8; four += 4) {
#pragma unroll
      for (int tile = 0; tile < 2; ++tile) {
        const int c = four + 2 * tile;
        float d[4] = {x[c], x[c + 1], y[c], y[c + 1]};
#pragma unroll
        for (int w = 0; w < 4; w += 2) {
          const std::uint32_t a[4] = {first[w], second[w], first[w + 1], second[w + 1]};
          const std::uint32_t minus = four + w > 4 ? 0x80008000U : 0U;
          const std::uint32_t matrix[2] = {b[tile][0] ^ minus, b[tile][1] ^ minus};
          gpu::mma_m16n8k16<kType>(d, a, matrix);
        }
        x[c] = d[0];
        x[c + 1] = d[1];
        y[c] = d[2];
        y[c + 1] = d[3];
      }
    }
  }
};

/// The sums and differences that are left, all or all but the last: between x[.][part] and
/// x[.][part + kParts / 2].
template <bool kAll, int kDim, int kRows>
GPU_FN void finish_hadamard(Rows<kDim, kRows>& rows) {
  const auto both = [](float& a, float& b) {
    const float sum = a + b;
    b = a - b;
    a = sum;
  };
#pragma unroll
  for (auto& x : rows.x) {
#pragma unroll
    for (int bit = 1; bit < (kAll ? kParts<kDim> : kParts<kDim> / 2); bit *= 2) {
#pragma unroll
      for (int part = 0; part < kParts<kDim>; ++part) {
        if ((part & bit) != 0) continue;
#pragma unroll
        for (int c = 0; c < 8; ++c) both(x[part][c], x[part | bit][c]);
      }
    }
  }
}

/// A lane's elements of a tile are read 16 bytes at a time, by `vector(nth, part, i)` of one of
/// three: Loaded has them in registers, Held in shared memory, InPlace nowhere. Rows that are not
/// there are zero.
template <Dtype kFrom, int kDim>
struct Layout {
  using Element = std::conditional_t<kFrom == Dtype::kFloat, float, std::uint16_t>;
  static constexpr int kRows = kRowsOfLane<kFrom, kDim>;
  static constexpr int kVector = 16 / static_cast<int>(sizeof(Element));
  static constexpr int kVectors = 8 / kVector;  ///< of a part

  /// f(nth, part, i, address, whether the row is there) for each. `first` is the lane's first
  /// element.
  template <class F>
  GPU_FN static void for_each(const Element* first, std::int64_t stride, int rows, const F& f) {
#pragma unroll
    for (int nth = 0; nth < kRows; ++nth) {
      const bool there = row_in_tile<kFrom, kDim>(nth) < rows;
      const Element* const from = first + nth * 8 * stride;
#pragma unroll
      for (int part = 0; part < kParts<kDim>; ++part) {
#pragma unroll
        for (int i = 0; i < kVectors; ++i) f(nth, part, i, from + 32 * part + i * kVector, there);
      }
    }
  }
};

template <Dtype kFrom, int kDim>
struct Loaded {
  using L = Layout<kFrom, kDim>;
  uint4 vectors[L::kRows][kParts<kDim>][L::kVectors];

  GPU_FN const uint4& vector(int nth, int part, int i) const { return vectors[nth][part][i]; }

  GPU_FN void load(const typename L::Element* first, std::int64_t stride, int rows) {
    L::for_each(first, stride, rows,
                [&](int nth, int part, int i, const typename L::Element* from, bool there) {
                  vectors[nth][part][i] = uint4{};
                  if (there) vectors[nth][part][i] = *reinterpret_cast<const uint4*>(from);
                });
  }
};

/// Read where they are looked at, for who has no registers for them.
template <Dtype kFrom, int kDim>
struct InPlace {
  using L = Layout<kFrom, kDim>;
  const typename L::Element* first;
  std::int64_t stride;
  int rows;

  GPU_FN uint4 vector(int nth, int part, int i) const {
    if (row_in_tile<kFrom, kDim>(nth) >= rows) return uint4{};
    return *reinterpret_cast<const uint4*>(first + nth * 8 * stride + 32 * part + i * L::kVector);
  }
  GPU_FN void load(const typename L::Element* at, std::int64_t row_stride, int rows_there) {
    first = at;
    stride = row_stride;
    rows = rows_there;
  }
};

/// Each thread has copied what it looks at itself: nobody waits for others.
template <Dtype kFrom, int kDim>
struct Held {
  using L = Layout<kFrom, kDim>;
  uint4 vectors[L::kRows][kParts<kDim>][L::kVectors][compute_warps(kFrom, kDim) * gpu::kWarpSize];

  GPU_FN const uint4& vector(int nth, int part, int i) const {
    return vectors[nth][part][i][gpu::thread_idx()];
  }

  /// Starts the copy.
  GPU_FN void copy(const typename L::Element* first, std::int64_t stride, int rows) {
    L::for_each(first, stride, rows,
                [&](int nth, int part, int i, const typename L::Element* from, bool there) {
                  gpu::cp_async_16_zfill(&vectors[nth][part][i][gpu::thread_idx()], from, there);
                });
  }
};

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

/// What is made of a lane's elements: of bf16 or half, two a word.
template <Dtype kFrom, int kDim>
struct Source {
  static constexpr int kRows = rows_of_lane(kFrom, kDim);
  static constexpr gpu::Float16 kType =
      kFrom == Dtype::kHalf ? gpu::Float16::kHalf : gpu::Float16::kBFloat16;

  template <class From>
  GPU_FN static int infinities(const From& from) {
    constexpr std::uint32_t kInfinity = kFrom == Dtype::kHalf ? 0x7c00 : 0x7f80;
    int count = 0;
#pragma unroll
    for (int nth = 0; nth < kRows; ++nth) {
#pragma unroll
      for (int part = 0; part < kParts<kDim>; ++part) {
        const uint4 vector = from.vector(nth, part, 0);
        for (const std::uint32_t word : {vector.x, vector.y, vector.z, vector.w}) {
          count += static_cast<int>((word & 0x7fffU) == kInfinity) +
                   static_cast<int>((word >> 16 & 0x7fffU) == kInfinity);
        }
      }
    }
    return count;
  }

  GPU_FN static void take_vector(const uint4& vector, float (&x)[8]) {
    const std::uint32_t words[4] = {vector.x, vector.y, vector.z, vector.w};
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      const float2 two = two_values<kFrom>(words[i]);
      x[2 * i] = two.x;
      x[2 * i + 1] = two.y;
    }
  }

  template <class From>
  GPU_FN static void eight(const From& from, int nth, int part, float (&x)[8]) {
    take_vector(from.vector(nth, part, 0), x);
  }

  using Hadamard = Hadamard16<kType>;

  /// The signs, and the products with the matrix of 16.
  template <class From>
  GPU_FN static void begin_rotation(const From& from, const SignMasks<kDim>& signs,
                                    const Hadamard& hadamard, Rows<kDim, kRows>& rows) {
    rows = {};
#pragma unroll
    for (int part = 0; part < kParts<kDim>; part += 2) {
      const uint4 masks[2] = {signs.of_eight[first_column(part) / 8],
                              signs.of_eight[first_column(part + 1) / 8]};
#pragma unroll
      for (int nth = 0; nth < kRows; ++nth) {
        std::uint32_t words[2][4];
#pragma unroll
        for (int i = 0; i < 2; ++i) {
          const uint4 vector = from.vector(nth, part + i, 0);
          words[i][0] = vector.x ^ masks[i].x;
          words[i][1] = vector.y ^ masks[i].y;
          words[i][2] = vector.z ^ masks[i].z;
          words[i][3] = vector.w ^ masks[i].w;
        }
        hadamard.add(words[0], words[1], rows.x[nth][part], rows.x[nth][part + 1]);
      }
    }
  }
};

/// Of float: for mma the sum of three bf16, of 8 bits each, which is exact.
template <int kDim>
struct Source<Dtype::kFloat, kDim> {
  static constexpr int kRows = rows_of_lane(Dtype::kFloat, kDim);

  template <class From>
  GPU_FN static int infinities(const From& from) {
    int count = 0;
#pragma unroll
    for (int part = 0; part < kParts<kDim>; ++part) {
      float x[8];
      eight(from, 0, part, x);
#pragma unroll
      for (const float value : x) count += static_cast<int>(std::fabs(value) == INFINITY);
    }
    return count;
  }

  GPU_FN static void take_vector(const uint4& vector, float (&x)[4]) {
    memcpy(x, &vector, sizeof vector);
  }

  template <class From>
  GPU_FN static void eight(const From& from, int nth, int part, float (&x)[8]) {
    const uint4 vectors[2] = {from.vector(nth, part, 0), from.vector(nth, part, 1)};
    memcpy(x, vectors, sizeof vectors);
  }

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

  using Hadamard = Hadamard16<gpu::Float16::kBFloat16>;

  template <class From>
  GPU_FN static void begin_rotation(const From& from, const SignMasks<kDim>& signs,
                                    const Hadamard& hadamard, Rows<kDim, kRows>& rows) {
    rows = {};
#pragma unroll
    for (int part = 0; part < kParts<kDim>; part += 2) {
      const uint4 masks[2] = {signs.of_eight[first_column(part) / 8],
                              signs.of_eight[first_column(part + 1) / 8]};
      float left[2][8];
#pragma unroll
      for (int i = 0; i < 2; ++i) eight(from, 0, part + i, left[i]);
#pragma unroll
      for (int term = 0; term < 3; ++term) {
        std::uint32_t words[2][4];
#pragma unroll
        for (int i = 0; i < 2; ++i) {
          words[i][0] = cut(&left[i][0]) ^ masks[i].x;
          words[i][1] = cut(&left[i][2]) ^ masks[i].y;
          words[i][2] = cut(&left[i][4]) ^ masks[i].z;
          words[i][3] = cut(&left[i][6]) ^ masks[i].w;
        }
        hadamard.add(words[0], words[1], rows.x[0][part], rows.x[0][part + 1]);
      }
    }
  }
};

}  // namespace GPU_BACKEND
}  // namespace fp8_sdpa::quantiser
