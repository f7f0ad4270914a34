// Text for messages, and files of text.
#pragma once

#include <cstddef>
#include <string>
#include <string_view>

#include "fp8_sdpa/status.hpp"

namespace fp8_sdpa::reference {

/// Text for a one-line message: control characters escaped, cut after `limit` bytes.
std::string one_line(std::string_view text, std::size_t limit = std::string_view::npos);

/// A number as a message shows it: 6, 0.5, 1e+30.
std::string text_of(double value);

/// Whether `text` is [A-Za-z0-9_]+, as names of shapes, suites and variants are.
bool is_name(std::string_view text);

/// Reads a whole file of at most `max_bytes`. kInvalidArgument, with the reason and `expected`,
/// where that cannot be.
Result<std::string> read_text_file(const std::string& path, std::size_t max_bytes,
                                   const std::string& expected);

}  // namespace fp8_sdpa::reference
