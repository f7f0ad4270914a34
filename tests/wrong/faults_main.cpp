// Writes the wrong kernels of a catalogue as translation units.
//   make_faults CATALOGUE KERNELS FOLDER SHARDS JUDGE
#include <cstdio>
#include <cstdlib>
#include <exception>

#include "tests/wrong/faults.hpp"

int main(int argc, char** argv) {
  constexpr int kArguments = 6;
  constexpr int kBadUsage = 2;
  if (argc != kArguments) {
    std::fprintf(stderr, "usage: make_faults CATALOGUE KERNELS FOLDER SHARDS JUDGE\n");
    return kBadUsage;
  }
  try {
    const auto catalogue = fp8_sdpa::wrong::read_catalogue(argv[1], argv[2]);
    fp8_sdpa::wrong::write_translation_units(catalogue, argv[2], argv[3], std::atoi(argv[4]),
                                             fp8_sdpa::wrong::judge_of(argv[5]));
    return 0;
  } catch (const std::exception& problem) {
    std::fprintf(stderr, "%s: %s\n", argv[1], problem.what());
    return kBadUsage;
  }
}
