#include "benchmarks/measure/workload.hpp"

#include <cmath>
#include <utility>
#include <vector>

#include "reference/judge/harness.hpp"

namespace fp8_sdpa::bench {
namespace {

/// A (batch, heads, seq, dim) contiguous view.
Tensor contiguous(void* data, Dtype dtype, std::int64_t heads, std::int64_t seq, std::int64_t dim) {
  return {data, dtype, heads * seq * dim, seq * dim, dim, 1};
}

void set_sizes(Problem& problem, const reference::Shape& shape) {
  problem.batch = shape.batch;
  problem.heads_q = shape.heads_q;
  problem.heads_kv = shape.heads_kv;
  problem.seq_q = shape.seq_q;
  problem.seq_kv = shape.seq_kv;
  problem.head_dim = shape.head_dim;
  problem.mask = shape.mask;
}

}  // namespace

Result<void*> Workload::upload(const void* source, std::size_t bytes, const char* name) {
  auto buffer = reference::allocate(device_, bytes, name);
  if (!buffer.ok()) return buffer.status();
  if (Status status = (*buffer)->upload(source); !status.ok()) return status;
  inputs_.push_back(std::move(*buffer));
  return inputs_.back()->data();
}

Status Workload::upload_operand(const reference::QuantisedTensor& tensor, Dtype dtype,
                                std::int64_t heads, std::int64_t seq, Tensor* view,
                                const float** descales, const char* name) {
  const std::vector<std::uint8_t> bytes = reference::value_bytes(tensor, dtype);
  const auto codes = upload(bytes.data(), bytes.size(), name);
  if (!codes.ok()) return codes.status();
  const auto scales =
      upload(tensor.descales.data(), tensor.descales.size() * sizeof(float), "descales");
  if (!scales.ok()) return scales.status();
  *view = contiguous(*codes, dtype, heads, seq, problem_.head_dim);
  *descales = static_cast<const float*>(*scales);
  return {};
}

Result<Workload> Workload::make(const reference::CaseData& data, const Device& device,
                                Dtype output_type, std::optional<LseSum> lse, Dtype values) {
  const reference::Shape& shape = data.shape;
  Workload made;
  made.device_ = device;
  Problem& problem = made.problem_;
  set_sizes(problem, shape);
  problem.softmax_scale = data.softmax_scale;
  Descales& scales = problem.descales;
  const Dtype of_v = data.dtype == Dtype::kInt8 ? values : data.v.dtype;
  for (Status status : {made.upload_operand(data.q, data.q.dtype, shape.heads_q, shape.seq_q,
                                            &problem.q, &scales.q, "Q"),
                        made.upload_operand(data.k, data.k.dtype, shape.heads_kv, shape.seq_kv,
                                            &problem.k, &scales.k, "K"),
                        made.upload_operand(data.v, of_v, shape.heads_kv, shape.seq_kv, &problem.v,
                                            &scales.v, "V")}) {
    if (!status.ok()) return status;
  }
  auto output = reference::allocate(device, data.q.codes.size() * sizeof(std::uint16_t), "O");
  if (!output.ok()) return output.status();
  made.output_ = std::move(*output);
  problem.o =
      contiguous(made.output_->data(), output_type, shape.heads_q, shape.seq_q, shape.head_dim);
  if (!lse) return made;
  problem.lse_sum = *lse;
  const std::int64_t rows = shape.seq_q * shape.batch * shape.heads_q;
  auto buffer =
      reference::allocate(device, static_cast<std::size_t>(rows) * sizeof(float), "the LSE");
  if (!buffer.ok()) return buffer.status();
  made.lse_ = std::move(*buffer);
  problem.lse = static_cast<float*>(made.lse_->data());
  return made;
}

Result<std::vector<std::uint16_t>> Workload::run(const Plan& plan) const {
  if (Status status = poison(); !status.ok()) return status;
  const auto workspace = reference::Workspace::make(plan);
  if (!workspace.ok()) return workspace.status();
  if (Status status = forward(plan, workspace->data(), nullptr); !status.ok()) return status;
  return output();
}

Status Workload::poison() const {
  if (Status status = output_->poison(); !status.ok()) return status;
  if (lse_ != nullptr) {
    if (Status status = lse_->poison(); !status.ok()) return status;
  }
  return reference::synchronise(device_);
}

Result<std::vector<std::uint16_t>> Workload::output() const {
  if (Status status = reference::synchronise(device_); !status.ok()) return status;
  std::vector<std::uint16_t> bits(output_->size() / sizeof(std::uint16_t));
  if (Status status = output_->download(bits.data()); !status.ok()) return status;
  return bits;
}

Result<std::vector<float>> Workload::lse() const {
  std::vector<float> values(lse_ != nullptr ? lse_->size() / sizeof(float) : 0);
  if (values.empty()) return values;
  if (Status status = reference::synchronise(device_); !status.ok()) return status;
  if (Status status = lse_->download(values.data()); !status.ok()) return status;
  return values;
}

Problem problem_of(const reference::Shape& shape, Dtype dtype) {
  // Any addresses do that are aligned and so far apart that no tensors overlap.
  const auto address = [](std::uintptr_t slot) {
    constexpr int kSlotBits = 44;
    return reinterpret_cast<void*>((slot + 1) << kSlotBits);
  };
  Problem problem;
  set_sizes(problem, shape);
  const int dim = shape.head_dim;
  problem.q = contiguous(address(0), dtype, shape.heads_q, shape.seq_q, dim);
  problem.k = contiguous(address(1), dtype, shape.heads_kv, shape.seq_kv, dim);
  problem.v = contiguous(address(2), dtype, shape.heads_kv, shape.seq_kv, dim);
  problem.o = contiguous(address(3), Dtype::kHalf, shape.heads_q, shape.seq_q, dim);
  problem.descales = {static_cast<const float*>(address(4)), static_cast<const float*>(address(5)),
                      static_cast<const float*>(address(6))};
  problem.softmax_scale = 1.0F / std::sqrt(static_cast<float>(dim));
  return problem;
}

Problem problem_of(const reference::Shape& shape, const Variant& variant) {
  Problem problem = problem_of(shape, variant.codes());
  problem.v.dtype = variant.values();
  return problem;
}

}  // namespace fp8_sdpa::bench
