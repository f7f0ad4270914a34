#include "benchmarks/peers/peer.hpp"

#include <array>
#include <cstdint>
#include <cstring>
#include <iterator>
#include <utility>

#include "reference/formats/fp8.hpp"
#include "reference/formats/half.hpp"
#include "reference/formats/parallel.hpp"

namespace fp8_sdpa::bench {
namespace {

std::array<PeerSource, 2> sources() { return {cudnn_source(), flash3_source()}; }

}  // namespace

const std::vector<Peer>& peers() {
  static const std::vector<Peer> all = [] {
    std::vector<Peer> made;
    for (const PeerSource& source : sources()) {
      if (!source.missing().empty()) continue;
      made.insert(made.end(), source.peers.begin(), source.peers.end());
    }
    return made;
  }();
  return all;
}

std::vector<std::string> missing_peers() {
  std::vector<std::string> lines;
  for (const PeerSource& source : sources()) {
    if (std::string line = source.missing(); !line.empty()) lines.push_back(std::move(line));
  }
  return lines;
}

void release_peer_plans() {
  for (const PeerSource& source : sources()) source.release_plans();
}

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
