// The operators torch.ops.fp8_sdpa.*: tensors in, the library called, tensors out. Their shapes and
// layouts stand a second time in python/src/fp8_sdpa/_ops.py, for tensors without data.
#include <torch/csrc/stable/library.h>

#include <cmath>
#include <cstdint>
#include <initializer_list>
#include <optional>
#include <string>
#include <tuple>
#include <utility>

#include "fp8_sdpa/plan.hpp"
#include "fp8_sdpa/quantise.hpp"
#include "fp8_sdpa/unquantised.hpp"
#include "plans.hpp"
#include "tensors.hpp"
#include "varlen.hpp"

namespace fp8_sdpa::torch_op {
namespace {

/// Everything that one call of attention brings together. Q, K and V are kept for as long as their
/// views are looked at.
struct Call {
  Readable q, k, v;
  Sizes q_sizes, kv_sizes;
  Results results;
  Problem problem;
};

constexpr ScalarType kBFloat16 = ScalarType::BFloat16;

/// head_dim is one that kernels have, the next larger one otherwise: more zeros change no score.
int padded(int head_dim) {
  for (const int served : {64, 128, 256}) {
    if (head_dim <= served) return served;
  }
  return head_dim;
}

TorchTensor pad_to(const TorchTensor& tensor, const Sizes& sizes, int head_dim) {
  if (sizes.head_dim == head_dim) return tensor;
  const std::int64_t last_axis[] = {0, head_dim - sizes.head_dim};
  return torch::stable::pad(tensor, {last_axis, 2});
}

Call prepare(const Place& place, const TorchTensor& q, const TorchTensor& k, const TorchTensor& v,
             ScalarType out_type, const Options& options) {
  place.check_holds(k, "k");
  place.check_holds(v, "v");
  const Sizes qs = sizes_of(q, "q");
  const Sizes ks = sizes_of(k, "k");
  const Sizes vs = sizes_of(v, "v");
  const auto differ = [](const std::string& what, std::int64_t a, std::int64_t b) {
    fail(invalid_argument(what + ", " + std::to_string(a) + " and " + std::to_string(b)));
  };
  if (ks.batch != qs.batch) differ("k and q have different batches", ks.batch, qs.batch);
  if (vs.batch != qs.batch) differ("v and q have different batches", vs.batch, qs.batch);
  if (vs.heads != ks.heads) differ("v and k have different numbers of heads", vs.heads, ks.heads);
  if (vs.seq != ks.seq) differ("v and k have different lengths", vs.seq, ks.seq);
  if (ks.head_dim != qs.head_dim) {
    differ("k and q have different head_dims", ks.head_dim, qs.head_dim);
  }
  if (vs.head_dim != qs.head_dim) {
    differ("v and q have different head_dims", vs.head_dim, qs.head_dim);
  }
  if (qs.head_dim == 0) fail(invalid_argument("head_dim is 0; it must be at least 1"));

  const int head_dim = padded(qs.head_dim);
  Sizes padded_sizes = qs;
  padded_sizes.head_dim = head_dim;
  Call call{readable(pad_to(q, qs, head_dim), "q"),
            readable(pad_to(k, ks, head_dim), "k"),
            readable(pad_to(v, vs, head_dim), "v"),
            qs,
            ks,
            {empty_laid_out_as(q, padded_sizes, out_type), {}},
            {}};
  Problem& p = call.problem;
  p.batch = qs.batch;
  p.heads_q = qs.heads;
  p.heads_kv = ks.heads;
  p.seq_q = qs.seq;
  p.seq_kv = ks.seq;
  p.head_dim = head_dim;
  p.q = call.q.view;
  p.k = call.k.view;
  p.v = call.v.view;
  p.o = view_of(call.results.out, "out");
  p.o_scale = output_scale(place, options, out_type);
  if (options.lse) {
    call.results.lse = empty(q, {qs.batch, qs.heads, qs.seq}, ScalarType::Float);
    p.lse = call.results.lse->mutable_data_ptr<float>();
  }
  set_options(options, p);
  if (!options.scale) p.softmax_scale = static_cast<float>(1.0 / std::sqrt(qs.head_dim));
  return call;
}

/// Runs `problem`, which is the call's in one form or the other, and returns its results, without
/// the columns that padding added.
template <class AnyProblem>
Results run(const Place& place, Call& call, const AnyProblem& problem, bool batch_invariant) {
  Results& results = call.results;
  if (call.kv_sizes.seq == 0) {
    set_to_no_keys(results);
  } else if (results.out.numel() != 0) {
    launch(place, call.q.tensor, problem, batch_invariant);
  }
  if (call.problem.head_dim != call.q_sizes.head_dim) {
    results.out = torch::stable::narrow(results.out, 3, 0, call.q_sizes.head_dim);
  }
  return std::move(results);
}

/// How codes are made: python/src/fp8_sdpa/_ops.py.
struct QuantiseOptions {
  bool rotate, smooth;
  std::int64_t seed;
  bool blocks, int8;
};

UnquantisedProblem unquantised(const Call& call, const QuantiseOptions& codes) {
  return {call.problem,
          codes.rotate,
          static_cast<std::uint64_t>(codes.seed),
          codes.smooth,
          codes.blocks ? Granularity::kBlock : Granularity::kHead,
          codes.int8 ? Precision::kInt8 : Precision::kFp8};
}

ScalarType output_type(const TorchTensor& q) {
  return q.scalar_type() == ScalarType::Half ? ScalarType::Half : kBFloat16;
}

/// Which LSE an operator's option asks for.
LseSum sum_of(bool exact) { return exact ? LseSum::kExact : LseSum::kDenominator; }

Results attention_of(const TorchTensor& q, const TorchTensor& k, const TorchTensor& v,
                     const Options& options, const QuantiseOptions& codes, bool batch_invariant) {
  const Place place(q);
  Call call = prepare(place, q, k, v, output_type(q), options);
  return run(place, call, unquantised(call, codes), batch_invariant);
}

TorchTensor attention(const TorchTensor& q, const TorchTensor& k, const TorchTensor& v, bool causal,
                      std::optional<double> scale, bool rotate, bool smooth, std::int64_t seed,
                      bool batch_invariant, bool blocks, bool int8) {
  return attention_of(q, k, v, {causal, scale}, {rotate, smooth, seed, blocks, int8},
                      batch_invariant)
      .out;
}

std::tuple<TorchTensor, TorchTensor> attention_lse(const TorchTensor& q, const TorchTensor& k,
                                                   const TorchTensor& v, bool causal,
                                                   std::optional<double> scale, bool rotate,
                                                   bool smooth, std::int64_t seed,
                                                   bool batch_invariant, bool blocks, bool int8,
                                                   bool exact) {
  return attention_of(q, k, v, {causal, scale, sum_of(exact)}, {rotate, smooth, seed, blocks, int8},
                      batch_invariant)
      .both();
}

/// A dtype that a caller may leave to its default.
ScalarType one_of(std::optional<ScalarType> given, ScalarType by_default, ScalarType other,
                  const char* name, const char* expected) {
  const ScalarType type = given.value_or(by_default);
  if (type != by_default && type != other) {
    fail(invalid_argument(std::string(name) + " must be " + expected));
  }
  return type;
}

ScalarType output_type(std::optional<ScalarType> given) {
  if (given == ScalarType::Float8_e4m3fn) return *given;
  return one_of(given, kBFloat16, ScalarType::Half, "out_dtype",
                "torch.bfloat16, torch.float16 or torch.float8_e4m3fn");
}

Results attention_of_codes(const TorchTensor& q, const TorchTensor& k, const TorchTensor& v,
                           DescaleTensors given, ScalarType out_type, const Options& options,
                           bool batch_invariant) {
  const Place place(q);
  Call call = prepare(place, q, k, v, out_type, options);
  Problem& p = call.problem;
  const Granularity granularity = given.granularity();
  const DescaleTensors descales = broadcast_descales(place, p, std::move(given), granularity);
  p.descales = descales.pointers(granularity);
  return run(place, call, p, batch_invariant);
}

TorchTensor attention_fp8(const TorchTensor& q, const TorchTensor& k, const TorchTensor& v,
                          const TorchTensor& q_descale, const TorchTensor& k_descale,
                          const TorchTensor& v_descale, bool causal, std::optional<double> scale,
                          std::optional<ScalarType> out_dtype, bool batch_invariant,
                          const std::optional<TorchTensor>& out_scale) {
  return attention_of_codes(q, k, v, {q_descale, k_descale, v_descale}, output_type(out_dtype),
                            {causal, scale, {}, out_scale}, batch_invariant)
      .out;
}

std::tuple<TorchTensor, TorchTensor> attention_fp8_lse(
    const TorchTensor& q, const TorchTensor& k, const TorchTensor& v, const TorchTensor& q_descale,
    const TorchTensor& k_descale, const TorchTensor& v_descale, bool causal,
    std::optional<double> scale, std::optional<ScalarType> out_dtype, bool batch_invariant,
    bool exact, const std::optional<TorchTensor>& out_scale) {
  return attention_of_codes(q, k, v, {q_descale, k_descale, v_descale}, output_type(out_dtype),
                            {causal, scale, sum_of(exact), out_scale}, batch_invariant)
      .both();
}

TorchTensor attention_varlen_fp8(
    const TorchTensor& q, const TorchTensor& k, const TorchTensor& v, const TorchTensor& q_descale,
    const TorchTensor& k_descale, const TorchTensor& v_descale,
    const std::optional<TorchTensor>& cu_seqlens_q, const std::optional<TorchTensor>& cu_seqlens_k,
    std::int64_t max_seqlen_q, std::int64_t max_seqlen_k,
    const std::optional<TorchTensor>& seqused_k, const std::optional<TorchTensor>& block_table,
    const std::optional<TorchTensor>& fault, bool causal, std::optional<double> scale,
    std::optional<ScalarType> out_dtype, bool batch_invariant,
    const std::optional<TorchTensor>& out_scale) {
  return attention_varlen(Place(q), q, k, v,
                          {cu_seqlens_q, cu_seqlens_k, seqused_k, block_table, fault, max_seqlen_q,
                           max_seqlen_k},
                          {q_descale, k_descale, v_descale}, output_type(out_dtype),
                          {causal, scale, {}, out_scale}, batch_invariant)
      .out;
}

std::tuple<TorchTensor, TorchTensor> attention_varlen_fp8_lse(
    const TorchTensor& q, const TorchTensor& k, const TorchTensor& v, const TorchTensor& q_descale,
    const TorchTensor& k_descale, const TorchTensor& v_descale,
    const std::optional<TorchTensor>& cu_seqlens_q, const std::optional<TorchTensor>& cu_seqlens_k,
    std::int64_t max_seqlen_q, std::int64_t max_seqlen_k,
    const std::optional<TorchTensor>& seqused_k, const std::optional<TorchTensor>& block_table,
    const std::optional<TorchTensor>& fault, bool causal, std::optional<double> scale,
    std::optional<ScalarType> out_dtype, bool batch_invariant, bool exact,
    const std::optional<TorchTensor>& out_scale) {
  return attention_varlen(Place(q), q, k, v,
                          {cu_seqlens_q, cu_seqlens_k, seqused_k, block_table, fault, max_seqlen_q,
                           max_seqlen_k},
                          {q_descale, k_descale, v_descale}, output_type(out_dtype),
                          {causal, scale, sum_of(exact), out_scale}, batch_invariant)
      .both();
}

void append_op(const TorchTensor& k, const TorchTensor& v, const TorchTensor& k_cache,
               const TorchTensor& v_cache, const TorchTensor& slot_mapping,
               const TorchTensor& k_descale, const TorchTensor& v_descale,
               const std::optional<TorchTensor>& cos_sin,
               const std::optional<TorchTensor>& positions, bool interleaved,
               const std::optional<TorchTensor>& fault) {
  append_to_cache(Place(k), k, v, k_cache, v_cache, slot_mapping, k_descale, v_descale,
                  {cos_sin, positions, interleaved}, fault);
}

std::string explain(const TorchTensor& q, const TorchTensor& k, const TorchTensor& v, bool causal,
                    std::optional<double> scale, bool return_lse, bool exact_lse,
                    bool batch_invariant, bool blocks, bool int8) {
  const Place place(q);
  const bool codes = is_fp8(dtype_of(q, "q"));
  const auto lse = return_lse ? std::optional(sum_of(exact_lse)) : std::nullopt;
  Call call = prepare(place, q, k, v, output_type(q), {causal, scale, lse});
  const PlanOptions plan_options{.batch_invariant = batch_invariant};
  Plans& plans = Plans::of_this_thread();
  if (!codes) {
    const UnquantisedProblem problem = unquantised(
        call, {.rotate = true, .smooth = true, .seed = 0, .blocks = blocks, .int8 = int8});
    return plans.plan_of(problem, place.device(), plan_options).explain();
  }
  const std::int64_t heads = std::int64_t{call.problem.batch} * call.problem.heads_q;
  const TorchTensor descales = empty(q, {heads}, ScalarType::Float);  // not read
  const auto* any = descales.const_data_ptr<float>();
  call.problem.descales = {any, any, any, blocks ? Granularity::kBlock : Granularity::kHead};
  return plans.plan_of(call.problem, place.device(), plan_options).explain();
}

std::tuple<TorchTensor, TorchTensor, TorchTensor, TorchTensor> quantise_op(
    const TorchTensor& x, const std::optional<TorchTensor>& descale,
    std::optional<ScalarType> dtype, bool rotate, std::int64_t seed, bool smooth,
    std::int64_t block_rows) {
  const Place place(x);
  const Sizes s = sizes_of(x, "x");
  const Readable from = readable(x, "x");
  const ScalarType type = one_of(dtype, ScalarType::Float8_e4m3fn, ScalarType::Float8_e5m2, "dtype",
                                 "torch.float8_e4m3fn or torch.float8_e5m2");
  TorchTensor codes = empty_laid_out_as(x, s, type);
  if (block_rows != 0 && block_rows != kQueriesOfBlock && block_rows != kKeysOfBlock) {
    fail(invalid_argument("block_rows is " + std::to_string(block_rows) + "; it must be 0, " +
                          std::to_string(kQueriesOfBlock) + " (of q) or " +
                          std::to_string(kKeysOfBlock) + " (of k and v)"));
  }
  if (descale) place.check_holds(*descale, "descale");
  const auto of_all = [&](std::initializer_list<std::int64_t> size) {
    return descale ? broadcast(*descale, size, "descale") : empty(x, size, ScalarType::Float);
  };
  TorchTensor scales = block_rows == 0 ? of_all({s.batch, s.heads})
                                       : of_all({s.batch, s.heads, (s.seq - 1) / block_rows + 1});
  const TorchTensor made = descale ? empty(x, {0}, ScalarType::Float) : scales;
  TorchTensor mean = smooth ? empty(x, {s.batch, s.heads, s.head_dim}, ScalarType::Float)
                            : empty(x, {0}, ScalarType::Float);
  TorchTensor infinities = empty(x, {}, ScalarType::Int);
  torch::stable::zero_(infinities);
  Quantisation q;
  q.batch = s.batch;
  q.heads = s.heads;
  q.seq = s.seq;
  q.head_dim = s.head_dim;
  q.from = from.view;
  q.codes = view_of(codes, "codes");
  q.static_descales = descale.has_value();
  q.descales = scales.mutable_data_ptr<float>();
  q.block_rows = static_cast<int>(block_rows);
  q.rotate = rotate;
  q.seed = static_cast<std::uint64_t>(seed);
  q.smooth = smooth;
  if (smooth) q.mean = mean.mutable_data_ptr<float>();
  q.infinities = static_cast<std::uint32_t*>(infinities.mutable_data_ptr());
  const QuantisePlan planned = value_of(plan(q, place.device()));
  const Workspace workspace(x, planned.workspace_bytes(), QuantisePlan::kWorkspaceAlignment);
  check(fp8_sdpa::quantise(planned, workspace.data(), place.stream()));
  return {codes, made, mean, infinities};
}

}  // namespace

// An LSE is an operator of its own, as a tensor more takes a microsecond. The options of attention
// may be given by place: PyTorch takes 2 us longer to read them by name.
STABLE_TORCH_LIBRARY(fp8_sdpa, m) {
  m.def(
      "attention(Tensor q, Tensor k, Tensor v, bool causal=False, float? scale=None, "
      "bool rotate=True, bool smooth=True, int seed=0, bool batch_invariant=False, "
      "bool blocks=False, bool int8=False) -> Tensor");
  m.def(
      "attention.lse(Tensor q, Tensor k, Tensor v, bool causal=False, float? scale=None, "
      "bool rotate=True, bool smooth=True, int seed=0, bool batch_invariant=False, "
      "bool blocks=False, bool int8=False, bool exact=False) -> (Tensor, Tensor)");
  m.def(
      "attention_fp8(Tensor q, Tensor k, Tensor v, Tensor q_descale, Tensor k_descale, "
      "Tensor v_descale, bool causal=False, float? scale=None, ScalarType? out_dtype=None, "
      "bool batch_invariant=False, Tensor? out_scale=None) -> Tensor");
  m.def(
      "attention_fp8.lse(Tensor q, Tensor k, Tensor v, Tensor q_descale, Tensor k_descale, "
      "Tensor v_descale, bool causal=False, float? scale=None, ScalarType? out_dtype=None, "
      "bool batch_invariant=False, bool exact=False, Tensor? out_scale=None) -> (Tensor, Tensor)");
  m.def(
      "attention_varlen_fp8(Tensor q, Tensor k, Tensor v, Tensor q_descale, Tensor k_descale, "
      "Tensor v_descale, Tensor? cu_seqlens_q, Tensor? cu_seqlens_k, int max_seqlen_q, "
      "int max_seqlen_k, Tensor? seqused_k=None, Tensor? block_table=None, Tensor(a!)? fault=None, "
      "bool causal=False, float? scale=None, ScalarType? out_dtype=None, "
      "bool batch_invariant=False, Tensor? out_scale=None) -> Tensor");
  m.def(
      "attention_varlen_fp8.lse(Tensor q, Tensor k, Tensor v, Tensor q_descale, Tensor k_descale, "
      "Tensor v_descale, Tensor? cu_seqlens_q, Tensor? cu_seqlens_k, int max_seqlen_q, "
      "int max_seqlen_k, Tensor? seqused_k=None, Tensor? block_table=None, Tensor(a!)? fault=None, "
      "bool causal=False, float? scale=None, ScalarType? out_dtype=None, "
      "bool batch_invariant=False, bool exact=False, Tensor? out_scale=None) -> (Tensor, Tensor)");
  m.def(
      "append(Tensor k, Tensor v, Tensor(a!) k_cache, Tensor(b!) v_cache, Tensor slot_mapping, "
      "Tensor k_descale, Tensor v_descale, Tensor? cos_sin=None, Tensor? positions=None, "
      "bool interleaved=False, Tensor(c!)? fault=None) -> ()");
  m.def(
      "quantise(Tensor x, Tensor? descale=None, *, ScalarType? dtype=None, bool rotate=False, "
      "int seed=0, bool smooth=False, int block_rows=0) -> (Tensor, Tensor, Tensor, Tensor)");
  m.def(
      "explain(Tensor q, Tensor k, Tensor v, *, bool causal=False, float? scale=None, "
      "bool return_lse=False, bool exact_lse=False, bool batch_invariant=False, "
      "bool blocks=False, bool int8=False) -> str");
}

// Place tells the two apart.
void implement(torch::stable::detail::StableLibrary& m) {
  m.impl("attention", TORCH_BOX(&attention));
  m.impl("attention.lse", TORCH_BOX(&attention_lse));
  m.impl("attention_fp8", TORCH_BOX(&attention_fp8));
  m.impl("attention_fp8.lse", TORCH_BOX(&attention_fp8_lse));
  m.impl("attention_varlen_fp8", TORCH_BOX(&attention_varlen_fp8));
  m.impl("attention_varlen_fp8.lse", TORCH_BOX(&attention_varlen_fp8_lse));
  m.impl("append", TORCH_BOX(&append_op));
  m.impl("quantise", TORCH_BOX(&quantise_op));
  m.impl("explain", TORCH_BOX(&explain));
}
STABLE_TORCH_LIBRARY_IMPL(fp8_sdpa, CPU, m) { implement(m); }
STABLE_TORCH_LIBRARY_IMPL(fp8_sdpa, CUDA, m) { implement(m); }

}  // namespace fp8_sdpa::torch_op
