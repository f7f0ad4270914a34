#include "benchmarks/files/qkv_source.hpp"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <nlohmann/json.hpp>
#include <utility>

#include "benchmarks/command/text.hpp"
#include "reference/formats/safetensors.hpp"
#include "reference/formats/text.hpp"

namespace fp8_sdpa::bench {

QkvSource describe(const reference::Qkv& tensors, const std::string& file,
                   const std::string& layout, const reference::QuantisingWay& way) {
  QkvSource source;
  source.file = file;
  source.layout = layout;
  source.sizes = tensors.sizes;
  source.head_dim = tensors.original_head_dim;
  source.softmax_scale = tensors.softmax_scale;
  source.way = way;
  reference::Inputs of_codes;
  if (tensors.codes) {
    source.has_codes = true;
    source.dtype = tensors.codes->q.dtype;
    source.way.blocks = tensors.codes->q.per_block > 0;
    of_codes = {dequantise(tensors.codes->q), dequantise(tensors.codes->k),
                dequantise(tensors.codes->v)};
  }
  const auto& [q, k, v] = tensors.codes ? of_codes : tensors.inputs;
  for (std::size_t i = 0; const auto* values : {&q, &k, &v}) {
    source.nan[i] =
        std::count_if(values->begin(), values->end(), [](float x) { return std::isnan(x); });
    source.infinite[i] =
        std::count_if(values->begin(), values->end(), [](float x) { return std::isinf(x); });
    ++i;
  }
  return source;
}

namespace {

/// The options of Quantisation that are on, as results have them.
std::vector<std::string> options_of(const reference::QuantisingWay& way) {
  std::vector<std::string> options;
  if (way.rotate) options.emplace_back("rotate");
  if (way.smooth) options.emplace_back("smooth");
  if (way.blocks) options.emplace_back("blocks");
  return options;
}

}  // namespace

std::string lines_of(const QkvSource& source) {
  const reference::AttentionSizes& s = source.sizes;
  std::string text =
      "tensors: " + reference::one_line(source.file) + " (" + source.layout + ")" +
      format(": B=%d H=%d H_kv=%d S=%lld S_kv=%lld D=%d", s.batch, s.heads_q, s.heads_kv,
             static_cast<long long>(s.seq_q), static_cast<long long>(s.seq_kv), source.head_dim);
  if (s.head_dim != source.head_dim) text += format(" padded to %d", s.head_dim);
  if (source.has_codes) text += std::string(", ") + name_of(source.dtype) + " codes";
  if (const auto options = options_of(source.way); !options.empty()) {
    text += (source.has_codes ? ", descales of " : ", quantised with ") + join(options, ", ");
  }
  text += format(", softmax scale %.6g, %s mask", static_cast<double>(source.softmax_scale),
                 s.mask == Mask::kCausal ? "causal" : "no");
  const auto counts = [](const std::array<std::int64_t, 3>& of) {
    return format("%lld in Q, %lld in K, %lld in V", static_cast<long long>(of[0]),
                  static_cast<long long>(of[1]), static_cast<long long>(of[2]));
  };
  constexpr std::array<std::int64_t, 3> kNone{};
  if (source.nan != kNone)
    text += "\nnote: NaN: " + counts(source.nan) + "; O must have NaN where they reach";
  if (source.infinite != kNone) {
    text += "\nnote: infinities: " + counts(source.infinite) +
            (source.has_codes ? "; O must have NaN or infinities where they reach"
                              : "; each is taken for the largest finite code");
  }
  return text;
}

nlohmann::json to_json(const QkvSource& source) {
  return {{"file", source.file},
          {"layout", source.layout},
          {"head_dim", source.head_dim},
          {"softmax_scale", source.softmax_scale},
          {"nan", source.nan},
          {"infinite", source.infinite},
          {"options", options_of(source.way)}};
}

Status write_output(const QkvSource& source, const std::vector<std::uint16_t>& output,
                    const std::vector<float>& lse, const std::string& path) {
  const reference::AttentionSizes& s = source.sizes;
  const auto heads = static_cast<std::size_t>(s.heads_q);
  const auto seq = static_cast<std::size_t>(s.seq_q);
  const auto rows = static_cast<std::size_t>(s.batch) * heads * seq;
  const std::size_t row_bytes = static_cast<std::size_t>(source.head_dim) * sizeof(std::uint16_t);
  const bool head_major = source.layout == "bhsd";
  reference::SafetensorsTensor o{"o", "F16", {rows / heads / seq, heads, seq, row_bytes / 2}, {}};
  if (!head_major) std::swap(o.shape[1], o.shape[2]);
  o.bytes.resize(rows * row_bytes);
  for (std::size_t row = 0; row < rows; ++row) {
    const std::size_t batch = row / seq / heads, head = row / seq % heads;
    const std::size_t to = head_major ? row : (batch * seq + row % seq) * heads + head;
    std::memcpy(o.bytes.data() + to * row_bytes,
                output.data() + row * static_cast<std::size_t>(s.head_dim), row_bytes);
  }
  std::vector<reference::SafetensorsTensor> tensors = {std::move(o)};
  if (!lse.empty()) {
    tensors.push_back({"lse", "F32", {rows / heads / seq, heads, seq}, {}});
    tensors.back().bytes.resize(lse.size() * sizeof(float));
    std::memcpy(tensors.back().bytes.data(), lse.data(), tensors.back().bytes.size());
  }
  return reference::write_safetensors(path, tensors);
}

}  // namespace fp8_sdpa::bench
