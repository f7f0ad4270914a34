// Real Q, K and V from a safetensors file.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>

#include "fp8_sdpa/status.hpp"
#include "reference/formats/quantise.hpp"
#include "reference/inputs/inputs.hpp"
#include "reference/inputs/shape.hpp"

namespace fp8_sdpa::reference {

/// How the dimensions of a tensor in the file follow each other.
enum class QkvLayout : std::uint8_t {
  kHeadMajor,      ///< (batch, heads, seq, head_dim)
  kSequenceMajor,  ///< (batch, seq, heads, head_dim)
};

struct QkvOptions {
  QkvLayout layout = QkvLayout::kHeadMajor;
  std::string q = "q";  ///< the tensors' names; "q_descale" is that of the descales of codes
  std::string k = "k";
  std::string v = "v";
  bool ignore_case = false;  ///< "Q" will do for "q", if only one tensor matches
};

struct QkvCodes {
  QuantisedTensor q, k, v;
};

/// Q, K and V as the harness wants them.
struct Qkv {
  AttentionSizes sizes;           ///< head_dim after padding; no mask
  int original_head_dim = 0;      ///< as in the file
  float softmax_scale = 0.0F;     ///< 1 / sqrt(original_head_dim)
  Inputs inputs;                  ///< (batch, heads, seq, head_dim), whatever the file's layout
  std::optional<QkvCodes> codes;  ///< where the tensors are FP8: `inputs` are empty then
};

/// Reads F32, F16 or BF16 tensors, or FP8 codes: all F8_E4M3 or all F8_E5M2, with descales, F32, in
/// tensors of one element, of (batch, heads), or of blocks of rows, (batch, heads, blocks) as
/// Granularity::kBlock has them, 1 where they are missing; where one tensor's are of blocks, those
/// of the others are repeated. A head_dim up to 256 is padded with zeros to the next of 64, 128 and
/// 256, which changes neither scores nor the first columns of O. kInvalidArgument, naming the file
/// and the field, for whatever is wrong; kOutOfMemory where it does not fit.
Result<Qkv> load_qkv(const std::string& path, const QkvOptions& options = {});

/// The same from a file's bytes; `path` is only used in messages.
Result<Qkv> parse_qkv(std::span<const std::uint8_t> file, const std::string& path,
                      const QkvOptions& options = {});

}  // namespace fp8_sdpa::reference
