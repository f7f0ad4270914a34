#include "benchmarks/command/command_line.hpp"

#include <CLI/CLI.hpp>
#include <algorithm>
#include <cctype>
#include <charconv>
#include <cstdint>
#include <optional>
#include <system_error>
#include <type_traits>

#include "benchmarks/command/paths.hpp"
#include "benchmarks/command/text.hpp"
#include "reference/formats/text.hpp"

namespace fp8_sdpa::bench {
Option Option::required() {
  option_->required();
  return *this;
}

Option Option::between(double low, double high) {
  option_->check([low, high](const std::string& text) {
    double value = 0;
    const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
    const bool number = error == std::errc() && end == text.data() + text.size();
    if (number && value >= low && value <= high) return std::string();
    return "got " + reference::one_line(text) + ", expected a number from " +
           reference::text_of(low) + " to " + reference::text_of(high);
  });
  return *this;
}

Option Option::one_of(const std::vector<std::string>& values) {
  option_->check([values](const std::string& text) {
    if (std::find(values.begin(), values.end(), text) != values.end()) return std::string();
    return "got " + reference::one_line(text) + ", expected " + join(values);
  });
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

/// "OUT" of "--out": what stands for its value.
std::string value_name(const std::string& option) {
  std::string name = option.substr(option.find_first_not_of('-'));
  std::transform(name.begin(), name.end(), name.begin(),
                 [](unsigned char c) { return static_cast<char>(std::toupper(c)); });
  return name;
}

void replace_all(std::string& text, const std::string& what, const std::string& with) {
  for (std::size_t at = text.find(what); at != std::string::npos; at = text.find(what, at)) {
    text.replace(at, what.size(), with);
  }
}

/// The help in the launcher's words, and with files of the source tree by their names in it.
std::string for_people(std::string help) {
  replace_all(help, default_source_folder() + "/", "");
  replace_all(help, "Usage: fp8_sdpa_", "Usage: ./sdpa ");
  return help;
}

std::string refuse_empty(const std::string& value) {
  return value.empty() ? "expected a value, got an empty one" : "";
}

}  // namespace

template <class T>
Option CommandLine::add(const std::string& option, T& value, const std::string& help) {
  if constexpr (std::is_same_v<T, bool>) {
    return Option(app_->add_flag(option, value, help));
  } else {
    // What the help shows behind the name; CLI11 would show types, and the names of checks.
    CLI::Option* added = app_->add_option(option, value, help);
    const bool positional = !option.starts_with("--");
    std::string text = positional ? "" : value_name(option);
    if constexpr (std::is_same_v<T, std::string> || std::is_same_v<T, double>) {
      added->check(refuse_empty)->capture_default_str();
      const std::string& given = added->get_default_str();
      if (!given.empty() && !positional) text += " (" + given + ")";
    }
    return Option(added->type_name(positional ? "" : value_name(option))->option_text(text));
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
    return for_people(app_->help());
  } catch (const CLI::ParseError& error) {
    return invalid_argument(reference::one_line(error.what()) + " (see --help)");
  }
}

}  // namespace fp8_sdpa::bench
