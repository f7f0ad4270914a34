// Starts other programs: the one place that does.
#pragma once

#include <sys/types.h>

#include <string>
#include <vector>

#include "fp8_sdpa/status.hpp"

namespace fp8_sdpa::bench {

/// What a program reads, and what becomes of its stderr: it goes with stdout, nowhere, or to ours.
enum class Stdin { kOurs, kPipe };
enum class Stderr { kKeep, kDrop, kOurs };

/// A program that was started; whoever has this closes its descriptors and waits for it.
struct Child {
  pid_t process = -1;
  int input = -1;   ///< its stdin's other end, where that is a pipe
  int output = -1;  ///< its stdout's other end
};

/// Starts `arguments` (the program's path first). kUnsupported where that cannot be.
Result<Child> spawn(const std::vector<std::string>& arguments, Stdin input, Stderr errors);

struct ProcessResult {
  int exit_code = 0;   ///< 128 + the signal, where one ended it
  std::string output;  ///< stdout; stderr too where that was asked
};

/// Starts `arguments`, waits, and returns.
Result<ProcessResult> run_process(const std::vector<std::string>& arguments, Stderr errors);

/// The path of a program: `name` itself if it has a slash, else where PATH finds it. Empty if it is
/// not there or cannot be executed.
std::string find_program(const std::string& name);

}  // namespace fp8_sdpa::bench
