#include "benchmarks/serving/cases.hpp"

#include <algorithm>
#include <cmath>
#include <numeric>
#include <random>

namespace fp8_sdpa::bench {
namespace {

std::vector<std::int32_t> all(int batch, std::int32_t keys) {
  return std::vector<std::int32_t>(static_cast<std::size_t>(batch), keys);
}

std::string size_of(std::int64_t keys) {
  constexpr int kThousand = 1024;
  return keys % kThousand == 0 ? std::to_string(keys / kThousand) + "k" : std::to_string(keys);
}

ServingCase equal(int batch, std::int32_t keys, int head_dim, int page_size, int seq_q = 1) {
  const std::string queries = seq_q > 1 ? "_q" + std::to_string(seq_q) : "";
  const std::string name = "d" + std::to_string(head_dim) + "_b" + std::to_string(batch) + "_" +
                           size_of(keys) + queries + "_page" + std::to_string(page_size);
  return {name, 64, 8, seq_q, head_dim, page_size, all(batch, keys)};
}

/// A prompt for each sequence, none of which has keys before.
ServingCase prefill(std::vector<std::int32_t> lengths) {
  ServingCase c{"", 32, 8, *std::ranges::max_element(lengths), 128, 0, std::move(lengths)};
  return c;
}

}  // namespace

std::int64_t ServingCase::most_keys() const { return *std::ranges::max_element(lengths); }

double ServingCase::bytes() const {
  const auto keys = std::accumulate(lengths.begin(), lengths.end(), std::int64_t{0});
  return 2.0 * static_cast<double>(keys) * heads_kv * head_dim;
}

double ServingCase::flop() const {
  double scores = 0.0;
  for (int b = 0; b < batch(); ++b) {
    const auto keys = static_cast<double>(lengths[static_cast<std::size_t>(b)]);
    const auto rows = static_cast<double>(queries_of(b));
    scores += rows * (keys - (rows - 1) / 2);
  }
  return 4.0 * scores * heads_q * head_dim;
}

std::vector<ServingCase> goal_cases(std::uint64_t seed) {
  std::vector<ServingCase> cases;
  for (const int page_size : {16, 64}) {
    for (const int keys : {2048, 8192, 32768}) cases.push_back(equal(128, keys, 128, page_size));
  }
  cases.push_back(equal(1, 131072, 128, 64));
  cases.push_back(equal(1, 2048, 128, 64));
  cases.push_back(equal(32, 8192, 128, 64));
  cases.push_back(equal(32, 8192, 128, 64, 8));
  // Rates over batch and length, with those above.
  for (const auto& [batch, lengths] : {std::pair<int, std::vector<int>>{1, {512, 8192, 32768}},
                                       {8, {512, 2048, 8192, 32768}},
                                       {32, {512, 2048, 32768}},
                                       {128, {512}}}) {
    for (const int keys : lengths) cases.push_back(equal(batch, keys, 128, 64));
  }
  cases.push_back(equal(64, 8192, 64, 64));
  cases.push_back(equal(64, 8192, 256, 64));
  std::mt19937_64 random(seed);
  ServingCase ragged = equal(128, 1, 128, 64);
  ragged.name = "d128_b128_100_to_16k_page64";
  ragged.ragged = true;
  for (auto& length : ragged.lengths) length = static_cast<std::int32_t>(100 + random() % 16285);
  ServingCase mean = ragged;
  mean.name = "d128_b128_mean_page64";
  mean.ragged = false;
  const auto sum = std::accumulate(ragged.lengths.begin(), ragged.lengths.end(), std::int64_t{0});
  mean.lengths = all(mean.batch(), static_cast<std::int32_t>(sum / mean.batch()));
  cases.push_back(std::move(ragged));
  cases.push_back(std::move(mean));
  // Prompts of 256 to 8k tokens, and equal ones of as much work.
  std::vector<std::int32_t> prompts(16);
  double squares = 0.0;
  for (auto& length : prompts) {
    length = static_cast<std::int32_t>(256 + random() % 7937);
    squares += static_cast<double>(length) * length;
  }
  ServingCase packed = prefill(prompts);
  packed.name = "d128_b16_prompts_of_256_to_8k";
  packed.queries = packed.lengths;
  ServingCase dense = prefill(all(16, static_cast<std::int32_t>(std::sqrt(squares / 16))));
  dense.name = "d128_b16_prompts_of_their_mean_work";
  cases.push_back(std::move(packed));
  cases.push_back(std::move(dense));
  return cases;
}

std::vector<ServingCase> drawn_cases(int count, std::uint64_t seed) {
  constexpr double kMostBytes = 8e9;
  std::mt19937_64 random(seed);
  const auto one_of = [&](std::initializer_list<int> values) {
    return values.begin()[random() % values.size()];
  };
  std::vector<ServingCase> cases;
  while (static_cast<int>(cases.size()) < count) {
    ServingCase c{"drawn_" + std::to_string(cases.size()),
                  0,
                  one_of({1, 2, 4, 8, 16}),
                  1,
                  one_of({64, 128, 128, 256}),
                  one_of({0, 16, 64, 64, 128}),
                  {}};
    const int group = one_of({1, 2, 4, 5, 8, 16});
    c.heads_q = c.heads_kv * group;
    c.seq_q = one_of({1, 1, 1, 2, 4, 8});
    while (c.seq_q * group > 64) c.seq_q /= 2;
    // Uniform in the logarithm, from 200 to 100k keys.
    const auto keys =
        static_cast<std::int32_t>(200 * std::exp2(static_cast<double>(random() % 1000) / 1000 * 9));
    c.lengths = all(1 + static_cast<int>(random() % 128), keys);
    c.ragged = random() % 3 == 0;
    if (c.ragged) {
      for (auto& length : c.lengths) length = 1 + static_cast<std::int32_t>(random() % keys);
    }
    if (c.bytes() <= kMostBytes) cases.push_back(std::move(c));
  }
  return cases;
}

}  // namespace fp8_sdpa::bench
