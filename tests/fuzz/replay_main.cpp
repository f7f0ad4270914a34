// Runs a fuzz target without libFuzzer: over the committed corpus, then over seeded mutations of
// it. It covers less than a coverage-guided fuzzer, but needs no other compiler.
//   fuzz_<target>_replay CORPUS MUTATIONS
#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <random>
#include <vector>

#include "tests/fuzz/target.hpp"

namespace {

using Bytes = std::vector<std::uint8_t>;

/// One to eight edits: bits, bytes, cuts, repeated and swapped pieces.
Bytes mutated(Bytes bytes, const Bytes& other, std::mt19937_64& random) {
  const auto below = [&](std::size_t n) {
    return static_cast<std::ptrdiff_t>(n == 0 ? 0 : random() % n);
  };
  constexpr std::size_t kMostEdits = 8;
  constexpr std::size_t kMostBytes = 64;
  for (std::ptrdiff_t edits = 1 + below(kMostEdits); edits > 0; --edits) {
    const auto at = bytes.begin() + below(bytes.size());
    switch (below(6)) {
      case 0:
        if (!bytes.empty()) *at ^= static_cast<std::uint8_t>(1U << below(8));
        break;
      case 1:
        if (!bytes.empty()) *at = static_cast<std::uint8_t>(random());
        break;
      case 2: bytes.erase(at, std::min(at + below(kMostBytes), bytes.end())); break;
      case 3: bytes.insert(at, static_cast<std::uint8_t>(random())); break;
      case 4: {
        const auto from = other.begin() + below(other.size());
        const auto count = std::min<std::ptrdiff_t>(below(kMostBytes), other.end() - from);
        bytes.insert(at, from, from + count);
        break;
      }
      default: {
        static constexpr char kDigits[] = "-0123456789.eE\"{}[]:,";
        if (!bytes.empty()) *at = static_cast<std::uint8_t>(kDigits[below(sizeof kDigits - 1)]);
      }
    }
  }
  return bytes;
}

}  // namespace

int main(int argc, char** argv) {
  constexpr int kArguments = 3;
  constexpr int kBadUsage = 2;
  if (argc != kArguments) {
    std::fprintf(stderr, "usage: %s CORPUS MUTATIONS\n", argv[0]);
    return kBadUsage;
  }
  std::vector<std::filesystem::path> files;
  for (const auto& entry : std::filesystem::directory_iterator(argv[1])) {
    files.push_back(entry.path());
  }
  std::sort(files.begin(), files.end());
  std::vector<Bytes> corpus;
  for (const auto& file : files) {
    std::ifstream stream(file, std::ios::binary);
    corpus.emplace_back(std::istreambuf_iterator<char>(stream), std::istreambuf_iterator<char>());
    LLVMFuzzerTestOneInput(corpus.back().data(), corpus.back().size());
  }
  if (corpus.empty()) {
    std::fprintf(stderr, "%s: no input there\n", argv[1]);
    return kBadUsage;
  }
  std::mt19937_64 random(1);
  const long mutations = std::atol(argv[2]);
  for (long i = 0; i < mutations; ++i) {
    const Bytes input =
        mutated(corpus[random() % corpus.size()], corpus[random() % corpus.size()], random);
    LLVMFuzzerTestOneInput(input.data(), input.size());
  }
  std::printf("%zu inputs of the corpus and %ld mutations of them\n", corpus.size(), mutations);
  return 0;
}
