#include "benchmarks/command/command_line.hpp"

#include <CLI/CLI.hpp>
#include <cstdint>
#include <optional>
#include <type_traits>

#include "reference/formats/text.hpp"

namespace fp8_sdpa::bench {
Option Option::required() {
  option_->required();
  return *this;
}

Option Option::between(double low, double high) {
  option_->check(CLI::Range(low, high));
  return *this;
}

Option Option::one_of(const std::vector<std::string>& values) {
  option_->check(CLI::IsMember(values));
  return *this;
}

Option Option::needs(Option other) {
  option_->needs(other.option_);
  return *this;
}

Option Option::excludes(Option other) {
  option_->excludes(other.option_);
  return *this;
}

CommandLine::CommandLine(const std::string& description, const std::string& name)
    : name_(name), app_(std::make_unique<CLI::App>(description, name)) {}

CommandLine::~CommandLine() = default;

namespace {

std::string refuse_empty(const std::string& value) {
  return value.empty() ? "expected a value, got an empty one" : "";
}

}  // namespace

template <class T>
Option CommandLine::add(const std::string& option, T& value, const std::string& help) {
  if constexpr (std::is_same_v<T, bool>) {
    return Option(app_->add_flag(option, value, help));
  } else if constexpr (std::is_same_v<T, std::string> || std::is_same_v<T, double>) {
    // Unnamed: the help shows the names of checks.
    CLI::Option* added = app_->add_option(option, value, help)->capture_default_str();
    return Option(added->check(refuse_empty));
  } else {
    return Option(app_->add_option(option, value, help));
  }
}
template Option CommandLine::add(const std::string&, std::string&, const std::string&);
template Option CommandLine::add(const std::string&, double&, const std::string&);
template Option CommandLine::add(const std::string&, int&, const std::string&);
template Option CommandLine::add(const std::string&, std::uint64_t&, const std::string&);
template Option CommandLine::add(const std::string&, std::optional<int>&, const std::string&);
template Option CommandLine::add(const std::string&, std::vector<std::string>&, const std::string&);
template Option CommandLine::add(const std::string&, bool&, const std::string&);

void CommandLine::keep_others() { app_->allow_extras(); }

std::vector<std::string> CommandLine::others() const { return app_->remaining(); }

Result<std::string> CommandLine::parse(int argc, const char* const* argv) {
  try {
    app_->parse(argc, argv);
    return std::string();
  } catch (const CLI::CallForHelp&) {
    return app_->help();
  } catch (const CLI::ParseError& error) {
    return invalid_argument(reference::one_line(error.what()) + " (see --help)");
  }
}

}  // namespace fp8_sdpa::bench
