#include "tests/gates/serving/cache.hpp"

#include <algorithm>
#include <cstring>
#include <limits>
#include <numeric>
#include <random>

namespace fp8_sdpa::tests {
namespace {

constexpr std::uint8_t kNanCode = 0xFF;
constexpr std::int32_t kSpareRows = 3;  // of packed tensors: before and behind all sequences

std::size_t size(std::int64_t value) { return static_cast<std::size_t>(value); }

/// cu_seqlens of sequences of these lengths.
std::vector<std::int32_t> offsets_of(const std::vector<std::int32_t>& lengths) {
  std::vector<std::int32_t> offsets = {kSpareRows};
  for (const std::int32_t length : lengths) offsets.push_back(offsets.back() + length);
  return offsets;
}

}  // namespace

reference::Buffer* Cache::add(const void* bytes, std::size_t count, const char* name) {
  auto made = reference::allocate(device_, count, name);
  EXPECT_TRUE(made.ok()) << made.status().message();
  if (!made.ok()) return nullptr;
  const Status filled = bytes != nullptr ? (*made)->upload(bytes) : (*made)->poison();
  EXPECT_TRUE(filled.ok()) << filled.message();
  buffers_.push_back(std::move(*made));
  return buffers_.back().get();
}

const std::int32_t* Cache::add_words(const std::vector<std::int32_t>& words, const char* name,
                                     reference::Buffer*& buffer) {
  buffer = add(words.data(), words.size() * sizeof(std::int32_t), name);
  return static_cast<const std::int32_t*>(buffer->data());
}

std::unique_ptr<Cache> Cache::make(const reference::CaseData& data, const Device& device,
                                   const CacheLayout& layout) {
  const reference::Shape& shape = data.shape;
  std::unique_ptr<Cache> cache(new Cache(device));
  Problem& p = cache->problem;
  p.batch = shape.batch;
  p.heads_q = shape.heads_q;
  p.heads_kv = shape.heads_kv;
  p.seq_q = shape.seq_q;
  p.seq_kv = shape.seq_kv;
  p.head_dim = shape.head_dim;
  p.mask = shape.mask;
  p.softmax_scale = data.softmax_scale;
  cache->make_queries(data, layout);
  cache->make_keys(data, layout);
  const auto scales = [&](const std::vector<float>& values, const char* name) {
    return static_cast<const float*>(
        cache->add(values.data(), values.size() * sizeof(float), name)->data());
  };
  p.descales = {scales(data.q.descales, "descales.q"), scales(data.k.descales, "descales.k"),
                scales(data.v.descales, "descales.v")};
  cache->fault_ = cache->add(nullptr, sizeof(std::uint32_t), "fault");
  p.fault = static_cast<std::uint32_t*>(cache->fault_->data());
  cache->clear_fault();
  return cache;
}

void Cache::make_queries(const reference::CaseData& data, const CacheLayout& layout) {
  const reference::Shape& shape = data.shape;
  const std::int64_t dim = shape.head_dim;
  Problem& p = problem;
  const bool packed = !layout.queries.empty();
  queries_ = packed ? layout.queries
                    : std::vector(size(shape.batch), static_cast<std::int32_t>(shape.seq_q));
  std::int64_t rows = std::int64_t{shape.batch} * shape.seq_q;
  if (packed) {
    offsets_q = offsets_of(queries_);
    p.ragged.cu_seqlens_q = add_words(offsets_q, "cu_seqlens_q", offsets_q_);
    rows = p.ragged.total_q = offsets_q.back() + kSpareRows;
  }
  const auto tensor = [&](void* memory, Dtype dtype) {
    return packed ? Tensor{memory, dtype, 0, dim, shape.heads_q * dim, 1}
                  : Tensor{memory, dtype, shape.heads_q * shape.seq_q * dim, shape.seq_q * dim,
                           dim,    1};
  };
  std::vector<std::uint8_t> codes(size(rows * shape.heads_q * dim), kNanCode);
  for (int b = 0; b < shape.batch; ++b) {
    first_query_.push_back(packed ? offsets_q[size(b)] : 0);
    for (int h = 0; h < shape.heads_q; ++h) {
      for (std::int64_t i = 0; i < queries_[size(b)]; ++i) {
        const std::int64_t from = (std::int64_t{b} * shape.heads_q + h) * shape.seq_q + i;
        std::memcpy(&codes[row_of(b, h, i) * size(dim)], &data.q.codes[size(from * dim)],
                    size(dim));
      }
    }
  }
  p.q = tensor(add(codes.data(), codes.size(), "q")->data(), data.dtype);
  o_ = add(nullptr, codes.size() * size_of(layout.output), "o");
  p.o = tensor(o_->data(), layout.output);
  if (layout.output == Dtype::kE4M3) {
    o_scale_ = reference::scale_of_output(data);
    p.o_scale = static_cast<const float*>(add(&o_scale_, sizeof o_scale_, "o_scale")->data());
  }
  if (!layout.lse) return;
  lse_ = add(nullptr, size(rows * shape.heads_q) * sizeof(float), "lse");
  p.lse = static_cast<float*>(lse_->data());
}

void Cache::make_keys(const reference::CaseData& data, const CacheLayout& layout) {
  const reference::Shape& shape = data.shape;
  const std::int64_t dim = shape.head_dim;
  Problem& p = problem;
  std::vector<std::int32_t> lengths = layout.lengths;
  if (lengths.empty()) lengths.assign(size(shape.batch), static_cast<std::int32_t>(shape.seq_kv));
  const bool paged = layout.page_size > 0;
  const std::int64_t page = paged ? layout.page_size : shape.seq_kv;
  const int max_pages = static_cast<int>((shape.seq_kv + page - 1) / page);
  int pages = shape.batch;
  if (paged) {
    pages = shape.batch * max_pages + 3;
    std::mt19937_64 random(layout.seed);
    std::vector<std::int32_t> order(size(pages));
    std::iota(order.begin(), order.end(), 0);
    std::shuffle(order.begin(), order.end(), random);
    table.assign(size(shape.batch) * size(max_pages), 0);
    for (int b = 0; b < shape.batch; ++b) {
      for (int i = 0; i < max_pages; ++i) {
        std::int32_t& entry = table[size(b * max_pages + i)];
        entry = order[size(b * max_pages + i)];
        if (layout.share_first_page && i == 0) entry = order[0];
        if (i * page >= lengths[size(b)])
          entry = i % 2 == 0 ? -1 : std::numeric_limits<std::int32_t>::max();
      }
    }
    p.pages = {add_words(table, "table", table_), pages, layout.page_size, max_pages};
  }
  if (layout.packed_keys) {
    offsets_kv = offsets_of(lengths);
    p.ragged.cu_seqlens_kv = add_words(offsets_kv, "cu_seqlens_kv", offsets_kv_);
    p.ragged.total_kv = offsets_kv.back() + kSpareRows;
  } else if (!layout.lengths.empty()) {
    p.ragged.seqused_kv = add_words(lengths, "lengths", lengths_);
  }
  const bool by_rows = layout.packed_keys || (paged && layout.token_major);
  const std::int64_t stride_seq = by_rows ? shape.heads_kv * dim : dim;
  const std::int64_t stride_head = by_rows ? dim : page * dim;
  const std::int64_t stride_page = layout.packed_keys ? 0 : shape.heads_kv * page * dim;
  const auto place_of = [&](int b, int h, std::int64_t key) {
    if (layout.packed_keys) return (offsets_kv[size(b)] + key) * stride_seq + h * stride_head;
    const std::int64_t at = paged ? table[size(b * max_pages + key / page)] : b;
    return at * stride_page + h * stride_head + key % page * stride_seq;
  };
  const std::int64_t elements =
      layout.packed_keys ? p.ragged.total_kv * stride_seq : pages * stride_page;
  const auto pool = [&](const std::vector<std::uint8_t>& codes, const char* name) {
    std::vector<std::uint8_t> memory(size(elements), kNanCode);
    for (int b = 0; b < shape.batch; ++b) {
      for (int h = 0; h < shape.heads_kv; ++h) {
        for (std::int64_t key = 0; key < lengths[size(b)]; ++key) {
          const std::int64_t from = (std::int64_t{b} * shape.heads_kv + h) * shape.seq_kv + key;
          std::memcpy(&memory[size(place_of(b, h, key))], &codes[size(from * dim)], size(dim));
        }
      }
    }
    void* const data_of = add(memory.data(), memory.size(), name)->data();
    return Tensor{data_of, data.dtype, stride_page, stride_head, stride_seq, 1};
  };
  p.k = pool(data.k.codes, "k");
  p.v = pool(data.v.codes, "v");
}

std::size_t Cache::row_of(int sequence, int head, std::int64_t query) const {
  if (problem.ragged.cu_seqlens_q != nullptr) {
    return size((first_query_[size(sequence)] + query) * problem.heads_q + head);
  }
  return size((std::int64_t{sequence} * problem.heads_q + head) * problem.seq_q + query);
}
std::size_t Cache::lse_of(int sequence, int head, std::int64_t query) const {
  if (problem.ragged.cu_seqlens_q == nullptr) return row_of(sequence, head, query);
  return size(head * problem.ragged.total_q + first_query_[size(sequence)] + query);
}

void Cache::upload_table() { EXPECT_TRUE(table_->upload(table.data()).ok()); }

void Cache::upload_offsets() {
  if (offsets_q_ != nullptr) {
    EXPECT_TRUE(offsets_q_->upload(offsets_q.data()).ok());
  }
  if (offsets_kv_ != nullptr) {
    EXPECT_TRUE(offsets_kv_->upload(offsets_kv.data()).ok());
  }
}

void Cache::upload_lengths(const std::vector<std::int32_t>& lengths) {
  EXPECT_TRUE(lengths_->upload(lengths.data()).ok());
}

std::uint32_t Cache::fault() const {
  std::uint32_t word = 0;
  EXPECT_TRUE(fault_->download(&word).ok());
  return word;
}

void Cache::clear_fault() {
  const std::uint32_t zero = 0;
  EXPECT_TRUE(fault_->upload(&zero).ok());
}

Result<reference::RunOutput> Cache::run(const Variant& variant, const PlanOptions& options) {
  const Result<Plan> made = plan(problem, device_, &variant, options);
  if (!made.ok()) return made.status();
  const auto workspace = reference::Workspace::make(*made);
  if (!workspace.ok()) return workspace.status();
  return run([&] { return forward(*made, workspace->data(), nullptr); });
}

Result<reference::RunOutput> Cache::run(const Launch& launch) {
  for (reference::Buffer* output : {o_, lse_}) {
    if (output == nullptr) continue;
    if (Status s = output->poison(); !s.ok()) return s;
  }
  if (Status s = launch(); !s.ok()) return s;
  if (Status s = reference::synchronise(device_); !s.ok()) return s;
  reference::RunOutput output;
  if (problem.o.dtype == Dtype::kE4M3) {
    std::vector<std::uint8_t> codes(o_->size());
    if (Status s = o_->download(codes.data()); !s.ok()) return s;
    output.o = reference::bits_of_codes(codes, o_scale_);
  } else {
    output.o.resize(o_->size() / sizeof(std::uint16_t));
    if (Status s = o_->download(output.o.data()); !s.ok()) return s;
  }
  if (lse_ != nullptr) {
    output.lse.resize(lse_->size() / sizeof(float));
    if (Status s = lse_->download(output.lse.data()); !s.ok()) return s;
  }
  for (const auto& buffer : buffers_) {
    const auto changed = buffer->changed_guard_bytes();
    if (!changed.ok()) return changed.status();
    EXPECT_EQ(*changed, 0) << "bytes written beside " << buffer->name();
  }
  return output;
}

reference::RunOutput Cache::of_sequence(const reference::RunOutput& all, int sequence) const {
  reference::RunOutput part;
  const auto dim = static_cast<std::ptrdiff_t>(problem.head_dim);
  for (int head = 0; head < problem.heads_q; ++head) {
    for (std::int64_t i = 0; i < queries_[size(sequence)]; ++i) {
      const auto row = all.o.begin() + static_cast<std::ptrdiff_t>(row_of(sequence, head, i)) * dim;
      part.o.insert(part.o.end(), row, row + dim);
      if (!all.lse.empty()) part.lse.push_back(all.lse[lse_of(sequence, head, i)]);
    }
  }
  return part;
}

std::int64_t Cache::written_elsewhere(const reference::RunOutput& all) const {
  std::vector<bool> o(all.o.size(), true);
  std::vector<bool> lse(all.lse.size(), true);
  const auto dim = static_cast<std::ptrdiff_t>(problem.head_dim);
  for (int b = 0; b < problem.batch; ++b) {
    for (int head = 0; head < problem.heads_q; ++head) {
      for (std::int64_t i = 0; i < queries_[size(b)]; ++i) {
        std::fill_n(o.begin() + static_cast<std::ptrdiff_t>(row_of(b, head, i)) * dim, dim, false);
        if (!lse.empty()) lse[lse_of(b, head, i)] = false;
      }
    }
  }
  std::int64_t count = 0;
  for (std::size_t i = 0; i < o.size(); ++i) count += o[i] && all.o[i] != 0xFFFF ? 1 : 0;
  for (std::size_t i = 0; i < lse.size(); ++i) {
    count += lse[i] && __builtin_bit_cast(std::uint32_t, all.lse[i]) != 0xFFFFFFFF ? 1 : 0;
  }
  return count;
}

reference::CaseData sequence_of(const reference::CaseData& data, int b, std::int64_t queries,
                                std::int64_t keys) {
  reference::CaseData one = data;
  one.shape.batch = 1;
  one.shape.seq_q = queries;
  one.shape.seq_kv = keys;
  const auto take = [&](const reference::QuantisedTensor& from, reference::QuantisedTensor& to,
                        int heads, std::int64_t seq, std::int64_t taken) {
    const std::int64_t dim = data.shape.head_dim;
    to.codes.clear();
    to.descales.assign(from.descales.begin() + b * heads, from.descales.begin() + (b + 1) * heads);
    for (int h = 0; h < heads; ++h) {
      const auto first = from.codes.begin() + (std::int64_t{b} * heads + h) * seq * dim;
      to.codes.insert(to.codes.end(), first, first + taken * dim);
    }
  };
  take(data.q, one.q, data.shape.heads_q, data.shape.seq_q, queries);
  take(data.k, one.k, data.shape.heads_kv, data.shape.seq_kv, keys);
  take(data.v, one.v, data.shape.heads_kv, data.shape.seq_kv, keys);
  return one;
}

}  // namespace fp8_sdpa::tests
