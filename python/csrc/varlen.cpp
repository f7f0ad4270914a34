// The operators torch.ops.fp8_sdpa.attention_varlen_fp8: sequences of lengths of their own, keys
// and values packed, padded or in pages; and append: new ones into pages.
#include "varlen.hpp"

#include <cmath>
#include <limits>
#include <string>
#include <utility>

#include "fp8_sdpa/append.hpp"
#include "fp8_sdpa/plan.hpp"
#include "plans.hpp"

namespace fp8_sdpa::torch_op {
namespace {

constexpr int kPackedAxes = 3, kPaddedAxes = 4;

std::string number(std::int64_t x) { return std::to_string(x); }

/// Of q, k or v: (batch, seq, heads, head_dim), or packed (total, heads, head_dim), whose batch is
/// 0.
struct TokenSizes {
  std::int64_t batch, seq, heads, head_dim;
};

TokenSizes sizes_by_tokens(const TorchTensor& tensor, bool packed, const char* name,
                           const char* expected) {
  if (tensor.dim() != (packed ? kPackedAxes : kPaddedAxes)) {
    fail(invalid_argument(std::string(name) + " has shape " + shape_of(tensor) + "; expected " +
                          expected));
  }
  const int first = packed ? 0 : 1;
  return {packed ? 0 : tensor.size(0), tensor.size(first), tensor.size(first + 1),
          tensor.size(first + 2)};
}

int to_int(std::int64_t x, const char* name) {
  if (x >= 0 && x <= std::numeric_limits<int>::max()) return static_cast<int>(x);
  fail(invalid_argument(std::string(name) + " is " + number(x) + "; it must be 0 to 2^31 - 1"));
}

void check_equal(const std::string& what, std::int64_t a, std::int64_t b) {
  if (a != b) fail(invalid_argument(what + ", " + number(a) + " and " + number(b)));
}

/// array_of() of a tensor that lies where the others do; null where there is none.
template <class T>
const T* array_of(const Place& place, const std::optional<TorchTensor>& tensor, ScalarType type,
                  std::initializer_list<std::int64_t> size, const char* name) {
  if (!tensor) return nullptr;
  place.check_holds(*tensor, name);
  return static_cast<const T*>(torch_op::array_of(*tensor, type, size, name));
}

/// Sizes of the problem, and what the device is told of lengths.
void describe_sequences(const Place& place, const TorchTensor& q, const TorchTensor& k,
                        const TorchTensor& v, const Lengths& lengths, Problem& p) {
  const bool packed_q = lengths.cu_seqlens_q.has_value();
  const bool packed_k = lengths.cu_seqlens_k.has_value();
  const bool paged = lengths.block_table.has_value();
  if (packed_k && paged) {
    fail(invalid_argument("cu_seqlens_k and block_table are both given; keys lie in one way"));
  }
  if (packed_k && lengths.seqused_k) {
    fail(invalid_argument("cu_seqlens_k and seqused_k are both given; keys lie in one way"));
  }
  if (paged && !lengths.seqused_k) {
    fail(invalid_argument("block_table is given without seqused_k, the keys of each sequence"));
  }
  const TokenSizes qs = sizes_by_tokens(q, packed_q, "q",
                                        packed_q ? "(total_q, heads_q, head_dim), with cu_seqlens_q"
                                                 : "(batch, seq_q, heads_q, head_dim)");
  const char* const expected = packed_k ? "(total_k, heads_kv, head_dim), with cu_seqlens_k"
                               : paged  ? "(pages, page_size, heads_kv, head_dim), with block_table"
                                        : "(batch, seq_k, heads_kv, head_dim)";
  const TokenSizes ks = sizes_by_tokens(k, packed_k, "k", expected);
  const TokenSizes vs = sizes_by_tokens(v, packed_k, "v", expected);
  check_equal("v and k have different sizes of their first axis", vs.batch, ks.batch);
  check_equal("v and k have different lengths", vs.seq, ks.seq);
  check_equal("v and k have different numbers of heads", vs.heads, ks.heads);
  check_equal("k and q have different head_dims", ks.head_dim, qs.head_dim);
  check_equal("v and q have different head_dims", vs.head_dim, qs.head_dim);
  p.batch = to_int(packed_q ? lengths.cu_seqlens_q->numel() - 1 : qs.batch, "batch");
  if (!packed_k && !paged) check_equal("k and q have different batches", ks.batch, p.batch);
  p.heads_q = to_int(qs.heads, "heads_q");
  p.heads_kv = to_int(ks.heads, "heads_kv");
  p.head_dim = to_int(qs.head_dim, "head_dim");
  p.seq_q = packed_q ? lengths.max_seqlen_q : qs.seq;
  p.seq_kv = packed_k || paged ? lengths.max_seqlen_k : ks.seq;

  const auto words = [&](const std::optional<TorchTensor>& tensor,
                         std::initializer_list<std::int64_t> size, const char* name) {
    return array_of<std::int32_t>(place, tensor, ScalarType::Int, size, name);
  };
  const std::int64_t batch = p.batch;
  p.ragged.cu_seqlens_q = words(lengths.cu_seqlens_q, {batch + 1}, "cu_seqlens_q");
  p.ragged.cu_seqlens_kv = words(lengths.cu_seqlens_k, {batch + 1}, "cu_seqlens_k");
  p.ragged.seqused_kv = words(lengths.seqused_k, {batch}, "seqused_k");
  if (packed_q) p.ragged.total_q = qs.seq;
  if (packed_k) p.ragged.total_kv = ks.seq;
  if (paged) {
    const std::int64_t columns = lengths.block_table->dim() == 2 ? lengths.block_table->size(1) : 0;
    p.pages = {words(lengths.block_table, {batch, columns}, "block_table"),
               to_int(ks.batch, "pages"), to_int(ks.seq, "page_size"),
               to_int(columns, "max_pages")};
  }
  p.fault = const_cast<std::uint32_t*>(
      array_of<std::uint32_t>(place, lengths.fault, ScalarType::Int, {1}, "fault"));
}

}  // namespace

void set_options(const Options& options, Problem& p) {
  p.lse_sum = options.lse.value_or(LseSum::kDenominator);
  p.mask = options.causal ? Mask::kCausal : Mask::kNone;
  p.softmax_scale =
      static_cast<float>(options.scale ? *options.scale : 1.0 / std::sqrt(p.head_dim));
  if (!(p.softmax_scale > 0.0F)) {
    fail(invalid_argument("scale is " + std::to_string(p.softmax_scale) +
                          "; it must be positive and finite"));
  }
}

const float* output_scale(const Place& place, const Options& options, ScalarType out) {
  if (out == ScalarType::Float8_e4m3fn) {
    if (!options.out_scale) {
      fail(invalid_argument("out_dtype is torch.float8_e4m3fn; it needs out_scale, one float32"));
    }
    return array_of<float>(place, options.out_scale, ScalarType::Float, {1}, "out_scale");
  }
  if (!options.out_scale) return nullptr;
  fail(invalid_argument("out_scale is given; only out_dtype torch.float8_e4m3fn has one"));
}

Granularity DescaleTensors::granularity() const {
  const bool blocks = q.dim() == 3 || k.dim() == 3 || v.dim() == 3;
  return blocks ? Granularity::kBlock : Granularity::kHead;
}

Descales DescaleTensors::pointers(Granularity granularity) const {
  const auto floats = [](const TorchTensor& tensor) {
    return static_cast<const float*>(tensor.const_data_ptr());
  };
  return {floats(q), floats(k), floats(v), granularity};
}

DescaleTensors broadcast_descales(const Place& place, const Problem& p, DescaleTensors given,
                                  Granularity granularity) {
  const auto make_whole = [&](TorchTensor& tensor, const char* name, int heads, std::int64_t rows,
                              int rows_of_block) {
    place.check_holds(tensor, name);
    if (granularity == Granularity::kHead) {
      tensor = broadcast(std::move(tensor), {p.batch, heads}, name);
      return;
    }
    if (tensor.dim() != 3) {
      fail(invalid_argument(std::string(name) + " has shape " + shape_of(tensor) +
                            "; where one has (batch, heads, blocks), all three do"));
    }
    const std::int64_t blocks = descales_of_head(granularity, rows, rows_of_block);
    tensor = broadcast(std::move(tensor), {p.batch, heads, blocks}, name);
  };
  make_whole(given.q, "q_descale", p.heads_q, p.seq_q, kQueriesOfBlock);
  make_whole(given.k, "k_descale", p.heads_kv, p.seq_kv, kKeysOfBlock);
  make_whole(given.v, "v_descale", p.heads_kv, p.seq_kv, kKeysOfBlock);
  return given;
}

void set_to_no_keys(Results& results) {
  torch::stable::zero_(results.out);
  if (!results.lse) return;
  torch::stable::fill_(*results.lse, -std::numeric_limits<double>::infinity());
}

Results attention_varlen(const Place& place, const TorchTensor& q, const TorchTensor& k,
                         const TorchTensor& v, const Lengths& lengths, DescaleTensors given,
                         ScalarType out_type, const Options& options, bool batch_invariant) {
  place.check_holds(k, "k");
  place.check_holds(v, "v");
  Problem p;
  describe_sequences(place, q, k, v, lengths, p);
  const bool packed = lengths.cu_seqlens_q.has_value();
  const std::int64_t total = packed ? p.ragged.total_q : p.seq_q;
  Results results{packed ? empty(q, {total, p.heads_q, p.head_dim}, out_type)
                         : empty(q, {p.batch, p.seq_q, p.heads_q, p.head_dim}, out_type),
                  {}};
  if (options.lse) {
    results.lse = packed ? empty(q, {p.heads_q, total}, ScalarType::Float)
                         : empty(q, {p.batch, p.heads_q, total}, ScalarType::Float);
    p.lse = results.lse->mutable_data_ptr<float>();
  }
  if (results.out.numel() == 0) return results;
  if (k.numel() == 0 || p.seq_kv == 0) {
    set_to_no_keys(results);
    return results;
  }
  p.q = view_by_tokens(q, "q");
  p.k = view_by_tokens(k, "k");
  p.v = view_by_tokens(v, "v");
  p.o = view_by_tokens(results.out, "out");
  p.o_scale = output_scale(place, options, out_type);
  set_options(options, p);
  const DescaleTensors descales =
      broadcast_descales(place, p, std::move(given), Granularity::kHead);
  p.descales = descales.pointers(Granularity::kHead);
  launch(place, q, p, batch_invariant);
  return results;
}

namespace {

Rotary rotary_of(const Place& place, const Angles& angles, std::int64_t tokens) {
  if (angles.cos_sin.has_value() != angles.positions.has_value()) {
    fail(invalid_argument("cos_sin and positions are for each other; both or none"));
  }
  if (!angles.cos_sin) return {};
  const TorchTensor& table = *angles.cos_sin;
  const std::int64_t rows = table.dim() == 2 ? table.size(0) : 0;
  const std::int64_t columns = table.dim() == 2 ? table.size(1) : 0;
  return {.cos_sin = array_of<float>(place, table, ScalarType::Float, {rows, columns}, "cos_sin"),
          .positions = array_of<std::int64_t>(place, angles.positions, ScalarType::Long, {tokens},
                                              "positions"),
          .max_positions = rows,
          .dim = to_int(columns, "the columns of cos_sin"),
          .interleaved = angles.interleaved};
}

}  // namespace

void append_to_cache(const Place& place, const TorchTensor& k, const TorchTensor& v,
                     const TorchTensor& k_cache, const TorchTensor& v_cache,
                     const TorchTensor& slot_mapping, const TorchTensor& k_descale,
                     const TorchTensor& v_descale, const Angles& angles,
                     const std::optional<TorchTensor>& fault) {
  place.check_holds(v, "v");
  place.check_holds(k_cache, "k_cache");
  place.check_holds(v_cache, "v_cache");
  constexpr const char* kNew = "(tokens, heads_kv, head_dim)";
  constexpr const char* kPool = "(pages, page_size, heads_kv, head_dim)";
  const TokenSizes ks = sizes_by_tokens(k, true, "k", kNew);
  const TokenSizes vs = sizes_by_tokens(v, true, "v", kNew);
  const TokenSizes k_pool = sizes_by_tokens(k_cache, false, "k_cache", kPool);
  const TokenSizes v_pool = sizes_by_tokens(v_cache, false, "v_cache", kPool);
  check_equal("v and k have different numbers of tokens", vs.seq, ks.seq);
  check_equal("v_cache and k_cache have different numbers of pages", v_pool.batch, k_pool.batch);
  check_equal("v_cache and k_cache have different page sizes", v_pool.seq, k_pool.seq);
  for (const auto& [name, sizes] : {std::pair{"v", vs}, {"k_cache", k_pool}, {"v_cache", v_pool}}) {
    check_equal(std::string(name) + " and k have different numbers of heads", sizes.heads,
                ks.heads);
    check_equal(std::string(name) + " and k have different head_dims", sizes.head_dim, ks.head_dim);
  }
  Append a;
  a.tokens = to_int(ks.seq, "tokens");
  a.heads = to_int(ks.heads, "heads_kv");
  a.head_dim = to_int(ks.head_dim, "head_dim");
  a.pages = to_int(k_pool.batch, "pages");
  a.page_size = to_int(k_pool.seq, "page_size");
  a.slots = array_of<std::int64_t>(place, slot_mapping, ScalarType::Long, {ks.seq}, "slot_mapping");
  place.check_holds(k_descale, "k_descale");
  place.check_holds(v_descale, "v_descale");
  const TorchTensor of_k = broadcast(k_descale, {1, ks.heads}, "k_descale");
  const TorchTensor of_v = broadcast(v_descale, {1, ks.heads}, "v_descale");
  a.descale_k = of_k.const_data_ptr<float>();
  a.descale_v = of_v.const_data_ptr<float>();
  a.rotary = rotary_of(place, angles, ks.seq);
  a.fault = const_cast<std::uint32_t*>(
      array_of<std::uint32_t>(place, fault, ScalarType::Int, {1}, "fault"));
  if (a.tokens == 0) return;
  a.k = view_by_tokens(k, "k");
  a.v = view_by_tokens(v, "v");
  a.k_cache = view_by_tokens(k_cache, "k_cache");
  a.v_cache = view_by_tokens(v_cache, "v_cache");
  check(append(value_of(plan(a, place.device())), place.stream()));
}

}  // namespace fp8_sdpa::torch_op
