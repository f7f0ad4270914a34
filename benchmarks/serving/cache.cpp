#include "benchmarks/serving/cache.hpp"

#include <algorithm>
#include <cmath>
#include <cstring>
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

/// The last queries of a sequence are looked at, so many.
constexpr std::int64_t kQueriesLookedAt = 64;

/// Rows of the sequences before one.
std::int64_t first_of(const std::vector<std::int32_t>& lengths, int sequence) {
  return std::accumulate(lengths.begin(), lengths.begin() + sequence, std::int64_t{0});
}

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
  for (auto& code : codes) code = reference::encode_code(normal(random), Dtype::kE4M3);
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

Status Cache::upload_offsets(const std::vector<std::int32_t>& lengths, const std::int32_t** to) {
  std::vector<std::int32_t> offsets(lengths.size() + 1);
  std::partial_sum(lengths.begin(), lengths.end(), offsets.begin() + 1);
  const auto made = upload(offsets.data(), offsets.size() * sizeof offsets[0], "offsets");
  if (!made.ok()) return made.status();
  *to = static_cast<const std::int32_t*>(*made);
  return {};
}

std::size_t Cache::place_of(Operand operand, std::int64_t at) const {
  const std::size_t first = codes_.size() / kOperands * static_cast<std::size_t>(operand);
  return (first + static_cast<std::size_t>(at)) % codes_.size();
}

Status Cache::fill(Operand operand, std::size_t bytes, const char* name, void** data) {
  const auto made = allocate(bytes, name);
  if (!made.ok()) return made.status();
  *data = *made;
  std::size_t part = 0;
  for (std::size_t at = 0; at < bytes; at += part) {
    const std::size_t from = place_of(operand, static_cast<std::int64_t>(at));
    part = std::min(codes_.size() - from, bytes - at);
    Status s = copy(device_, static_cast<std::byte*>(*made) + at,
                    static_cast<const std::byte*>(pattern_->data()) + from, part);
    if (!s.ok()) return s;
  }
  return {};
}

void Cache::append_row(Operand operand, std::int64_t at, std::vector<float>& to) const {
  static const auto& table = reference::decode_table(Dtype::kE4M3);
  std::size_t next = place_of(operand, at);
  for (int dim = 0; dim < case_.head_dim; ++dim) {
    to.push_back(table[codes_[next]]);
    if (++next == codes_.size()) next = 0;
  }
}

std::int64_t Cache::query_of(int sequence, std::int64_t query) const {
  return case_.packed() ? first_of(case_.queries, sequence) + query
                        : sequence * problem_.seq_q + query;
}

std::int64_t Cache::row_of(int sequence, std::int64_t key, int kv_head) const {
  const Pages& pages = problem_.pages;
  std::int64_t row =
      case_.packed() ? first_of(case_.lengths, sequence) + key : sequence * problem_.seq_kv + key;
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
  std::int64_t rows =
      case_.packed() ? first_of(case_.lengths, case_.batch()) : case_.batch() * case_.most_keys();
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
  for (const auto& [operand, tensor] : {std::pair{kKeys, &p.k}, {kValues, &p.v}}) {
    const auto bytes = static_cast<std::size_t>(rows * row);
    if (Status s = fill(operand, bytes, "a cache", &tensor->data); !s.ok()) return s;
    *tensor = {tensor->data, Dtype::kE4M3, rows_of_entry * row, case_.head_dim, row, 1};
  }
  if (case_.packed() && table_.empty()) {
    p.ragged.total_kv = rows;
    return upload_offsets(case_.lengths, &p.ragged.cu_seqlens_kv);
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
  const auto rows = static_cast<std::size_t>(case_.packed() ? first_of(case_.queries, p.batch)
                                                            : p.batch * p.seq_q);
  if (case_.packed()) {
    p.ragged.total_q = static_cast<std::int64_t>(rows);
    Status s = upload_offsets(case_.queries, &p.ragged.cu_seqlens_q);
    if (!s.ok()) return s;
  }
  const std::size_t elements = rows * static_cast<std::size_t>(row);
  if (Status s = fill(kQueries, elements, "Q", &p.q.data); !s.ok()) return s;
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
    cache.expected_.push_back(cache.attend(sequence, kv_head));
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

Cache::Expected Cache::attend(int sequence, int kv_head) const {
  const Problem& p = problem_;
  const int group = p.heads_q / p.heads_kv;
  const std::int64_t keys = case_.lengths[static_cast<std::size_t>(sequence)];
  const std::int64_t queries = case_.queries_of(sequence);
  const std::int64_t first = std::max<std::int64_t>(queries - kQueriesLookedAt, 0);
  std::vector<float> q;
  for (int head = kv_head * group; head < (kv_head + 1) * group; ++head) {
    for (std::int64_t query = first; query < queries; ++query) {
      append_row(kQueries, query_of(sequence, query) * p.q.stride_seq + head * p.q.stride_head, q);
    }
  }
  std::vector<float> k;
  std::vector<float> v;
  for (std::int64_t key = 0; key < keys; ++key) {
    append_row(kKeys, row_of(sequence, key, kv_head), k);
    append_row(kValues, row_of(sequence, key, kv_head), v);
  }
  const reference::AttentionSizes sizes{1, group, 1, queries - first, keys, p.head_dim, p.mask};
  return {sequence, kv_head, first,
          reference::attention_fp64(q, k, v, sizes, double{kQueryScale} * p.softmax_scale)};
}

Result<ServingErrors> Cache::errors() const {
  const Problem& p = problem_;
  std::vector<std::uint16_t> o(o_->size() / sizeof(std::uint16_t));
  std::vector<float> lse(lse_->size() / sizeof(float));
  if (Status s = o_->download(o.data()); !s.ok()) return s;
  if (Status s = lse_->download(lse.data()); !s.ok()) return s;
  ServingErrors errors{0.0, 0.0};
  // NaN is larger than any error.
  const auto larger = [](double a, double b) { return b <= a ? a : b; };
  for (const auto& [sequence, kv_head, first_query, want] : expected_) {
    const std::int64_t queries = case_.queries_of(sequence) - first_query;
    const std::int64_t first = kv_head * std::int64_t{p.heads_q / p.heads_kv};
    double wrong = 0.0;
    double size = 0.0;
    for (std::size_t row = 0; row < want.lse.size(); ++row) {
      const std::int64_t head = first + static_cast<std::int64_t>(row) / queries;
      const std::int64_t query = first_query + static_cast<std::int64_t>(row) % queries;
      const auto at = static_cast<std::size_t>(query_of(sequence, query) * p.o.stride_seq +
                                               head * p.o.stride_head);
      const auto dims = static_cast<std::size_t>(p.head_dim);
      for (std::size_t dim = 0; dim < dims; ++dim) {
        const double exact = want.o[row * dims + dim];
        const double error = reference::decode_16(o[at + dim], Dtype::kBFloat16) - exact;
        wrong += error * error;
        size += exact * exact;
      }
      const std::int64_t lse_at =
          case_.packed() ? head * p.ragged.total_q + query_of(sequence, query)
                         : (sequence * std::int64_t{p.heads_q} + head) * p.seq_q + query;
      const double got = lse[static_cast<std::size_t>(lse_at)];
      if (got != want.lse[row]) errors.lse = larger(errors.lse, std::fabs(got - want.lse[row]));
    }
    if (wrong != 0.0) errors.o = larger(errors.o, std::sqrt(wrong / size));
  }
  return errors;
}

}  // namespace fp8_sdpa::bench
