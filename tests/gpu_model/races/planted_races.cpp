// Runs one planted bug, for a sanitizer to find.
//
//   planted_races --list address|thread   the bugs which that sanitizer finds, a name a line
//   planted_races NAME                    runs it; exit code 0 if nothing ended the program before
#include <cstdio>
#include <string>

#include "tests/gpu_model/planted/planted_catalogue.hpp"

namespace {

int list(const std::string& sanitizer) {
  for (const auto& planted : planted::catalogue()) {
    const bool finds =
        sanitizer == "address" ? planted.address_sanitizer : planted.thread_sanitizer;
    if (finds) std::printf("%s\n", std::string(planted.name).c_str());
  }
  return 0;
}

int run(const std::string& name) {
  constexpr int kUsage = 2;
  for (const auto& planted : planted::catalogue()) {
    if (planted.name != name) continue;
    // Late copies in round robin: the order that gives the numbers the best chance to be right.
    const bool passes = planted.passes({.os_threads = 1});
    std::printf("%s: %s\n", name.c_str(), passes ? "right numbers" : "wrong numbers or an error");
    return 0;
  }
  std::fprintf(stderr, "planted_races: no planted bug \"%s\"; see --list\n", name.c_str());
  return kUsage;
}

}  // namespace

int main(int argc, char** argv) {
  const std::string first = argc > 1 ? argv[1] : "";
  if (argc == 3 && first == "--list") return list(argv[2]);
  if (argc == 2) return run(first);
  std::fprintf(stderr, "usage: planted_races NAME | --list address|thread\n");
  return 2;
}
