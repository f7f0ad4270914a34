// A reader of files that people, or other programs, wrote: what it must survive is any bytes at
// all.
#pragma once

#include <cstddef>
#include <cstdint>

/// The entry point of libFuzzer, defined once by each target; also called by replay_main.cpp.
extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size);

namespace fp8_sdpa::fuzz {

/// Stops the process where a reader broke its promise, so that the fuzzer keeps the input.
inline void expect(bool kept) {
  if (!kept) __builtin_trap();
}

}  // namespace fp8_sdpa::fuzz
