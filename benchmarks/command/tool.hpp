// What the mains of the small tools share: one line for whatever is wrong, and no exception that
// escapes.
#pragma once

#include <cstdio>
#include <exception>
#include <new>
#include <optional>
#include <string>

#include "benchmarks/command/command_line.hpp"
#include "benchmarks/command/exit_codes.hpp"
#include "reference/formats/text.hpp"

namespace fp8_sdpa::bench {

/// Says "TOOL: MESSAGE" on stderr.
inline int refuse(const CommandLine& line, const std::string& message) {
  std::fflush(stdout);
  std::fprintf(stderr, "%s: %s\n", line.name().c_str(), message.c_str());
  return kExitBadUsage;
}

/// Parses a command line. An exit code where the tool ends here: help was asked for, or bad usage.
inline std::optional<int> parse_or_exit(CommandLine& line, int argc, char** argv) {
  const auto help = line.parse(argc, argv);
  if (!help.ok()) return refuse(line, help.status().message());
  if (help->empty()) return std::nullopt;
  std::fputs(help->c_str(), stdout);
  return kExitPass;
}

/// Calls `body`, which returns the exit code.
template <class Body>
int run_guarded(const CommandLine& line, const Body& body) {
  try {
    return body();
  } catch (const std::bad_alloc&) {
    return refuse(line, "out of host memory");
  } catch (const std::exception& error) {
    return refuse(line, reference::one_line(error.what()));
  }
}

}  // namespace fp8_sdpa::bench
