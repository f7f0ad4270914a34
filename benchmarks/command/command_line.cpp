#include "benchmarks/command/command_line.hpp"

#include <CLI/CLI.hpp>

#include "reference/formats/text.hpp"

namespace fp8_sdpa::bench {
namespace {

template <class T>
Option declare(CLI::App& app, const std::string& option, T& value, const std::string& help) {
  return Option(app.add_option(option, value, help)->capture_default_str());
}

}  // namespace

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

Option CommandLine::add(const std::string& option, std::string& value, const std::string& help) {
  return declare(*app_, option, value, help);
}

Option CommandLine::add(const std::string& option, double& value, const std::string& help) {
  return declare(*app_, option, value, help);
}

Option CommandLine::add(const std::string& option, int& value, const std::string& help) {
  return Option(app_->add_option(option, value, help));
}

Option CommandLine::add(const std::string& option, std::uint64_t& value, const std::string& help) {
  return Option(app_->add_option(option, value, help));
}

Option CommandLine::add(const std::string& option, std::optional<int>& value,
                        const std::string& help) {
  return Option(app_->add_option(option, value, help));
}

Option CommandLine::add(const std::string& option, std::vector<std::string>& values,
                        const std::string& help) {
  return Option(app_->add_option(option, values, help));
}

Option CommandLine::add(const std::string& option, bool& value, const std::string& help) {
  return Option(app_->add_flag(option, value, help));
}

void CommandLine::keep_others() {
  app_->allow_extras();
}

std::vector<std::string> CommandLine::others() const {
  return app_->remaining();
}

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
