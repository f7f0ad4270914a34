#include "benchmarks/peers/unquantised/unquantised_case.hpp"

#include <algorithm>
#include <cmath>
#include <utility>

#include "reference/formats/half.hpp"

namespace fp8_sdpa::bench {
namespace {

using reference::Buffer;
using reference::Shape;

}  // namespace

Result<std::unique_ptr<UnquantisedCase>> UnquantisedCase::make(const Shape& shape,
                                                               const reference::Inputs& values,
                                                               const Device& device) {
  std::unique_ptr<UnquantisedCase> made(new UnquantisedCase(shape, values, device));
  if (Status s = made->fill(); !s.ok()) return s;
  return Result<std::unique_ptr<UnquantisedCase>>(std::move(made));
}

Result<std::unique_ptr<Buffer>> UnquantisedCase::buffer(std::size_t bytes, const char* name) const {
  return reference::allocate(device_, std::max<std::size_t>(1, bytes), name);
}

Result<void*> UnquantisedCase::keep(std::size_t bytes, const char* name) {
  auto made = buffer(bytes, name);
  if (!made.ok()) return made.status();
  kept_.push_back(std::move(*made));
  return kept_.back()->data();
}

Status UnquantisedCase::fill() {
  Problem& p = problem_.attention;
  p.batch = shape_.batch;
  p.heads_q = p.heads_kv = shape_.heads_q;
  p.seq_q = p.seq_kv = shape_.seq_q;
  p.head_dim = shape_.head_dim;
  p.mask = shape_.mask;
  p.softmax_scale = static_cast<float>(1.0 / std::sqrt(shape_.head_dim));
  const std::int64_t head = shape_.seq_q * shape_.head_dim;
  const auto add = [&](Tensor& tensor, std::size_t elements) -> Status {
    auto made = buffer(elements * sizeof(std::uint16_t), "a bf16 tensor");
    if (!made.ok()) return made.status();
    tensor = {(*made)->data(), Dtype::kBFloat16, shape_.heads_q * head, head, shape_.head_dim, 1};
    tensors_.push_back(std::move(*made));
    return {};
  };
  for (const auto& [tensor, values] :
       {std::pair{&p.q, &values_.q}, {&p.k, &values_.k}, {&p.v, &values_.v}}) {
    if (Status s = add(*tensor, values->size()); !s.ok()) return s;
    std::vector<std::uint16_t> bits;
    bits.reserve(values->size());
    for (const float x : *values) bits.push_back(reference::encode_16(x, Dtype::kBFloat16));
    if (Status s = tensors_.back()->upload(bits.data()); !s.ok()) return s;
  }
  return add(p.o, values_.q.size());
}

Result<std::vector<std::uint16_t>> UnquantisedCase::output_of(const Launch& launch) const {
  if (Status s = tensors_.back()->poison(); !s.ok()) return s;
  if (Status s = launch(nullptr); !s.ok()) return s;
  if (Status s = reference::synchronise(device_); !s.ok()) return s;
  std::vector<std::uint16_t> bits(values_.q.size());
  if (Status s = tensors_.back()->download(bits.data()); !s.ok()) return s;
  return bits;
}

Result<UnquantisedPlan> UnquantisedCase::plan_call(const QuantiseOptions& options,
                                                   Granularity granularity,
                                                   Precision precision) const {
  UnquantisedProblem problem = problem_;
  problem.granularity = granularity;
  problem.precision = precision;
  problem.rotate = options.rotate;
  problem.smooth = options.smooth;
  return plan(problem, device_);
}

Result<Launch> UnquantisedCase::call(const QuantiseOptions& options, Granularity granularity,
                                     Precision precision) {
  const auto made = plan_call(options, granularity, precision);
  if (!made.ok()) return made.status();
  const auto memory = keep(made->workspace_bytes(), "workspace");
  if (!memory.ok()) return memory.status();
  return Launch([made = *made, memory = *memory](CUstream_st* stream) {
    return forward(made, memory, stream);
  });
}

Quantisation UnquantisedCase::quantisation(const Tensor& from, void* codes, float* descales,
                                           int block_rows, Dtype format) const {
  Quantisation q;
  q.batch = shape_.batch;
  q.heads = shape_.heads_q;
  q.seq = shape_.seq_q;
  q.head_dim = shape_.head_dim;
  q.from = q.codes = from;
  q.codes.data = codes;
  q.codes.dtype = format;
  q.descales = descales;
  q.block_rows = block_rows;
  return q;
}

Result<Launch> UnquantisedCase::quantiser(const Quantisation& q) {
  const auto made = plan(q, device_);
  if (!made.ok()) return made.status();
  const auto memory = keep(made->workspace_bytes(), "workspace");
  if (!memory.ok()) return memory.status();
  return Launch([made = *made, memory = *memory](CUstream_st* stream) {
    return quantise(made, memory, stream);
  });
}

Result<Problem> UnquantisedCase::codes_of(Granularity granularity, Dtype format, bool of_v,
                                          bool one_head) {
  Problem codes = problem_.attention;
  const std::int64_t heads = std::int64_t{codes.batch} * codes.heads_q;
  const auto scales_of = [&](int block_rows) {
    return heads * descales_of_head(granularity, codes.seq_q, block_rows);
  };
  const std::int64_t of_q = scales_of(kQueriesOfBlock);
  const std::int64_t of_kv = scales_of(kKeysOfBlock);
  const auto bytes = keep(values_.q.size() * 3, "codes");
  const auto scales = keep(static_cast<std::size_t>(of_q + 2 * of_kv) * sizeof(float), "descales");
  for (const auto* made : {&bytes, &scales}) {
    if (!made->ok()) return made->status();
  }
  auto* next = static_cast<std::uint8_t*>(*bytes);
  auto* scale = static_cast<float*>(*scales);
  codes.descales = {scale, scale + of_q, scale + of_q + of_kv, granularity};
  if (!of_v) codes.descales.v = nullptr;
  for (Tensor* tensor : {&codes.q, &codes.k, &codes.v}) {
    if (!of_v && tensor == &codes.v) continue;
    const int rows = tensor == &codes.q ? kQueriesOfBlock : kKeysOfBlock;
    Quantisation q =
        quantisation(*tensor, next, scale, granularity == Granularity::kBlock ? rows : 0, format);
    const Tensor made = q.codes;
    if (one_head) {
      q.batch = q.heads = 1;
      q.seq *= heads;
    }
    const auto quantised = quantiser(q);
    if (!quantised.ok()) return quantised.status();
    if (Status s = (*quantised)(nullptr); !s.ok()) return s;
    *tensor = made;
    next += values_.q.size();
    scale += tensor == &codes.q ? of_q : of_kv;
  }
  if (Status s = reference::synchronise(device_); !s.ok()) return s;
  return codes;
}

Result<Launch> UnquantisedCase::attention_alone(Granularity granularity, Precision precision) {
  const bool int8 = precision == Precision::kInt8;
  const auto codes = codes_of(granularity, int8 ? Dtype::kInt8 : Dtype::kE4M3, /*of_v=*/!int8,
                              /*one_head=*/false);
  if (!codes.ok()) return codes.status();
  const auto made = plan(*codes, device_);
  if (!made.ok()) return made.status();
  const auto memory = keep(made->workspace_bytes(), "workspace");
  if (!memory.ok()) return memory.status();
  return Launch([made = *made, memory = *memory](CUstream_st* stream) {
    return forward(made, memory, stream);
  });
}

Result<std::vector<UnquantisedPeer>> UnquantisedCase::peers() {
  std::vector<UnquantisedPeer> all;
  const auto add = [&](const char* name, auto made, auto& kept, Dtype output) {
    if (!made.ok()) {
      all.push_back({name, nullptr, made.status().message(), output});
      return;
    }
    kept.push_back(std::move(*made));
    auto* const peer = kept.back().get();
    all.push_back({name, [peer](CUstream_st* stream) { return peer->launch(stream); }, "", output});
    if constexpr (requires { peer->output_scale(); }) all.back().scale = peer->output_scale();
  };
  const auto of_heads = codes_of(Granularity::kHead, Dtype::kE4M3, true, /*one_head=*/false);
  if (!of_heads.ok()) return of_heads.status();
  const auto of_tensors = codes_of(Granularity::kHead, Dtype::kE4M3, true, /*one_head=*/true);
  if (!of_tensors.ok()) return of_tensors.status();
  const Problem& bf16 = problem_.attention;
  constexpr Dtype k16 = Dtype::kBFloat16;
  add("cudnn_bf16", CudnnGraph::make(bf16, device_, /*as_bf16=*/true), graphs_, k16);
  add("flash3_bf16", Flash3Attention::make(bf16, device_), flash3_, k16);
  add("cudnn_fp8", CudnnGraph::make(*of_tensors, device_, /*as_bf16=*/false), graphs_,
      Dtype::kE4M3);
  add("flash3_fp8", Flash3Attention::make(*of_heads, device_), flash3_, k16);
  return all;
}

}  // namespace fp8_sdpa::bench
