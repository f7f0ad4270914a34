#include "reference/inputs/inputs.hpp"

#include <array>
#include <cstddef>
#include <string>

#include "reference/inputs/families.hpp"

namespace fp8_sdpa::reference {
namespace {

constexpr std::array kFamilies = {
    InputFamily{"uniform", "uniform in [low, high)", draw_uniform, true},
    InputFamily{"normal", "normal with mean and stddev", draw_normal, true},
    InputFamily{"outliers", "N(0,1) + N(0,100) Bernoulli(0.001)", draw_outliers},
    InputFamily{"peaked", "scores of deviation 8: few keys have weight", draw_peaked},
    InputFamily{"needle", "one key has nearly all weight", draw_needle},
    InputFamily{"sink", "the first key has most weight and no value", draw_sink},
    InputFamily{"k_bias", "keys with a large common vector", draw_k_bias},
    InputFamily{"v_bias", "values of one sign", draw_v_bias},
    InputFamily{"edges", "the largest codes, subnormals and zeros", draw_edges},
    InputFamily{"constant_v", "every value is 1", draw_constant_v},
    InputFamily{"one_hot", "each query is one key: P is one 1", draw_one_hot},
    InputFamily{"zero_k", "every weight is 1, sums are exact", draw_zero_k},
    InputFamily{"long_tail", "one key has weight 1, the others e^-9", draw_long_tail},
};

}  // namespace

std::span<const InputFamily> input_families() { return kFamilies; }

const InputFamily* find_input_family(std::string_view name) {
  for (const InputFamily& family : kFamilies) {
    if (family.name == name) return &family;
  }
  return nullptr;
}

bool same_inputs(const Shape& a, const Shape& b) {
  Shape renamed = a;
  renamed.name = b.name;
  renamed.mask = b.mask;
  renamed.suites = b.suites;
  return renamed == b;
}

Result<Inputs> draw_inputs(const Shape& shape, std::uint64_t seed) {
  const InputFamily* family = find_input_family(shape.inputs.family);
  if (family == nullptr) {
    std::string known;
    for (const InputFamily& each : kFamilies) {
      known += (known.empty() ? "" : ", ") + std::string(each.name);
    }
    return invalid_argument("shape \"" + shape.name + "\": unknown input family \"" +
                            shape.inputs.family + "\"; known: " + known);
  }
  const auto elements = [&](int heads, std::int64_t seq) {
    return static_cast<std::size_t>(shape.batch) * static_cast<std::size_t>(heads) *
           static_cast<std::size_t>(seq) * static_cast<std::size_t>(shape.head_dim);
  };
  Inputs inputs;
  inputs.q.resize(elements(shape.heads_q, shape.seq_q));
  inputs.k.resize(elements(shape.heads_kv, shape.seq_kv));
  inputs.v.resize(elements(shape.heads_kv, shape.seq_kv));
  family->draw({shape, seed, Operand::kQ, inputs.q});
  family->draw({shape, seed, Operand::kK, inputs.k});
  family->draw({shape, seed, Operand::kV, inputs.v});
  return inputs;
}

}  // namespace fp8_sdpa::reference
