#include "tests/gates/serving/cache.hpp"

#include <algorithm>
#include <cstring>
#include <limits>
#include <numeric>
#include <random>

namespace fp8_sdpa::tests {
namespace {

constexpr std::uint8_t kNanCode = 0xFF;

std::size_t size(std::int64_t value) { return static_cast<std::size_t>(value); }

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

std::unique_ptr<Cache> Cache::make(const reference::CaseData& data, const Device& device,
                                   const CacheLayout& layout) {
  const reference::Shape& shape = data.shape;
  const std::int64_t dim = shape.head_dim;
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
  const auto whole = [&](int heads, std::int64_t seq, Dtype dtype, reference::Buffer* buffer) {
    return Tensor{buffer->data(), dtype, heads * seq * dim, seq * dim, dim, 1};
  };
  const auto length_of = [&](int b) {
    return layout.lengths.empty() ? shape.seq_kv : std::int64_t{layout.lengths[size(b)]};
  };
  p.q = whole(shape.heads_q, shape.seq_q, data.dtype,
              cache->add(data.q.codes.data(), data.q.codes.size(), "q"));

  std::mt19937_64 random(layout.seed);
  const bool paged = layout.page_size > 0;
  const std::int64_t page = paged ? layout.page_size : shape.seq_kv;
  const int max_pages = static_cast<int>((shape.seq_kv + page - 1) / page);
  const int pages = paged ? shape.batch * max_pages + 3 : shape.batch;
  if (paged) {
    std::vector<std::int32_t> order(size(pages));
    std::iota(order.begin(), order.end(), 0);
    std::shuffle(order.begin(), order.end(), random);
    cache->table.assign(size(shape.batch) * size(max_pages), 0);
    for (int b = 0; b < shape.batch; ++b) {
      for (int i = 0; i < max_pages; ++i) {
        std::int32_t& entry = cache->table[size(b * max_pages + i)];
        entry = order[size(b * max_pages + i)];
        if (layout.share_first_page && i == 0) entry = order[0];
        if (i * page >= length_of(b))
          entry = i % 2 == 0 ? -1 : std::numeric_limits<std::int32_t>::max();
      }
    }
  }
  const std::int64_t stride_seq = paged && layout.token_major ? shape.heads_kv * dim : dim;
  const std::int64_t stride_head = paged && layout.token_major ? dim : page * dim;
  const std::int64_t stride_page = shape.heads_kv * page * dim;
  const auto pool = [&](const std::vector<std::uint8_t>& codes, const char* name) {
    std::vector<std::uint8_t> memory(size(pages * stride_page), kNanCode);
    for (int b = 0; b < shape.batch; ++b) {
      for (int h = 0; h < shape.heads_kv; ++h) {
        for (std::int64_t key = 0; key < length_of(b); ++key) {
          const std::int64_t at = paged ? cache->table[size(b * max_pages + key / page)] : b;
          std::memcpy(
              &memory[size(at * stride_page + h * stride_head + key % page * stride_seq)],
              &codes[size(((std::int64_t{b} * shape.heads_kv + h) * shape.seq_kv + key) * dim)],
              size(dim));
        }
      }
    }
    return Tensor{cache->add(memory.data(), memory.size(), name)->data(),
                  data.dtype,
                  stride_page,
                  stride_head,
                  stride_seq,
                  1};
  };
  p.k = pool(data.k.codes, "k");
  p.v = pool(data.v.codes, "v");
  const auto scales = [&](const std::vector<float>& values, const char* name) {
    return static_cast<const float*>(
        cache->add(values.data(), values.size() * sizeof(float), name)->data());
  };
  p.descales = {scales(data.q.descales, "descales.q"), scales(data.k.descales, "descales.k"),
                scales(data.v.descales, "descales.v")};
  const std::size_t rows = size(shape.batch) * size(shape.heads_q) * size(shape.seq_q);
  cache->o_ = cache->add(nullptr, rows * size(dim) * 2, "o");
  p.o = whole(shape.heads_q, shape.seq_q, layout.output, cache->o_);
  if (layout.lse) {
    cache->lse_ = cache->add(nullptr, rows * sizeof(float), "lse");
    p.lse = static_cast<float*>(cache->lse_->data());
  }
  cache->fault_ = cache->add(nullptr, sizeof(std::uint32_t), "fault");
  p.fault = static_cast<std::uint32_t*>(cache->fault_->data());
  cache->clear_fault();
  if (!layout.lengths.empty()) {
    cache->lengths_ = cache->add(layout.lengths.data(), layout.lengths.size() * 4, "lengths");
    p.ragged.seqused_kv = static_cast<const std::int32_t*>(cache->lengths_->data());
  }
  if (paged) {
    cache->table_ = cache->add(cache->table.data(), cache->table.size() * 4, "table");
    p.pages = {static_cast<const std::int32_t*>(cache->table_->data()), pages, layout.page_size,
               max_pages};
  }
  return cache;
}

void Cache::upload_table() { EXPECT_TRUE(table_->upload(table.data()).ok()); }

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
  output.o.resize(o_->size() / 2);
  if (Status s = o_->download(output.o.data()); !s.ok()) return s;
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
  const auto part = [&](const auto& values) {
    const auto each = static_cast<std::ptrdiff_t>(values.size()) / problem.batch;
    return std::decay_t<decltype(values)>(values.begin() + each * sequence,
                                          values.begin() + each * (sequence + 1));
  };
  return {part(all.o), part(all.lse)};
}

reference::CaseData sequence_of(const reference::CaseData& data, int b, std::int64_t keys) {
  reference::CaseData one = data;
  one.shape.batch = 1;
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
  take(data.q, one.q, data.shape.heads_q, data.shape.seq_q, data.shape.seq_q);
  take(data.k, one.k, data.shape.heads_kv, data.shape.seq_kv, keys);
  take(data.v, one.v, data.shape.heads_kv, data.shape.seq_kv, keys);
  return one;
}

}  // namespace fp8_sdpa::tests
