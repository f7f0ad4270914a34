// A tool's command line. The one door to CLI11, which takes seconds to compile: command_line.cpp
// alone includes it.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "fp8_sdpa/status.hpp"

namespace CLI {
class App;
class Option;
}  // namespace CLI

namespace fp8_sdpa::bench {

/// One declared option, to say more about it.
class Option {
 public:
  explicit Option(CLI::Option* option) : option_(option) {}

  Option required();
  /// Numbers from `low` to `high`, both included.
  Option between(double low, double high);
  Option one_of(const std::vector<std::string>& values);
  /// Only together with, or only without, the other.
  Option needs(Option other);
  Option excludes(Option other);

 private:
  CLI::Option* option_;
};

class CommandLine {
 public:
  CommandLine(const std::string& description, const std::string& name);
  ~CommandLine();
  CommandLine(const CommandLine&) = delete;
  CommandLine& operator=(const CommandLine&) = delete;

  const std::string& name() const { return name_; }

  /// Declares an option ("--out") or a positional argument ("OLD"). What `value` holds is the
  /// default, shown by the help where it is not empty. `value` is written by parse().
  /// A bool is a flag without a value, a vector takes one or more positional arguments.
  template <class T>
  Option add(const std::string& option, T& value, const std::string& help);

  /// Arguments that nobody declared are kept instead of refused.
  void keep_others();
  std::vector<std::string> others() const;

  /// The help text where it was asked for, else nothing; kInvalidArgument with one line that names
  /// the argument.
  Result<std::string> parse(int argc, const char* const* argv);

 private:
  std::string name_;
  std::unique_ptr<CLI::App> app_;
};

}  // namespace fp8_sdpa::bench
