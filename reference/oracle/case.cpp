#include "reference/oracle/case.hpp"

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <iterator>
#include <mutex>
#include <new>
#include <stdexcept>
#include <utility>
#include <vector>

#include "reference/formats/parallel.hpp"
#include "reference/inputs/qkv.hpp"

namespace fp8_sdpa::reference {
namespace {

/// The largest of(row), or 0, over rows of `head_dim` elements, on all cores.
template <class Of>
double largest_of_rows(std::int64_t rows, int head_dim, const Of& of) {
  std::mutex mutex;
  double largest = 0.0;
  const std::int64_t rows_at_once = std::max<std::int64_t>(kParallelChunk / head_dim, 1);
  const auto look = [&](std::int64_t task) {
    double found = 0.0;
    const std::int64_t last = std::min(rows, (task + 1) * rows_at_once);
    for (std::int64_t row = task * rows_at_once; row < last; ++row) {
      found = std::max(found, of(row));
    }
    const std::lock_guard lock(mutex);
    largest = std::max(largest, found);
  };
  parallel_for((rows + rows_at_once - 1) / rows_at_once, look);
  return largest;
}

/// The largest norm of a row of `values`, (rows, head_dim). Rows that are not finite do not count.
double largest_norm(const std::vector<float>& values, int head_dim) {
  return std::sqrt(largest_of_rows(std::ssize(values) / head_dim, head_dim, [&](std::int64_t row) {
    double sum = 0.0;
    for (std::int64_t d = 0; d < head_dim; ++d) {
      const double value = values[static_cast<std::size_t>(row * head_dim + d)];
      sum += value * value;
    }
    return std::isfinite(sum) ? sum : 0.0;
  }));
}

/// The largest finite magnitude of `values`, (rows, head_dim).
double largest_magnitude(const std::vector<float>& values, int head_dim) {
  return largest_of_rows(std::ssize(values) / head_dim, head_dim, [&](std::int64_t row) {
    double largest = 0.0;
    for (std::int64_t d = 0; d < head_dim; ++d) {
      const float value = values[static_cast<std::size_t>(row * head_dim + d)];
      if (std::isfinite(value)) largest = std::max(largest, std::fabs(static_cast<double>(value)));
    }
    return largest;
  });
}

Attention attend(const CaseData& data, const std::vector<float>& q, const std::vector<float>& k,
                 const std::vector<float>& v) {
  return attention_fp64(q, k, v, sizes_of(data.shape), data.softmax_scale, 0, data.keys_of_row);
}

/// Computes what follows from codes and descales alone.
void finish_from_codes(CaseData& data) {
  const std::vector<float> q = dequantise(data.q);
  const std::vector<float> k = dequantise(data.k);
  const std::vector<float> v = dequantise(data.v);
  data.reference_kernel = attend(data, q, k, v);
  data.max_abs_v = largest_magnitude(v, data.shape.head_dim);
  data.score_bound = static_cast<double>(data.softmax_scale) *
                     largest_norm(q, data.shape.head_dim) * largest_norm(k, data.shape.head_dim);
  data.budgets = make_budget_cache();
}

void add_references(CaseData& data, const std::vector<float>& k, const std::vector<float>& v) {
  if (data.saturated_infinities() == 0) {
    data.reference_quantised = attend(data, data.inputs.q, k, v);
  } else {
    data.reference_quantised =
        attend(data, saturate_infinities(data.inputs.q, data.q), saturate_infinities(k, data.k),
               saturate_infinities(v, data.v));
  }
  finish_from_codes(data);
}

/// Quantises data.inputs in that way; the rest of `data` is filled in.
void quantise_inputs(CaseData& data, const QuantisingWay& way = {}) {
  const Shape& shape = data.shape;
  const int dim = shape.head_dim;
  const std::int64_t q_heads = std::int64_t{shape.batch} * shape.heads_q;
  const std::int64_t kv_heads = std::int64_t{shape.batch} * shape.heads_kv;
  const auto of_q = transformed(data.inputs.q, q_heads, dim, way.rotate, /*smoothed=*/false);
  const auto of_k = transformed(data.inputs.k, kv_heads, dim, way.rotate, way.smooth);
  const std::int64_t per_block = way.per_block_kv(dim);
  data.q = quantise(of_q, q_heads, shape.seq_q * dim, data.dtype, way.per_block_q(dim));
  data.k = quantise(of_k, kv_heads, shape.seq_kv * dim, data.dtype, per_block);
  const Dtype of_v = data.dtype == Dtype::kInt8 ? Dtype::kE4M3 : data.dtype;
  data.v = quantise(data.inputs.v, kv_heads, shape.seq_kv * dim, of_v, per_block);
}

}  // namespace

std::shared_ptr<const CaseData> with_references(CaseData data) {
  add_references(data, data.inputs.k, data.inputs.v);
  return std::make_shared<const CaseData>(std::move(data));
}

std::shared_ptr<const CaseData> with_references(CaseData data, const std::vector<float>& k,
                                                const std::vector<float>& v) {
  add_references(data, k, v);
  return std::make_shared<const CaseData>(std::move(data));
}

CaseData draw_case(const Shape& shape, std::uint64_t seed, Dtype dtype) {
  CaseData data;
  data.shape = shape;
  data.seed = seed;
  data.dtype = dtype;
  data.softmax_scale = static_cast<float>(1.0 / std::sqrt(static_cast<double>(shape.head_dim)));
  Result<Inputs> inputs = draw_inputs(shape, seed);
  if (!inputs.ok()) throw std::invalid_argument(inputs.status().message());
  data.inputs = std::move(*inputs);
  quantise_inputs(data);
  return data;
}

std::shared_ptr<const CaseData> make_case(const Shape& shape, std::uint64_t seed, Dtype dtype) {
  return with_references(draw_case(shape, seed, dtype));
}

std::vector<float> lse_of_means(const CaseData& data, bool rotated) {
  const Shape& shape = data.shape;
  const auto dim = static_cast<std::size_t>(shape.head_dim);
  const auto as_double = [&](const std::vector<float>& values) {
    const std::vector<double> made(values.begin(), values.end());
    return rotated ? rotate(made, shape.head_dim, /*seed=*/0) : made;
  };
  const std::vector<double> q = as_double(data.inputs.q);
  const std::vector<double> mean =
      means(as_double(data.inputs.k), std::int64_t{shape.batch} * shape.heads_kv, shape.head_dim);
  const auto rows_of_mean = static_cast<std::size_t>(shape.heads_q / shape.heads_kv * shape.seq_q);
  std::vector<float> result(q.size() / dim);
  for (std::size_t row = 0; row < result.size(); ++row) {
    double dot = 0.0;
    for (std::size_t d = 0; d < dim; ++d) {
      dot += q[row * dim + d] * mean[row / rows_of_mean * dim + d];
    }
    result[row] = static_cast<float>(data.softmax_scale * dot);
  }
  return result;
}

std::shared_ptr<const CaseData> from_codes(CaseData data) {
  data.inputs = {dequantise(data.q), dequantise(data.k), dequantise(data.v)};
  finish_from_codes(data);
  data.reference_quantised = data.reference_kernel;
  return std::make_shared<const CaseData>(std::move(data));
}

Result<std::shared_ptr<const CaseData>> make_case(Qkv tensors, const std::string& name, Mask mask,
                                                  Dtype dtype, const QuantisingWay& way) {
  try {
    CaseData data;
    data.shape = shape_of(name, tensors.sizes);
    data.shape.mask = mask;
    data.shape.inputs.family = "file";
    data.dtype = dtype;
    data.drawn = false;
    data.softmax_scale = tensors.softmax_scale;
    if (tensors.codes) {
      data.dtype = tensors.codes->q.dtype;
      data.q = std::move(tensors.codes->q);
      data.k = std::move(tensors.codes->k);
      data.v = std::move(tensors.codes->v);
      return from_codes(std::move(data));
    }
    data.inputs = std::move(tensors.inputs);
    quantise_inputs(data, way);
    return with_references(std::move(data));
  } catch (const std::bad_alloc&) {
    return Status(StatusCode::kOutOfMemory,
                  name + ": not enough host memory for the references; use shorter tensors");
  }
}

}  // namespace fp8_sdpa::reference
