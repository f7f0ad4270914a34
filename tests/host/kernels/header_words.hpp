// Which problems are legal, by the words of fp8_sdpa/problem.hpp and nothing else: slow, and a
// second opinion on what the library accepts.
#pragma once

#include <algorithm>
#include <array>
#include <cmath>
#include <cstdint>
#include <utility>
#include <vector>

#include "tests/host/kernels/made_up.hpp"

namespace fp8_sdpa::tests {

__extension__ using Wide = __int128;

struct View {
  const Tensor* tensor;
  std::array<std::int64_t, 4> sizes;  // batch, head, seq, dim
  bool value = false;                 // may be transposed

  std::array<std::int64_t, 4> strides() const {
    return {tensor->stride_batch, tensor->stride_head, tensor->stride_seq, tensor->stride_dim};
  }
  std::size_t unit_axis() const { return value && tensor->stride_dim != 1 ? 2 : 3; }
  int element() const { return size_of(tensor->dtype); }
};

/// "packed: (total_q, heads_q, head_dim)"; "pools, (pages, heads_kv, page_size, head_dim)"; "a
/// tensor of no rows is looked at as one of a single row"
inline std::array<View, 4> views_of(const Problem& p) {
  std::array<std::int64_t, 4> q = {p.batch, p.heads_q, p.seq_q, p.head_dim};
  std::array<std::int64_t, 4> kv = {p.batch, p.heads_kv, p.seq_kv, p.head_dim};
  constexpr std::int64_t kOne = 1;
  if (p.ragged.cu_seqlens_q != nullptr) {
    q = {1, p.heads_q, std::max(kOne, p.ragged.total_q), p.head_dim};
  }
  if (p.ragged.cu_seqlens_kv != nullptr) {
    kv = {1, p.heads_kv, std::max(kOne, p.ragged.total_kv), p.head_dim};
  } else if (p.pages.block_table != nullptr) {
    kv = {p.pages.pages, p.heads_kv, p.pages.page_size, p.head_dim};
  }
  return {{{&p.q, q}, {&p.k, kv}, {&p.v, kv, true}, {&p.o, q}}};
}

/// "each stride is at least the span of the axes before it, first element to last"
inline bool nests(const View& view) {
  const auto strides = view.strides();
  for (std::size_t axis = 0; axis < 4; ++axis) {
    if (view.sizes[axis] == 1) continue;
    Wide span = 1;
    for (std::size_t before = 0; before < 4; ++before) {
      if (before == axis || view.sizes[before] == 1 || strides[before] > strides[axis]) continue;
      span += Wide{strides[before]} * (view.sizes[before] - 1);
    }
    if (strides[axis] < span) return false;
  }
  return true;
}

/// "The base pointer and every stride but this unit one": of one tensor.
inline bool legal_view(const View& view, bool output) {
  const Tensor& t = *view.tensor;
  const bool fp8 = t.dtype == Dtype::kE4M3 || t.dtype == Dtype::kE5M2;
  const bool wide = t.dtype == Dtype::kHalf || t.dtype == Dtype::kBFloat16;
  if (output ? !wide && t.dtype != Dtype::kE4M3 : !fp8) return false;
  if (t.data == nullptr || reinterpret_cast<std::uintptr_t>(t.data) % 16 != 0) return false;
  const auto strides = view.strides();
  for (std::size_t axis = 0; axis < 4; ++axis) {
    if (axis == view.unit_axis()) {
      if (strides[axis] != 1) return false;
    } else if (view.sizes[axis] > 1) {
      const Wide stride = strides[axis];
      if (stride < 0 || stride * view.element() % 16 != 0) return false;
      if (stride * view.sizes[axis] >= Wide{1} << 60) return false;
    }
  }
  return !output || nests(view);
}

/// 32-bit words behind the pointer.
inline Wide words_of(const Problem& p, int which) {
  const Wide batch = p.batch;
  switch (which) {
    case kLse:
      return p.ragged.cu_seqlens_q == nullptr ? batch * p.heads_q * p.seq_q
                                              : Wide{p.heads_q} * p.ragged.total_q;
    case kLse + 1: return batch * p.heads_q;
    case kLse + 2:
    case kLse + 3: return batch * p.heads_kv;
    case kOffsetsQ:
    case kOffsetsKv: return batch + 1;
    case kLengths: return batch;
    case kTable: return batch * p.pages.max_pages;
    default: return 1;
  }
}

struct Bytes {
  Wide begin, end;
  std::size_t size() const { return static_cast<std::size_t>(end - begin); }
};

/// First byte to last, of one of a problem's pointers (made_up.hpp numbers them).
inline Bytes bytes_of(const Problem& p, int which) {
  const Wide begin = address(p, which);
  if (which > kOutput) return {begin, begin + words_of(p, which) * 4};
  const View view = views_of(p)[static_cast<std::size_t>(which)];
  Wide elements = 1;
  for (std::size_t axis = 0; axis < 4; ++axis) {
    if (view.sizes[axis] == 1) continue;
    elements += Wide{view.strides()[axis]} * (view.sizes[axis] - 1);
  }
  return {begin, begin + elements * view.element()};
}

/// What Ragged and Pages say of their sizes.
inline bool legal_sequences(const Problem& p) {
  constexpr std::int64_t kRows = std::int64_t{1} << 31;
  const Ragged& ragged = p.ragged;
  for (const auto& [offsets, total] :
       {std::pair{ragged.cu_seqlens_q, ragged.total_q}, {ragged.cu_seqlens_kv, ragged.total_kv}}) {
    if (offsets == nullptr ? total != 0 : total < 0 || total >= kRows) return false;
  }
  const Pages& pages = p.pages;
  const bool paged = pages.block_table != nullptr;
  if (ragged.cu_seqlens_kv != nullptr && (ragged.seqused_kv != nullptr || paged)) return false;
  if (!paged) return pages.pages == 0 && pages.page_size == 0 && pages.max_pages == 0;
  return pages.pages >= 1 && pages.page_size >= 1 && pages.max_pages >= 1 &&
         Wide{pages.max_pages} * pages.page_size >= p.seq_kv;
}

inline bool legal(const Problem& p) {
  constexpr std::int64_t kMost = std::int64_t{1} << 40;
  if (p.batch < 1 || p.heads_q < 1 || p.heads_kv < 1 || p.seq_q < 1 || p.seq_kv < 1) return false;
  if (p.seq_q > kMost || p.seq_kv > kMost || p.head_dim < 1 || p.head_dim > 256) return false;
  if (p.heads_q % p.heads_kv != 0) return false;
  if (!std::isfinite(p.softmax_scale) || p.softmax_scale < 0.0F) return false;
  if (p.mask != Mask::kNone && p.mask != Mask::kCausal) return false;
  if (p.lse_sum != LseSum::kDenominator && p.lse_sum != LseSum::kExact) return false;
  if ((p.o.dtype == Dtype::kE4M3) != (p.o_scale != nullptr)) return false;
  if (!legal_sequences(p)) return false;
  const auto views = views_of(p);
  for (int i = 0; i < 4; ++i) {
    if (!legal_view(views[static_cast<std::size_t>(i)], i == kOutput)) return false;
  }
  for (int i = kLse; i < kPointers; ++i) {
    if (address(p, i) % sizeof(float) != 0) return false;
    if (i > kLse && i < kFault && address(p, i) == 0) return false;
  }
  for (const int written : {kOutput, kLse, kFault}) {
    if (address(p, written) == 0) continue;  // none
    const Bytes mine = bytes_of(p, written);
    for (int other = 0; other < kPointers; ++other) {
      if (other == written || address(p, other) == 0) continue;
      const Bytes theirs = bytes_of(p, other);
      if (std::max(mine.begin, theirs.begin) < std::min(mine.end, theirs.end)) return false;
    }
  }
  return true;
}

/// What each element of a view is at, in elements from its base: f(offset), in the order of the
/// axes. The strides of axes of size 1 are nothing.
template <class F>
void for_each_element(const View& view, F f) {
  auto strides = view.strides();
  for (std::size_t axis = 0; axis < 4; ++axis) {
    if (view.sizes[axis] == 1) strides[axis] = 0;
  }
  for (std::int64_t b = 0; b < view.sizes[0]; ++b) {
    for (std::int64_t h = 0; h < view.sizes[1]; ++h) {
      for (std::int64_t s = 0; s < view.sizes[2]; ++s) {
        const std::int64_t row = b * strides[0] + h * strides[1] + s * strides[2];
        for (std::int64_t d = 0; d < view.sizes[3]; ++d) f(row + d * strides[3]);
      }
    }
  }
}

/// Whether two elements of O are at one place, or something that is written is where anything else
/// is: element by element. For small problems.
inline bool shares_memory(const Problem& p) {
  struct Piece {
    Wide begin, end;
    bool written;
  };
  std::vector<Piece> pieces;
  const auto views = views_of(p);
  for (int i = 0; i < 4; ++i) {
    const View& view = views[static_cast<std::size_t>(i)];
    const int size = view.element();
    for_each_element(view, [&](std::int64_t offset) {
      const Wide begin = Wide{address(p, i)} + Wide{offset} * size;
      const bool next =
          !pieces.empty() && pieces.back().end == begin && pieces.back().written == (i == kOutput);
      if (next) {
        pieces.back().end += size;
      } else {
        pieces.push_back({begin, begin + size, i == kOutput});
      }
    });
  }
  for (int i = kLse; i < kPointers; ++i) {
    const Bytes bytes = bytes_of(p, i);
    const bool written = i == kLse || i == kFault;
    if (bytes.begin != 0 && bytes.size() > 0) pieces.push_back({bytes.begin, bytes.end, written});
  }
  std::sort(pieces.begin(), pieces.end(),
            [](const Piece& a, const Piece& b) { return a.begin < b.begin; });
  Wide end = 0;
  Wide end_of_written = 0;
  for (const Piece& piece : pieces) {
    if (piece.begin < (piece.written ? end : end_of_written)) return true;
    end = std::max(end, piece.end);
    if (piece.written) end_of_written = std::max(end_of_written, piece.end);
  }
  return false;
}

}  // namespace fp8_sdpa::tests
