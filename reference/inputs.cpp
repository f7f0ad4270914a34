#include "reference/inputs.hpp"

#include <array>
#include <cstddef>
#include <string>

#include "reference/distributions.hpp"
#include "reference/philox.hpp"

namespace fp8_sdpa::reference {
namespace {

/// out[i] = transform(word i of the operand's stream).
template <class Transform>
void fill(std::span<float> out, std::uint64_t seed, Operand operand, const Transform& transform) {
  const PhiloxStream stream(seed, static_cast<std::uint32_t>(operand));
  PhiloxCounter words{};
  for (std::size_t i = 0; i < out.size(); ++i) {
    const std::size_t lane = i % PhiloxStream::kWordsPerBlock;
    if (lane == 0) words = stream.block(i / PhiloxStream::kWordsPerBlock);
    out[i] = transform(words[lane]);
  }
}

void draw_uniform(const InputSpec& spec, std::uint64_t seed, Operand operand,
                  std::span<float> out) {
  fill(out, seed, operand,
       [&](std::uint32_t word) { return uniform_from_word(word, spec.low, spec.high); });
}

void draw_normal(const InputSpec& spec, std::uint64_t seed, Operand operand, std::span<float> out) {
  fill(out, seed, operand,
       [&](std::uint32_t word) { return normal_from_word(word, spec.mean, spec.stddev); });
}

constexpr std::array kFamilies = {
    InputFamily{"uniform", "uniform in [low, high)", draw_uniform},
    InputFamily{"normal", "normal with mean and stddev", draw_normal},
};

}  // namespace

std::span<const InputFamily> input_families() {
  return kFamilies;
}

const InputFamily* find_input_family(std::string_view name) {
  for (const InputFamily& family : kFamilies) {
    if (family.name == name) return &family;
  }
  return nullptr;
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
  family->draw(shape.inputs, seed, Operand::kQ, inputs.q);
  family->draw(shape.inputs, seed, Operand::kK, inputs.k);
  family->draw(shape.inputs, seed, Operand::kV, inputs.v);
  return inputs;
}

}  // namespace fp8_sdpa::reference
