#include "tests/wrong/peers.hpp"

#include <algorithm>
#include <cmath>
#include <cstddef>

#include "reference/formats/fp8.hpp"
#include "reference/formats/half.hpp"

namespace fp8_sdpa::wrong {
namespace {

using reference::CaseData;

double largest_difference(const std::vector<float>& a, const std::vector<float>& b) {
  double largest = 0.0;
  for (std::size_t i = 0; i < a.size(); ++i) {
    const double difference = std::fabs(static_cast<double>(a[i]) - b[i]);
    if (!(difference <= largest)) largest = difference;  // a NaN stays
  }
  return largest;
}

float to_half(float value) {
  return reference::decode_16(reference::encode_16(value, Dtype::kHalf), Dtype::kHalf);
}

float to_e4m3(float value) {
  return reference::decode_table(Dtype::kE4M3)[reference::encode_code(value, Dtype::kE4M3)];
}

/// Attention with normalised weights rounded to E4M3. No mask; as many query as KV heads.
std::vector<float> naive_low_precision(const CaseData& data) {
  const std::vector<float> q = reference::dequantise(data.q);
  const std::vector<float> k = reference::dequantise(data.k);
  const std::vector<float> v = reference::dequantise(data.v);
  const auto dim = static_cast<std::size_t>(data.shape.head_dim);
  const auto rows = static_cast<std::size_t>(data.shape.seq_q);
  const auto keys = static_cast<std::size_t>(data.shape.seq_kv);
  std::vector<float> o(q.size());
  std::vector<float> p(keys);
  for (std::size_t row = 0; row < q.size() / dim; ++row) {
    const std::size_t base = row / rows * keys * dim;
    float max = -INFINITY;
    for (std::size_t j = 0; j < keys; ++j) {
      float score = 0.0F;
      for (std::size_t d = 0; d < dim; ++d) score += q[row * dim + d] * k[base + j * dim + d];
      p[j] = score * data.softmax_scale;
      max = std::max(max, p[j]);
    }
    float sum = 0.0F;
    for (float& x : p) sum += x = std::exp(x - max);
    for (std::size_t j = 0; j < keys; ++j) {
      const float weight = to_e4m3(p[j] / sum);
      for (std::size_t d = 0; d < dim; ++d) o[row * dim + d] += weight * v[base + j * dim + d];
    }
  }
  for (float& x : o) x = to_half(x);
  return o;
}

bool flash_attention_3(const std::vector<float>& o, const CaseData& data) {
  const std::vector<float>& exact = data.reference_kernel.o;
  std::vector<float> ref, shifted;
  for (const float x : exact) {
    ref.push_back(to_half(x));
    shifted.push_back(to_half(to_half(ref.back() + 0.3F) - 0.3F));
  }
  return largest_difference(o, ref) <= 2.0 * largest_difference(naive_low_precision(data), ref) +
                                           2.0 * largest_difference(shifted, ref);
}

bool cudnn_frontend(const std::vector<float>& o, const std::vector<float>& ref) {
  for (std::size_t i = 0; i < o.size(); ++i) {
    if (!(std::fabs(o[i] - ref[i]) <= 0.08 + 0.2 * std::fabs(ref[i]))) return false;
  }
  return true;
}

double mean_square(const std::vector<float>& o, const std::vector<float>& ref) {
  double sum = 0.0;
  for (std::size_t i = 0; i < o.size(); ++i) {
    const double difference = static_cast<double>(o[i]) - ref[i];
    sum += difference * difference;
  }
  return sum / static_cast<double>(o.size());
}

bool transformer_engine(const std::vector<float>& o, const std::vector<float>& ref) {
  const auto [o_low, o_high] = std::minmax_element(o.begin(), o.end());
  const auto [ref_low, ref_high] = std::minmax_element(ref.begin(), ref.end());
  const double range = std::max(*o_high, *ref_high) - std::min(*o_low, *ref_low);
  return std::sqrt(mean_square(o, ref)) < 0.13 * range;
}

}  // namespace

std::vector<PeerVerdict> ask_peers(const std::vector<float>& o, const CaseData& data) {
  const std::vector<float>& ref = data.reference_kernel.o;
  if (o.size() != ref.size()) return {};
  return {{"FlashAttention-3", flash_attention_3(o, data)},
          {"cuDNN frontend", cudnn_frontend(o, ref)},
          {"FlashInfer", mean_square(o, ref) < 1.0},
          {"Transformer Engine", transformer_engine(o, ref)}};
}

}  // namespace fp8_sdpa::wrong
