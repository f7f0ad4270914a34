// source_state ROOT: prints the state of the sources below it.
#include <cstdio>

#include "cmake/tools/source_state.hpp"

int main(int argc, char** argv) {
  const std::string state = argc == 2 ? fp8_sdpa::build::source_state(argv[1]) : "";
  if (state.empty()) {
    std::fprintf(stderr, "usage: source_state ROOT, a folder of this project's sources\n");
    return 2;
  }
  std::printf("%s\n", state.c_str());
  return 0;
}
