#include "dispatch/check_problem.hpp"

#include <array>
#include <cmath>
#include <cstdint>
#include <limits>
#include <span>
#include <string>
#include <string_view>

#include "attention/sequences.hpp"
#include "dispatch/check_tensor.hpp"

namespace fp8_sdpa::detail {
namespace {

constexpr int kMaxHeadDim = 256;

Status check_shape(const Problem& p) {
  if (Status s = check_counts(p); !s.ok()) return s;
  if (p.head_dim > kMaxHeadDim) {
    return invalid_argument("head_dim is " + std::to_string(p.head_dim) + "; at most " +
                            std::to_string(kMaxHeadDim) + " is served");
  }
  // Sizes below this bound cannot overflow any product of strides that fits a real allocation.
  constexpr std::int64_t kMaxSeq = std::int64_t{1} << 40;
  if (p.seq_q > kMaxSeq || p.seq_kv > kMaxSeq) {
    return invalid_argument("seq_q and seq_kv are " + std::to_string(p.seq_q) + " and " +
                            std::to_string(p.seq_kv) + "; at most 2^40 is possible");
  }
  if (!(p.softmax_scale >= 0.0F) || !std::isfinite(p.softmax_scale)) {
    return invalid_argument("softmax_scale is " + std::to_string(p.softmax_scale) +
                            "; it must be positive and finite, or 0 for 1 / sqrt(head_dim)");
  }
  return {};
}

Status check_pages(const Problem& p) {
  const Pages& pages = p.pages;
  if (pages.block_table == nullptr) {
    if (pages.pages == 0 && pages.page_size == 0 && pages.max_pages == 0) return {};
    return invalid_argument(
        "pages.block_table is null, but pages.pages, page_size or max_pages is "
        "not 0");
  }
  if (Status s = check_sizes({{"pages.pages", pages.pages},
                              {"pages.page_size", pages.page_size},
                              {"pages.max_pages", pages.max_pages}});
      !s.ok()) {
    return s;
  }
  if (std::int64_t{pages.max_pages} * pages.page_size >= p.seq_kv) return {};
  return invalid_argument("seq_kv is " + std::to_string(p.seq_kv) +
                          "; pages.max_pages * pages.page_size keys have room, " +
                          std::to_string(std::int64_t{pages.max_pages} * pages.page_size));
}

Status check_ragged(const Problem& p) {
  constexpr std::int64_t kMaxRows = std::numeric_limits<std::int32_t>::max();
  const Ragged& ragged = p.ragged;
  struct Packed {
    const char* name;
    const std::int32_t* offsets;
    const char* total_name;
    std::int64_t total;
  };
  for (const Packed& packed :
       {Packed{"ragged.cu_seqlens_q", ragged.cu_seqlens_q, "ragged.total_q", ragged.total_q},
        Packed{"ragged.cu_seqlens_kv", ragged.cu_seqlens_kv, "ragged.total_kv", ragged.total_kv}}) {
    if (packed.offsets == nullptr && packed.total != 0) {
      return invalid_argument(std::string(packed.name) + " is null, but " + packed.total_name +
                              " is " + std::to_string(packed.total));
    }
    if (packed.total < 0 || packed.total > kMaxRows) {
      return invalid_argument(std::string(packed.total_name) + " is " +
                              std::to_string(packed.total) + "; it must be 0 to 2^31 - 1");
    }
  }
  if (ragged.cu_seqlens_kv == nullptr) return {};
  for (const auto& [name, also] :
       {std::pair<const char*, const void*>{"ragged.seqused_kv", ragged.seqused_kv},
        {"pages.block_table", p.pages.block_table}}) {
    if (also == nullptr) continue;
    return invalid_argument("ragged.cu_seqlens_kv and " + std::string(name) +
                            " are both given; keys lie in one of these ways");
  }
  return {};
}

/// What a tensor is to the problem.
enum class Is : std::uint8_t { kOutput, kQueryOrKey, kValue, kValueOfInt8 };

Status check_dtype(const View& view, Is is) {
  const Dtype dtype = view.tensor->dtype;
  const bool is_16_bit = dtype == Dtype::kHalf || dtype == Dtype::kBFloat16;
  const bool is_right = is == Is::kOutput        ? is_16_bit || dtype == Dtype::kE4M3
                        : is == Is::kValueOfInt8 ? is_16_bit
                        : is == Is::kValue       ? is_fp8(dtype)
                                                 : is_fp8(dtype) || dtype == Dtype::kInt8;
  if (is_right) return {};
  const char* const expected = is == Is::kOutput        ? "half, bf16 or e4m3"
                               : is == Is::kValueOfInt8 ? "half or bf16 where q is int8"
                               : is == Is::kValue       ? "e4m3 or e5m2"
                                                        : "e4m3, e5m2 or int8";
  return invalid_argument(field(view, "dtype") + " is " + name_of(dtype) + "; it must be " +
                          expected);
}

Status check_view(const View& view, Is is) {
  if (Status s = check_data(view); !s.ok()) return s;
  if (Status s = check_dtype(view, is); !s.ok()) return s;
  return check_strides(view);
}

/// The scale of an output of E4M3; no other output has one.
Status check_output_scale(const Problem& p) {
  if (p.o.dtype == Dtype::kE4M3) return check_pointer("o_scale", p.o_scale, alignof(float));
  if (p.o_scale == nullptr) return {};
  return invalid_argument("o_scale is given, and o.dtype is " + std::string(name_of(p.o.dtype)) +
                          "; only an e4m3 o has a scale");
}

/// Of an optional array of words.
Status check_words(const char* name, const void* words) {
  return words == nullptr ? Status{} : check_pointer(name, words, alignof(std::uint32_t));
}

// What is written shares no byte with anything else.
Status check_overlap(const Problem& p, const View& output, const std::array<View, 3>& inputs) {
  const auto size = [](std::int64_t value) { return static_cast<std::uintptr_t>(value); };
  const std::uintptr_t q_heads = size(p.batch) * size(p.heads_q);
  const std::uintptr_t kv_heads = size(p.batch) * size(p.heads_kv);
  const auto optional = [](const void* first, std::uintptr_t count) {
    return words_of(first, first == nullptr ? 0 : count);
  };
  const std::uintptr_t offsets = size(p.batch) + 1;
  const bool packed = p.ragged.cu_seqlens_q != nullptr;
  const std::uintptr_t lse_rows =
      packed ? size(p.heads_q) * size(p.ragged.total_q) : q_heads * size(p.seq_q);
  const auto of_head = [&](std::int64_t rows, int rows_of_block) {
    return size(descales_of_head(p.descales.granularity, rows, rows_of_block));
  };
  const std::array<NamedRange, 11> read = {
      {{"q", bytes_of(inputs[0])},
       {"k", bytes_of(inputs[1])},
       {"v", bytes_of(inputs[2])},
       {"descales.q", words_of(p.descales.q, q_heads * of_head(p.seq_q, kQueriesOfBlock))},
       {"descales.k", words_of(p.descales.k, kv_heads * of_head(p.seq_kv, kKeysOfBlock))},
       {"descales.v", optional(p.descales.v, kv_heads * of_head(p.seq_kv, kKeysOfBlock))},
       {"o_scale", optional(p.o_scale, 1)},
       {"ragged.cu_seqlens_q", optional(p.ragged.cu_seqlens_q, offsets)},
       {"ragged.cu_seqlens_kv", optional(p.ragged.cu_seqlens_kv, offsets)},
       {"ragged.seqused_kv", optional(p.ragged.seqused_kv, size(p.batch))},
       {"pages.block_table",
        optional(p.pages.block_table, size(p.batch) * size(p.pages.max_pages))}}};
  const std::array<NamedRange, 3> written = {{{"o", bytes_of(output)},
                                              {"lse", optional(p.lse, lse_rows)},
                                              {"fault", optional(p.fault, 1)}}};
  return check_apart(written, read);
}

}  // namespace

Status check_counts(const Problem& p) {
  if (Status s = check_sizes({{"batch", p.batch},
                              {"heads_q", p.heads_q},
                              {"heads_kv", p.heads_kv},
                              {"seq_q", p.seq_q},
                              {"seq_kv", p.seq_kv},
                              {"head_dim", p.head_dim}});
      !s.ok()) {
    return s;
  }
  if (p.heads_q % p.heads_kv == 0) return {};
  return invalid_argument("heads_q is " + std::to_string(p.heads_q) +
                          "; it must be a multiple of heads_kv, " + std::to_string(p.heads_kv));
}

Status check_problem(const Problem& p) {
  if (Status s = check_shape(p); !s.ok()) return s;
  if (Status s = check_pages(p); !s.ok()) return s;
  if (Status s = check_ragged(p); !s.ok()) return s;
  const attention::RowsOf q_rows = attention::rows_of_q(p);
  const attention::RowsOf kv_rows = attention::rows_of_kv(p);
  const View output{"o", &p.o, {q_rows.batch, p.heads_q, q_rows.seq, p.head_dim}};
  const std::array<View, 3> inputs = {{
      {"q", &p.q, {q_rows.batch, p.heads_q, q_rows.seq, p.head_dim}},
      {"k", &p.k, {kv_rows.batch, p.heads_kv, kv_rows.seq, p.head_dim}},
      {"v", &p.v, {kv_rows.batch, p.heads_kv, kv_rows.seq, p.head_dim}, /*may_be_transposed=*/true},
  }};
  const bool int8 = p.q.dtype == Dtype::kInt8;
  const std::array<Is, 3> are = {Is::kQueryOrKey, Is::kQueryOrKey,
                                 int8 ? Is::kValueOfInt8 : Is::kValue};
  for (std::size_t i = 0; i < inputs.size(); ++i) {
    if (Status s = check_view(inputs[i], are[i]); !s.ok()) return s;
  }
  if (int8 != (p.k.dtype == Dtype::kInt8)) {
    return invalid_argument("q.dtype is " + std::string(name_of(p.q.dtype)) + " and k.dtype " +
                            name_of(p.k.dtype) + "; both are int8, or neither");
  }
  if (Status s = check_view(output, Is::kOutput); !s.ok()) return s;
  if (Status s = check_output_is_dense(output); !s.ok()) return s;
  if (Status s = check_output_scale(p); !s.ok()) return s;
  constexpr std::uintptr_t kFloatAlignment = alignof(float);
  for (const auto& [name, pointer] :
       {std::pair{"descales.q", p.descales.q}, std::pair{"descales.k", p.descales.k},
        std::pair{"descales.v", p.descales.v}}) {
    if (int8 && pointer == nullptr && name == std::string_view("descales.v")) continue;
    if (Status s = check_pointer(name, pointer, kFloatAlignment); !s.ok()) return s;
  }
  if (p.lse != nullptr) {
    if (Status s = check_pointer("lse", p.lse, kFloatAlignment); !s.ok()) return s;
  }
  for (const auto& [name, words] :
       {std::pair<const char*, const void*>{"ragged.cu_seqlens_q", p.ragged.cu_seqlens_q},
        {"ragged.cu_seqlens_kv", p.ragged.cu_seqlens_kv},
        {"ragged.seqused_kv", p.ragged.seqused_kv},
        {"pages.block_table", p.pages.block_table},
        {"fault", p.fault}}) {
    if (Status s = check_words(name, words); !s.ok()) return s;
  }
  if (p.descales.granularity != Granularity::kHead &&
      p.descales.granularity != Granularity::kBlock) {
    return invalid_argument("descales.granularity is " +
                            std::to_string(static_cast<int>(p.descales.granularity)) +
                            "; it must be head or block");
  }
  if (p.lse_sum != LseSum::kDenominator && p.lse_sum != LseSum::kExact) {
    return invalid_argument("lse_sum is " + std::to_string(static_cast<int>(p.lse_sum)) +
                            "; it must be the denominator or exact");
  }
  if (p.mask != Mask::kNone && p.mask != Mask::kCausal) {
    return invalid_argument("mask is " + std::to_string(static_cast<int>(p.mask)) +
                            "; it must be none or causal");
  }
  return check_overlap(p, output, inputs);
}

bool are_alike(const Problem& a, Problem b) {
  bool alike = true;
  const auto take = [&](auto& to, auto* from) {
    alike = alike && (to == nullptr) == (from == nullptr);
    to = from;
  };
  take(b.q.data, a.q.data);
  take(b.k.data, a.k.data);
  take(b.v.data, a.v.data);
  take(b.o.data, a.o.data);
  take(b.o_scale, a.o_scale);
  take(b.lse, a.lse);
  take(b.descales.q, a.descales.q);
  take(b.descales.k, a.descales.k);
  take(b.descales.v, a.descales.v);
  take(b.ragged.cu_seqlens_q, a.ragged.cu_seqlens_q);
  take(b.ragged.cu_seqlens_kv, a.ragged.cu_seqlens_kv);
  take(b.ragged.seqused_kv, a.ragged.seqused_kv);
  take(b.pages.block_table, a.pages.block_table);
  take(b.fault, a.fault);
  b.softmax_scale = a.softmax_scale;
  return alike && a == b;
}

}  // namespace fp8_sdpa::detail
