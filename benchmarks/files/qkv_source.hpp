// What a run says of tensors that came from a file.
#pragma once

#include <array>
#include <cstdint>
#include <nlohmann/json_fwd.hpp>
#include <string>
#include <vector>

#include "fp8_sdpa/status.hpp"
#include "reference/inputs/qkv.hpp"

namespace fp8_sdpa::bench {

/// A file of Q, K and V, and what is in it.
struct QkvSource {
  std::string file;
  std::string layout;               ///< of its tensors: "bhsd" or "bshd"
  reference::AttentionSizes sizes;  ///< as judged
  int head_dim = 0;                 ///< as in the file; sizes.head_dim where it was padded
  float softmax_scale = 0.0F;
  Dtype dtype = Dtype::kE4M3;              ///< of the codes that are judged
  bool has_codes = false;                  ///< the file has them
  reference::QuantisingWay way;            ///< how they were made here; of codes `blocks` alone
  std::array<std::int64_t, 3> nan{};       ///< elements of Q, K and V
  std::array<std::int64_t, 3> infinite{};  ///< likewise; each is judged as the largest finite code
};

QkvSource describe(const reference::Qkv& tensors, const std::string& file,
                   const std::string& layout, const reference::QuantisingWay& way = {});

/// One line for people, and one more where something is not finite.
std::string lines_of(const QkvSource& source);

/// As correctness_summary.json has it.
nlohmann::json to_json(const QkvSource& source);

/// Writes O, half bits of (batch, heads, seq, padded head_dim), as the tensor "o" of a safetensors
/// file: F16, in the layout and with the head_dim of the source. An LSE that is not empty beside
/// it, "lse": F32, (batch, heads, seq).
Status write_output(const QkvSource& source, const std::vector<std::uint16_t>& output,
                    const std::vector<float>& lse, const std::string& path);

}  // namespace fp8_sdpa::bench
