// The safetensors file format: an 8-byte little-endian header length, a JSON header, then the
// tensors' bytes. Source: the format's description at
// https://github.com/huggingface/safetensors#format.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "fp8_sdpa/status.hpp"

namespace fp8_sdpa::reference {

/// A tensor in a file.
struct SafetensorsEntry {
  std::string name;
  std::string dtype;  ///< the format's name: "F32", "BF16", ...
  std::vector<std::uint64_t> shape;
  std::span<const std::uint8_t> bytes;  ///< row-major, little-endian; points into the file
};

/// Reads the header of a file in memory and checks everything in it: lengths, JSON, fields, and
/// that the tensors cover the data section exactly, without overlap or hole. kInvalidArgument, with
/// `path` and the field, otherwise. Never reads past `file`.
Result<std::vector<SafetensorsEntry>> parse_safetensors(std::span<const std::uint8_t> file,
                                                        const std::string& path);

/// A tensor to write.
struct SafetensorsTensor {
  std::string name;
  std::string dtype;
  std::vector<std::uint64_t> shape;
  std::vector<std::uint8_t> bytes;
};

/// The bytes of a file that holds these tensors, in this order.
std::vector<std::uint8_t> encode_safetensors(std::span<const SafetensorsTensor> tensors);

/// Writes a file whole: to a temporary name beside it, then renamed. kInvalidArgument, with the
/// path, where that fails.
Status write_safetensors(const std::string& path, std::span<const SafetensorsTensor> tensors);

/// Bytes of one element of a dtype of the format, or 0 for a name that is not known here.
std::uint64_t safetensors_element_size(const std::string& dtype);

/// A name as JSON writes it: quoted, control characters escaped. Keeps messages on one line.
std::string json_quoted(const std::string& text);

}  // namespace fp8_sdpa::reference
