#include "benchmarks/command/selection.hpp"

#include <fnmatch.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <charconv>
#include <cstdlib>
#include <numeric>
#include <set>
#include <utility>

#include "benchmarks/command/text.hpp"
#include "dispatch/toggles.hpp"
#include "reference/formats/text.hpp"

namespace fp8_sdpa::bench {
namespace {

using reference::Config;
using reference::one_line;
using reference::Shape;

Status unknown(const std::string& kind, const std::string& asked,
               const std::vector<std::string>& there) {
  return invalid_argument("unknown " + kind + " \"" + one_line(asked) + "\": expected " +
                          join(there));
}

/// Places in `names` that the patterns pick, ascending. A pattern that is a name picks that name
/// alone; "all" picks every one.
Result<std::set<std::size_t>> pick(const std::string& kind,
                                   const std::vector<std::string>& patterns,
                                   const std::vector<std::string>& names) {
  std::set<std::size_t> picked;
  for (const std::string& pattern : patterns) {
    const auto exact = std::find(names.begin(), names.end(), pattern);
    const std::size_t before = picked.size();
    bool matched = exact != names.end();
    if (matched) picked.insert(static_cast<std::size_t>(exact - names.begin()));
    for (std::size_t i = 0; i < names.size() && exact == names.end(); ++i) {
      if (pattern == "all" || fnmatch(pattern.c_str(), names[i].c_str(), 0) == 0) {
        picked.insert(i);
        matched = true;
      }
    }
    if (!matched && picked.size() == before) {
      std::vector<std::string> there = names;
      there.emplace_back("a glob or all");
      return unknown(kind, pattern, there);
    }
  }
  if (picked.empty()) return invalid_argument("no " + kind + " is named: expected " + join(names));
  return picked;
}

std::vector<std::string> names_of(std::span<const Variant> table) {
  std::vector<std::string> names;
  for (const Variant& variant : table) names.emplace_back(variant.name);
  return names;
}

std::string letters_of(std::string name) {
  std::erase(name, '_');
  return name;
}

/// Letters to put in, take out or change to make one of the other (Levenshtein's distance).
std::size_t edits_between(const std::string& a, const std::string& b) {
  std::vector<std::size_t> row(b.size() + 1);
  std::iota(row.begin(), row.end(), std::size_t{0});
  for (std::size_t i = 1; i <= a.size(); ++i) {
    std::size_t diagonal = std::exchange(row[0], i);
    for (std::size_t k = 1; k <= b.size(); ++k) {
      const std::size_t change = diagonal + (a[i - 1] != b[k - 1] ? 1 : 0);
      diagonal = row[k];
      row[k] = std::min({row[k - 1] + 1, row[k] + 1, change});
    }
  }
  return row.back();
}

}  // namespace

Environment process_environment() {
  return [](const char* name) -> const char* { return std::getenv(name); };
}

std::vector<std::string> split_list(std::string_view text) {
  std::vector<std::string> parts;
  while (!text.empty()) {
    const std::size_t comma = std::min(text.find(','), text.size());
    std::string part(text.substr(0, comma));
    text.remove_prefix(std::min(comma + 1, text.size()));
    if (!part.empty() && std::find(parts.begin(), parts.end(), part) == parts.end()) {
      parts.push_back(std::move(part));
    }
  }
  return parts;
}

std::vector<std::string> environment_names() {
  std::vector<std::string> names;
  for (char** entry = environ; entry != nullptr && *entry != nullptr; ++entry) {
    const std::string_view text = *entry;
    names.emplace_back(text.substr(0, text.find('=')));
  }
  return names;
}

Status check_toggle_names(const std::vector<std::string>& names) {
  for (const std::string& name : names) {
    if (!name.starts_with("USE_")) continue;
    for (const ToggleName& toggle : kToggleNames) {
      const std::string right = toggle.variable;
      const bool is_one = std::any_of(kToggleNames.begin(), kToggleNames.end(),
                                      [&](const ToggleName& t) { return name == t.variable; });
      if (is_one || edits_between(letters_of(name), letters_of(right)) > 2) continue;
      return invalid_argument("environment variable " + one_line(name) +
                              ": no such toggle, expected " + right);
    }
  }
  return {};
}

Result<Toggles> default_toggles(const Toggles& base, const Environment& environment) {
  Toggles toggles = base;
  std::string set;
  for (const ToggleName& toggle : kToggleNames) {
    if (const char* value = environment(toggle.variable)) {
      const std::string_view text = value;
      if (text != "0" && text != "1") {
        return invalid_argument("environment variable " + std::string(toggle.variable) + "=\"" +
                                one_line(text) + "\": expected 0 or 1");
      }
      toggles.*toggle.member = text == "1";
    }
    if (toggles.*toggle.member) set += " " + std::string(toggle.variable) + "=1";
  }
  if (const Status legal = check_toggles(toggles); !legal.ok()) {
    return invalid_argument("illegal combination of toggles" + set + ": " + legal.message());
  }
  return toggles;
}

Result<const Variant*> variant_of(const Toggles& toggles, std::span<const Variant> table) {
  for (const Variant& variant : table) {
    if (variant.family == Family::kStageC && variant.toggles == toggles) return &variant;
  }
  return unknown("variant", stage_c_name(toggles), names_of(table));
}

Result<std::vector<const Variant*>> select_variants(const std::vector<std::string>& patterns,
                                                    std::span<const Variant> table) {
  const auto picked = pick("variant", patterns, names_of(table));
  if (!picked.ok()) return picked.status();
  std::vector<const Variant*> variants;
  for (const std::size_t i : *picked) variants.push_back(&table[i]);
  return variants;
}

Result<std::vector<Shape>> select_shapes(const std::vector<std::string>& patterns,
                                         const Config& config) {
  std::vector<std::string> names;
  for (const Shape& shape : config.shapes) names.push_back(shape.name);
  const auto picked = pick("shape", patterns, names);
  if (!picked.ok()) return picked.status();
  std::vector<Shape> shapes;
  for (const std::size_t i : *picked) shapes.push_back(config.shapes[i]);
  return shapes;
}

Result<std::vector<Shape>> select_suite(const std::string& suite, const Config& config) {
  std::vector<Shape> shapes;
  std::set<std::string> there;
  for (const Shape& shape : config.shapes) {
    there.insert(shape.suites.begin(), shape.suites.end());
    const bool member =
        std::find(shape.suites.begin(), shape.suites.end(), suite) != shape.suites.end();
    if (suite == "all" || member) shapes.push_back(shape);
  }
  if (shapes.empty()) {
    there.insert("all");
    return unknown("suite", suite, {there.begin(), there.end()});
  }
  return shapes;
}

Result<std::vector<std::uint64_t>> select_seeds(const std::vector<std::string>& seeds,
                                                const Config& config) {
  if (seeds.empty()) return config.seeds;
  std::vector<std::uint64_t> picked;
  for (const std::string& text : seeds) {
    std::uint64_t seed = 0;
    const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), seed);
    if (error != std::errc() || end != text.data() + text.size()) {
      return invalid_argument("seed \"" + one_line(text) +
                              "\": expected a whole number from 0 to 18446744073709551615");
    }
    if (std::find(picked.begin(), picked.end(), seed) == picked.end()) picked.push_back(seed);
  }
  return picked;
}

}  // namespace fp8_sdpa::bench
