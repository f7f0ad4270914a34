#include "reference/formats/text.hpp"

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstdio>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <system_error>

namespace fp8_sdpa::reference {

std::string one_line(std::string_view text, std::size_t limit) {
  constexpr std::string_view kHex = "0123456789abcdef";
  constexpr unsigned char kFirstPrintable = 0x20;
  constexpr unsigned char kDelete = 0x7F;
  std::string out;
  for (const char c : text) {
    if (out.size() >= limit) return out + "...";
    const auto byte = static_cast<unsigned char>(c);
    if (byte < kFirstPrintable || byte == kDelete) {
      out += {'\\', 'x', kHex[byte >> 4], kHex[byte & 0xF]};
    } else {
      out += c;
    }
  }
  return out;
}

std::string text_of(double value) {
  std::array<char, 32> buffer{};
  std::snprintf(buffer.data(), buffer.size(), "%.12g", value);
  return buffer.data();
}

bool is_name(std::string_view text) {
  return !text.empty() && std::all_of(text.begin(), text.end(), [](char c) {
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '_';
  });
}

Result<std::string> read_text_file(const std::string& path, std::size_t max_bytes,
                                   const std::string& expected) {
  const auto unreadable = [&](const std::string& why) {
    return invalid_argument(one_line(path) + ": " + why + ", expected " + expected);
  };
  // Opening one waits for somebody who writes into it.
  std::error_code ignored;
  if (std::filesystem::is_fifo(path, ignored)) return unreadable("a pipe");
  errno = 0;
  std::ifstream file(path, std::ios::binary);
  if (!file) return unreadable(std::strerror(errno == 0 ? EIO : errno));
  // In pieces: the limit may be far above what there is, and /dev/zero has no size to ask for.
  constexpr std::size_t kPiece = std::size_t{1} << 16;
  std::string text;
  std::string piece(kPiece, '\0');
  while (file && text.size() <= max_bytes) {
    errno = 0;
    file.read(piece.data(), static_cast<std::streamsize>(piece.size()));
    text.append(piece, 0, static_cast<std::size_t>(file.gcount()));
  }
  // Reading a directory opens well and fails here.
  if (file.bad() || (text.empty() && errno != 0)) {
    return unreadable(std::strerror(errno == 0 ? EIO : errno));
  }
  if (text.size() > max_bytes) {
    return unreadable("larger than " + std::to_string(max_bytes) + " bytes");
  }
  return text;
}

}  // namespace fp8_sdpa::reference
