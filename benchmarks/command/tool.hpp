// What the mains of the tools share: exit codes, one line for whatever is wrong, and no exception
// that escapes.
#pragma once

#include <unistd.h>

#include <chrono>
#include <cstdio>
#include <exception>
#include <new>
#include <optional>
#include <regex>
#include <string>

#include "benchmarks/command/command_line.hpp"
#include "benchmarks/command/selection.hpp"
#include "reference/formats/text.hpp"

namespace fp8_sdpa::bench {

inline constexpr int kExitPass = 0;
inline constexpr int kExitFail = 1;      ///< a gate failed, or a result file was refused
inline constexpr int kExitBadUsage = 2;  ///< bad usage or configuration, unwritable results, no GPU
                                         ///< where one is required, out of memory

/// Says "TOOL: MESSAGE" on stderr.
inline int refuse(const std::string& tool, const std::string& message) {
  std::fflush(stdout);
  std::fprintf(stderr, "%s: %s\n", tool.c_str(), message.c_str());
  return kExitBadUsage;
}
inline int refuse(const CommandLine& line, const std::string& message) {
  return refuse(line.name(), message);
}

/// The exit code where what was said on stdout has arrived; where it has not (a full disk), that of
/// a failure.
inline int after_output(const std::string& tool, int code) {
  if (std::fflush(stdout) == 0 && std::ferror(stdout) == 0) return code;
  std::fprintf(stderr, "%s: standard output cannot be written\n", tool.c_str());
  return code == kExitPass ? kExitBadUsage : code;
}

/// Parses a command line. An exit code where the tool ends here: help was asked for, or bad usage.
inline std::optional<int> parse_or_exit(CommandLine& line, int argc, char** argv) {
  const auto help = line.parse(argc, argv);
  if (!help.ok()) return refuse(line, help.status().message());
  if (help->empty()) return std::nullopt;
  std::fputs(help->c_str(), stdout);
  return after_output(line.name(), kExitPass);
}

/// Calls `body`, which returns the exit code, or why it refuses.
template <class Body>
int run_guarded(const std::string& tool, const Body& body) {
  try {
    const Result<int> code = body();
    return after_output(tool, code.ok() ? *code : refuse(tool, code.status().message()));
  } catch (const std::bad_alloc&) {
    return refuse(tool, "out of host memory, expected smaller shapes");
  } catch (const std::exception& error) {
    return refuse(tool, reference::one_line(error.what()));
  }
}
template <class Body>
int run_guarded(const CommandLine& line, const Body& body) {
  return run_guarded(line.name(), body);
}

/// Whether what is written there may be in colour: to a terminal whose owner has not set NO_COLOR
/// (no-color.org).
inline bool shows_colour(int file, const Environment& environment) {
  const char* const no_colour = environment("NO_COLOR");
  const char* const terminal = environment("TERM");
  return isatty(file) == 1 && (no_colour == nullptr || *no_colour == '\0') && terminal != nullptr &&
         std::string(terminal) != "dumb";
}

/// The text with verdicts in green and red.
inline std::string in_colour(const std::string& text) {
  static const std::regex kGood("\\bPASS(ED)?\\b");
  static const std::regex kBad("\\bFAIL(ED)?\\b");
  return std::regex_replace(std::regex_replace(text, kGood, "\x1b[32m$&\x1b[0m"), kBad,
                            "\x1b[31m$&\x1b[0m");
}

/// A line for people, at once.
inline void print_line(const std::string& text) {
  static const bool colour = shows_colour(STDOUT_FILENO, process_environment());
  std::printf("%s\n", (colour ? in_colour(text) : text).c_str());
  std::fflush(stdout);
}

/// Tells what a long run is doing, once the first two seconds are over and then as often.
class Progress {
 public:
  void operator()(const std::string& what) {
    constexpr std::chrono::seconds kInterval(2);
    const auto now = std::chrono::steady_clock::now();
    if (now - last_ < kInterval) return;
    last_ = now;
    std::fprintf(stderr, "... %s\n", what.c_str());
  }

 private:
  std::chrono::steady_clock::time_point last_ = std::chrono::steady_clock::now();
};

}  // namespace fp8_sdpa::bench
