// Runs another program and keeps what it says.
#pragma once

#include <string>
#include <vector>

#include "fp8_sdpa/status.hpp"

namespace fp8_sdpa::bench {

struct ProcessResult {
  int exit_code = 0;   ///< 128 + the signal, where one ended it
  std::string output;  ///< stdout; stderr too where that was asked
};

/// What becomes of a program's stderr.
enum class Stderr { kKeep, kDrop };

/// Runs `arguments` (the program's path first), waits, and returns. kUnsupported where it cannot be
/// started.
Result<ProcessResult> run_process(const std::vector<std::string>& arguments, Stderr errors);

/// The path of a program: `name` itself if it has a slash, else where PATH finds it. Empty if it is
/// not there or cannot be executed.
std::string find_program(const std::string& name);

}  // namespace fp8_sdpa::bench
