// Text of numbers, for lines and tables.
#pragma once

#include <algorithm>
#include <array>
#include <cstdio>
#include <string>

namespace fp8_sdpa::bench {

/// std::snprintf as a string, cut after 511 bytes.
template <class... Values>
std::string format(const char* pattern, Values... values) {
  std::array<char, 512> text{};
  const int length = std::snprintf(text.data(), text.size(), pattern, values...);
  return {text.data(), std::min(static_cast<std::size_t>(std::max(length, 0)), text.size() - 1)};
}

/// "a, b, c" of anything that holds strings.
template <class Strings>
std::string join(const Strings& parts, const char* separator = ", ") {
  std::string out;
  for (const std::string& part : parts) out += (out.empty() ? "" : separator) + part;
  return out;
}

}  // namespace fp8_sdpa::bench
