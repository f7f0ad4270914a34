#include <cstdint>
#include <cstring>
#include <iterator>

#include "benchmarks/peers/peer.hpp"
#include "reference/formats/fp8.hpp"
#include "reference/formats/half.hpp"
#include "reference/formats/parallel.hpp"

namespace fp8_sdpa::bench {

std::vector<float> decode_output(const std::vector<std::uint16_t>& bits, Dtype format,
                                 double scale) {
  std::vector<float> values(bits.size());
  if (size_of(format) == 2) {
    reference::parallel_chunks(std::ssize(bits), [&](std::int64_t first, std::int64_t last) {
      for (auto i = static_cast<std::size_t>(first); i < static_cast<std::size_t>(last); ++i) {
        values[i] = static_cast<float>(reference::decode_16(bits[i], format) * scale);
      }
    });
    return values;
  }
  std::vector<std::uint8_t> codes(bits.size());
  std::memcpy(codes.data(), bits.data(), codes.size());
  const auto& table = reference::decode_table(format);
  reference::parallel_chunks(std::ssize(bits), [&](std::int64_t first, std::int64_t last) {
    for (auto i = static_cast<std::size_t>(first); i < static_cast<std::size_t>(last); ++i) {
      values[i] = static_cast<float>(table[codes[i]] * scale);
    }
  });
  return values;
}

}  // namespace fp8_sdpa::bench
