#include "benchmarks/serving/cache.hpp"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>
#include <numeric>
#include <random>

#include "reference/formats/fp8.hpp"
#include "reference/formats/half.hpp"
#if FP8_SDPA_HAS_DEVICE
#include "gpu/cuda_check.hpp"
#endif

namespace fp8_sdpa::bench {
namespace {

constexpr float kQueryScale = 2.0F;

/// Copies to where kernels of the device read.
Status copy(const Device& device, void* to, const void* from, std::size_t bytes) {
  if (device.backend == Backend::kHost) {
    std::memcpy(to, from, bytes);
    return {};
  }
#if FP8_SDPA_HAS_DEVICE
  return FP8_SDPA_CUDA_STATUS(cudaMemcpy(to, from, bytes, cudaMemcpyDeviceToDevice));
#else
  return unsupported("this build has no device code");
#endif
}

}  // namespace

std::vector<std::uint8_t> draw_codes(std::uint64_t seed) {
  constexpr std::size_t kCodes = (std::size_t{1} << 24) - 4112;
  std::mt19937_64 random(seed);
  std::normal_distribution<float> normal;
  std::vector<std::uint8_t> codes(kCodes);
  for (auto& code : codes) code = reference::encode_fp8(normal(random), Dtype::kE4M3);
  return codes;
}

Result<void*> Cache::allocate(std::size_t bytes, const char* name) {
  auto made = reference::allocate(device_, bytes, name);
  if (!made.ok()) return made.status();
  memory_.push_back(std::move(*made));
  return memory_.back()->data();
}

Result<void*> Cache::upload(const void* from, std::size_t bytes, const char* name) {
  auto made = allocate(bytes, name);
  if (!made.ok()) return made.status();
  if (Status s = memory_.back()->upload(from); !s.ok()) return s;
  return made;
}

Status Cache::fill(std::size_t bytes, const char* name, void** data) {
  const auto made = allocate(bytes, name);
  if (!made.ok()) return made.status();
  *data = *made;
  for (std::size_t at = 0; at < bytes; at += codes_.size()) {
    const std::size_t part = std::min(codes_.size(), bytes - at);
    Status s = copy(device_, static_cast<std::byte*>(*made) + at, pattern_->data(), part);
    if (!s.ok()) return s;
  }
  return {};
}

std::vector<float> Cache::values(std::int64_t at) const {
  static const auto& table = reference::decode_table(Dtype::kE4M3);
  std::vector<float> row(static_cast<std::size_t>(case_.head_dim));
  std::size_t next = static_cast<std::size_t>(at) % codes_.size();
  for (float& x : row) {
    x = table[codes_[next]];
    if (++next == codes_.size()) next = 0;
  }
  return row;
}

std::int64_t Cache::row_of(int sequence, std::int64_t key, int kv_head) const {
  const Pages& pages = problem_.pages;
  std::int64_t row = sequence * problem_.seq_kv + key;
  if (!table_.empty()) {
    const std::int64_t nth = sequence * std::int64_t{pages.max_pages} + key / pages.page_size;
    row = std::int64_t{table_[static_cast<std::size_t>(nth)]} * pages.page_size +
          key % pages.page_size;
  }
  return (row * case_.heads_kv + kv_head) * case_.head_dim;
}

Status Cache::make_keys(std::uint64_t seed) {
  Problem& p = problem_;
  const std::int64_t row = std::int64_t{case_.heads_kv} * case_.head_dim;
  std::int64_t rows = case_.batch() * case_.most_keys();
  std::int64_t rows_of_entry = case_.most_keys();
  if (case_.page_size > 0) {
    const std::int64_t size = rows_of_entry = case_.page_size;
    const std::int64_t columns = (case_.most_keys() + size - 1) / size;
    std::int64_t used = 0;
    for (const std::int64_t length : case_.lengths) used += (length + size - 1) / size;
    std::vector<std::int32_t> order(static_cast<std::size_t>(used));
    std::iota(order.begin(), order.end(), 0);
    std::mt19937_64 random(seed);
    std::ranges::shuffle(order, random);
    table_.assign(static_cast<std::size_t>(case_.batch() * columns), -1);
    auto next = order.begin();
    for (int b = 0; b < case_.batch(); ++b) {
      const std::int64_t length = case_.lengths[static_cast<std::size_t>(b)];
      for (std::int64_t i = 0; i * size < length; ++i) {
        table_[static_cast<std::size_t>(b * columns + i)] = *next++;
      }
    }
    const auto table = upload(table_.data(), table_.size() * sizeof table_[0], "the block table");
    if (!table.ok()) return table.status();
    p.pages = {static_cast<const std::int32_t*>(*table), static_cast<int>(used), case_.page_size,
               static_cast<int>(columns)};
    rows = used * size;
  }
  for (Tensor* tensor : {&p.k, &p.v}) {
    const auto bytes = static_cast<std::size_t>(rows * row);
    if (Status s = fill(bytes, "a cache", &tensor->data); !s.ok()) return s;
    *tensor = {tensor->data, Dtype::kE4M3, rows_of_entry * row, case_.head_dim, row, 1};
  }
  if (!case_.ragged) return {};
  const auto lengths =
      upload(case_.lengths.data(), case_.lengths.size() * sizeof(std::int32_t), "lengths");
  if (!lengths.ok()) return lengths.status();
  p.ragged.seqused_kv = static_cast<const std::int32_t*>(*lengths);
  return {};
}

Status Cache::make_queries() {
  Problem& p = problem_;
  const std::int64_t row = std::int64_t{case_.heads_q} * case_.head_dim;
  const auto rows = static_cast<std::size_t>(p.batch) * static_cast<std::size_t>(p.seq_q);
  const std::size_t elements = rows * static_cast<std::size_t>(row);
  if (Status s = fill(elements, "Q", &p.q.data); !s.ok()) return s;
  p.q = {p.q.data, Dtype::kE4M3, p.seq_q * row, case_.head_dim, row, 1};
  const auto o = allocate(elements * sizeof(std::uint16_t), "O");
  if (!o.ok()) return o.status();
  o_ = memory_.back().get();
  p.o = {*o, Dtype::kBFloat16, p.q.stride_batch, p.q.stride_head, p.q.stride_seq, 1};
  const auto lse = allocate(rows * static_cast<std::size_t>(p.heads_q) * sizeof(float), "the LSE");
  if (!lse.ok()) return lse.status();
  lse_ = memory_.back().get();
  p.lse = static_cast<float*>(*lse);
  const auto heads = static_cast<std::size_t>(p.batch * p.heads_q);
  std::vector<float> scales(2 * heads, 1.0F);
  std::fill_n(scales.begin(), heads, kQueryScale);
  const auto at = upload(scales.data(), scales.size() * sizeof(float), "descales");
  if (!at.ok()) return at.status();
  const auto* const first = static_cast<const float*>(*at);
  p.descales = {first, first + heads, first + heads};
  return {};
}

Result<Cache> Cache::make(const ServingCase& serving_case, const std::vector<std::uint8_t>& codes,
                          std::uint64_t seed, const Device& device) {
  Cache cache(serving_case, device);
  Problem& p = cache.problem_;
  p.batch = serving_case.batch();
  p.heads_q = serving_case.heads_q;
  p.heads_kv = serving_case.heads_kv;
  p.seq_q = serving_case.seq_q;
  p.seq_kv = serving_case.most_keys();
  p.head_dim = serving_case.head_dim;
  p.mask = Mask::kCausal;
  p.softmax_scale = static_cast<float>(1.0 / std::sqrt(p.head_dim));
  cache.codes_ = codes;
  const auto pattern = cache.upload(cache.codes_.data(), cache.codes_.size(), "codes");
  if (!pattern.ok()) return pattern.status();
  cache.pattern_ = cache.memory_.back().get();
  if (Status s = cache.make_keys(seed); !s.ok()) return s;
  if (Status s = cache.make_queries(); !s.ok()) return s;
  for (const auto& [sequence, kv_head] :
       {std::pair{0, 0}, {p.batch / 2, p.heads_kv / 2}, {p.batch - 1, p.heads_kv - 1}}) {
    auto& rows = cache.expected_.emplace_back();
    for (std::int64_t row = 0; row < p.seq_q * (p.heads_q / p.heads_kv); ++row) {
      rows.push_back(cache.attend(sequence, kv_head, row));
    }
  }
  return cache;
}

Status Cache::poison() const {
  for (const auto& memory : memory_) {
    if (memory.get() != o_ && memory.get() != lse_) continue;
    if (Status s = memory->poison(); !s.ok()) return s;
  }
  return {};
}

Cache::Expected Cache::attend(int sequence, int kv_head, std::int64_t row) const {
  const Problem& p = problem_;
  const int group = p.heads_q / p.heads_kv;
  const std::int64_t query = row / group;
  const std::int64_t head = kv_head * group + row % group;
  Expected expected{sequence * p.q.stride_batch + query * p.q.stride_seq + head * p.q.stride_head,
                    (sequence * std::int64_t{p.heads_q} + head) * p.seq_q + query,
                    std::vector<double>(static_cast<std::size_t>(p.head_dim), 0.0),
                    -std::numeric_limits<double>::infinity()};
  const std::int64_t keys = case_.lengths[static_cast<std::size_t>(sequence)];
  const std::int64_t seen = keys - p.seq_q + query + 1;
  if (seen <= 0) return expected;
  const std::vector<float> q = values(expected.q);
  std::vector<double> scores;
  for (std::int64_t key = 0; key < seen; ++key) {
    const std::vector<float> k = values(row_of(sequence, key, kv_head));
    const double dot = std::inner_product(q.begin(), q.end(), k.begin(), 0.0);
    scores.push_back(dot * kQueryScale * p.softmax_scale);
  }
  const double max = *std::ranges::max_element(scores);
  double sum = 0.0;
  for (std::int64_t key = 0; key < seen; ++key) {
    const double weight = std::exp(scores[static_cast<std::size_t>(key)] - max);
    const std::vector<float> v = values(row_of(sequence, key, kv_head));
    sum += weight;
    for (std::size_t dim = 0; dim < v.size(); ++dim) expected.o[dim] += weight * v[dim];
  }
  for (double& x : expected.o) x /= sum;
  expected.lse = max + std::log(sum);
  return expected;
}

Result<ServingErrors> Cache::errors() const {
  std::vector<std::uint16_t> o(o_->size() / sizeof(std::uint16_t));
  std::vector<float> lse(lse_->size() / sizeof(float));
  if (Status s = o_->download(o.data()); !s.ok()) return s;
  if (Status s = lse_->download(lse.data()); !s.ok()) return s;
  ServingErrors errors{0.0, 0.0};
  // NaN is larger than any error.
  const auto larger = [](double a, double b) { return b <= a ? a : b; };
  for (const std::vector<Expected>& head : expected_) {
    double wrong = 0.0;
    double size = 0.0;
    for (const Expected& row : head) {
      for (std::size_t dim = 0; dim < row.o.size(); ++dim) {
        const std::uint16_t bits = o[static_cast<std::size_t>(row.q) + dim];
        const double error = reference::decode_16(bits, Dtype::kBFloat16) - row.o[dim];
        wrong += error * error;
        size += row.o[dim] * row.o[dim];
      }
      const double got = lse[static_cast<std::size_t>(row.lse_at)];
      if (got != row.lse) errors.lse = larger(errors.lse, std::fabs(got - row.lse));
    }
    if (wrong != 0.0) errors.o = larger(errors.o, std::sqrt(wrong / size));
  }
  return errors;
}

}  // namespace fp8_sdpa::bench
