// What the mains of the small tools share: one line for whatever is wrong, and no exception that
// escapes.
#pragma once

#include <CLI/CLI.hpp>
#include <cstdio>
#include <exception>
#include <new>
#include <optional>
#include <string>

#include "benchmarks/exit_codes.hpp"
#include "reference/json_reader.hpp"

namespace fp8_sdpa::bench {

/// Says "TOOL: MESSAGE" on stderr.
inline int refuse(const CLI::App& app, const std::string& message) {
  std::fflush(stdout);
  std::fprintf(stderr, "%s: %s\n", app.get_name().c_str(), message.c_str());
  return kExitBadUsage;
}

/// Parses a command line. An exit code where the tool ends here: help was asked for, or bad usage.
inline std::optional<int> parse_or_exit(CLI::App& app, int argc, char** argv) {
  try {
    app.parse(argc, argv);
    return std::nullopt;
  } catch (const CLI::CallForHelp&) {
    std::fputs(app.help().c_str(), stdout);
    return kExitPass;
  } catch (const CLI::ParseError& error) {
    return refuse(app, reference::one_line(error.what()) + " (see --help)");
  }
}

/// Calls `body`, which returns the exit code.
template <class Body>
int run_guarded(const CLI::App& app, const Body& body) {
  try {
    return body();
  } catch (const std::bad_alloc&) {
    return refuse(app, "out of host memory");
  } catch (const std::exception& error) {
    return refuse(app, reference::one_line(error.what()));
  }
}

}  // namespace fp8_sdpa::bench
