// The operator torch.ops.fp8_sdpa.attention_varlen_fp8: sequences of lengths of their own, keys and
// values packed, padded or in pages.
#include "varlen.hpp"

#include <cmath>
#include <limits>
#include <string>

#include "choices.hpp"
#include "fp8_sdpa/plan.hpp"

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
                         std::initializer_list<std::int64_t> size,
                         const char* name) -> const std::int32_t* {
    if (!tensor) return nullptr;
    place.check_holds(*tensor, name);
    return words_of(*tensor, size, name);
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
      reinterpret_cast<const std::uint32_t*>(words(lengths.fault, {1}, "fault")));
}

}  // namespace

void set_options(const Options& options, Problem& p) {
  p.lse_sum = options.exact_lse ? LseSum::kExact : LseSum::kDenominator;
  p.mask = options.causal ? Mask::kCausal : Mask::kNone;
  p.softmax_scale =
      static_cast<float>(options.scale ? *options.scale : 1.0 / std::sqrt(p.head_dim));
  if (!(p.softmax_scale > 0.0F)) {
    fail(invalid_argument("scale is " + std::to_string(p.softmax_scale) +
                          "; it must be positive and finite"));
  }
}

std::tuple<TorchTensor, TorchTensor> attention_varlen(const Place& place, const TorchTensor& q,
                                                      const TorchTensor& k, const TorchTensor& v,
                                                      const Lengths& lengths,
                                                      const DescalesOf& descales,
                                                      ScalarType out_type, const Options& options,
                                                      bool batch_invariant) {
  place.check_holds(k, "k");
  place.check_holds(v, "v");
  Problem p;
  describe_sequences(place, q, k, v, lengths, p);
  const bool packed = lengths.cu_seqlens_q.has_value();
  const std::int64_t total = packed ? p.ragged.total_q : p.seq_q;
  TorchTensor out = packed ? empty(q, {total, p.heads_q, p.head_dim}, out_type)
                           : empty(q, {p.batch, p.seq_q, p.heads_q, p.head_dim}, out_type);
  TorchTensor lse = !options.return_lse ? empty(q, {0}, ScalarType::Float)
                    : packed            ? empty(q, {p.heads_q, total}, ScalarType::Float)
                                        : empty(q, {p.batch, p.heads_q, total}, ScalarType::Float);
  if (out.numel() == 0) return {out, lse};
  if (k.numel() == 0 || p.seq_kv == 0) {  // no row sees a key
    torch::stable::zero_(out);
    torch::stable::fill_(lse, -std::numeric_limits<double>::infinity());
    return {out, lse};
  }
  p.q = view_by_tokens(q, "q");
  p.k = view_by_tokens(k, "k");
  p.v = view_by_tokens(v, "v");
  p.o = view_by_tokens(out, "out");
  if (options.return_lse) p.lse = lse.mutable_data_ptr<float>();
  set_options(options, p);
  p.descales = descales(p);
  const auto made = value_of(
      Choices::of_this_thread().plan_of(p, place.device(), {.batch_invariant = batch_invariant}));
  const Workspace workspace(q, made.workspace_bytes(), made.kWorkspaceAlignment);
  check(forward(made, workspace.data(), place.stream()));
  return {out, lse};
}

}  // namespace fp8_sdpa::torch_op
