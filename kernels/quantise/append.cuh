// Appends tokens to a cache: a block takes a token, its threads eight columns of a head of K or V
// at a time.
#pragma once

#include <cstdint>

#include "attention/divisor.hpp"
#include "fp8_sdpa/append.hpp"
#include "gpu/gpu.hpp"
#include "quantise/params.hpp"
#include "quantise/rows.cuh"

namespace fp8_sdpa::quantiser {
inline namespace GPU_BACKEND {

inline constexpr int kAppendColumns = 8;  ///< of a row, at a time

/// K or V.
struct AppendTensor {
  const void* from;
  std::int64_t from_head, from_token;  ///< strides, in elements
  std::uint8_t* cache;
  Strides strides;  ///< batch is that of a page
  const float* descales;
};

struct AppendParams {
  AppendTensor tensors[2];  ///< K and V
  const std::int64_t* slots;
  std::uint32_t* fault;  ///< or null
  Rotary rotary;
  attention::Divisor page_size, parts;  ///< parts: eights of a row's columns
  int rows;                             ///< of the cache
  int heads;
  bool e5m2;
};

template <Dtype kFrom>
struct AppendKernel {
  using Params = AppendParams;
  struct Shared {};
  static constexpr int kThreads = 128;
  static constexpr int kMinBlocks = 1;
  static constexpr int kColumns = kAppendColumns;
  using Element = std::conditional_t<kFrom == Dtype::kFloat, float, std::uint16_t>;

  struct Eight {
    float x[kColumns];
  };
  /// From an address that is a multiple of 16.
  GPU_FN static void load_four(const float* from, float* to) {
    const float4 four = *reinterpret_cast<const float4*>(from);
    memcpy(to, &four, sizeof four);
  }
  GPU_FN static Eight load(const Element* from) {
    Eight eight;
    if constexpr (kFrom == Dtype::kFloat) {
      load_four(from, &eight.x[0]);
      load_four(from + 4, &eight.x[4]);
    } else {
      const uint4 vector = *reinterpret_cast<const uint4*>(from);
      const std::uint32_t words[4] = {vector.x, vector.y, vector.z, vector.w};
#pragma unroll
      for (int i = 0; i < 4; ++i) {
        const float2 two = two_values<kFrom>(words[i]);
        eight.x[2 * i] = two.x;
        eight.x[2 * i + 1] = two.y;
      }
    }
    return eight;
  }

  /// Columns `column` to column + 7 of a row of K, turned by the token's angles.
  GPU_FN static Eight rotated(const Rotary& rotary, std::int64_t position, const Element* row,
                              int column) {
    Eight eight = load(row + column);
    if (column >= rotary.dim) return eight;
    const int half = rotary.dim / 2;
    const bool low = column < half;
    const int angle = rotary.interleaved ? column / 2 : low ? column : column - half;
    const float* const angles = rotary.cos_sin + position * rotary.dim + angle;
    float cos[kColumns], sin[kColumns];
    load_four(angles, cos);
    load_four(angles + half, sin);
    if (rotary.interleaved) {
#pragma unroll
      for (int i = 0; i < kColumns / 2; ++i) {
        const float a = eight.x[2 * i];
        const float b = eight.x[2 * i + 1];
        eight.x[2 * i] = gpu::fma(a, cos[i], -(b * sin[i]));
        eight.x[2 * i + 1] = gpu::fma(b, cos[i], a * sin[i]);
      }
      return eight;
    }
    load_four(angles + 4, cos + 4);
    load_four(angles + half + 4, sin + 4);
    const Eight other = load(row + (low ? column + half : column - half));
#pragma unroll
    for (int i = 0; i < kColumns; ++i) {
      const float turned = other.x[i] * sin[i];
      eight.x[i] = gpu::fma(eight.x[i], cos[i], low ? -turned : turned);
    }
    return eight;
  }

  template <bool kE5M2>
  GPU_FN static uint2 codes_of(const Eight& eight, float inverse) {
    std::uint32_t two[4];
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      const float low = eight.x[2 * i] * inverse;
      const float high = eight.x[2 * i + 1] * inverse;
      two[i] = kE5M2 ? gpu::float2_to_e5m2x2(low, high) : gpu::float2_to_e4m3x2(low, high);
    }
    return make_uint2(two[0] | two[1] << 16, two[2] | two[3] << 16);
  }

  GPU_FN static const Element* row_of(const AppendTensor& t, std::int64_t token, int head) {
    return static_cast<const Element*>(t.from) + head * t.from_head + token * t.from_token;
  }
  GPU_FN static void store(const Params& p, const AppendTensor& t, int page, int row, int head,
                           int column, const Eight& eight) {
    const float inverse = gpu::divide(1.0F, t.descales[head]);
    std::uint8_t* const to =
        t.cache + page * t.strides.batch + head * t.strides.head + row * t.strides.seq + column;
    *reinterpret_cast<uint2*>(to) =
        p.e5m2 ? codes_of<true>(eight, inverse) : codes_of<false>(eight, inverse);
  }

  GPU_FN static void run(const Params& p, Shared& /*shared*/) {
    const auto token = static_cast<std::int64_t>(gpu::block_idx().x);
    const std::int64_t slot = p.slots[token];
    if (slot < 0) return;
    const bool rotate = p.rotary.cos_sin != nullptr;
    const std::int64_t position = rotate ? p.rotary.positions[token] : 0;
    if (slot >= p.rows || (rotate && (position < 0 || position >= p.rotary.max_positions))) {
      const bool tells = gpu::thread_idx() == 0 && p.fault != nullptr;
      if (tells) gpu::atomic_max_relaxed(p.fault, 1);
      return;
    }
    const int page = attention::quotient(static_cast<int>(slot), p.page_size);
    const int row = static_cast<int>(slot) - page * p.page_size.value;
    for (int i = gpu::thread_idx(); i < p.heads * p.parts.value; i += kThreads) {
      const int head = attention::quotient(i, p.parts);
      const int column = (i - head * p.parts.value) * kColumns;
      const Element* const k = row_of(p.tensors[0], token, head);
      const Eight v = load(row_of(p.tensors[1], token, head) + column);
      store(p, p.tensors[0], page, row, head, column,
            rotate ? rotated(p.rotary, position, k, column) : load(k + column));
      store(p, p.tensors[1], page, row, head, column, v);
    }
  }
};

inline AppendTensor append_tensor(const Tensor& from, const Tensor& cache, const float* descales) {
  return {from.data,
          from.stride_head,
          from.stride_seq,
          static_cast<std::uint8_t*>(cache.data),
          {cache.stride_batch, cache.stride_head, cache.stride_seq},
          descales};
}

}  // namespace GPU_BACKEND

template <Backend kBackend>
Status append(const Append& a, const gpu::Queue& queue) {
  const AppendParams params = {.tensors = {append_tensor(a.k, a.k_cache, a.descale_k),
                                           append_tensor(a.v, a.v_cache, a.descale_v)},
                               .slots = a.slots,
                               .fault = a.fault,
                               .rotary = a.rotary,
                               .page_size = attention::divisor(a.page_size),
                               .parts = attention::divisor(a.head_dim / kAppendColumns),
                               .rows = a.pages * a.page_size,
                               .heads = a.heads,
                               .e5m2 = a.k_cache.dtype == Dtype::kE5M2};
  const dim3 grid(static_cast<unsigned>(a.tokens));
  switch (a.k.dtype) {
    case Dtype::kHalf: return gpu::launch<AppendKernel<Dtype::kHalf>>(grid, params, queue);
    case Dtype::kBFloat16: return gpu::launch<AppendKernel<Dtype::kBFloat16>>(grid, params, queue);
    default: return gpu::launch<AppendKernel<Dtype::kFloat>>(grid, params, queue);
  }
}

}  // namespace fp8_sdpa::quantiser
