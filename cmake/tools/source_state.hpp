// The state of the sources that kernels and tools are compiled from, as a short text.
#pragma once

#include <filesystem>
#include <string>

namespace fp8_sdpa::build {

/// 16 hexadecimal digits of the names and contents of what is compiled: C++, CUDA, tables and CMake
/// files of benchmarks/, cmake/, kernels/ and reference/ below `root`. Empty where there are none.
std::string source_state(const std::filesystem::path& root);

}  // namespace fp8_sdpa::build
