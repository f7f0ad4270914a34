#include "tests/wrong/mutants/mutants.hpp"

#include <fnmatch.h>

#include <algorithm>
#include <fstream>
#include <nlohmann/json.hpp>
#include <regex>
#include <set>
#include <sstream>
#include <stdexcept>

namespace fp8_sdpa::wrong {
namespace {

namespace fs = std::filesystem;

// What a statement becomes when it is erased: still a statement, so that `if (...) erased` parses.
constexpr char kNothing[] = "static_cast<void>(0);";

std::string read(const fs::path& path) {
  std::ifstream file(path);
  if (!file) throw std::runtime_error(path.string() + ": cannot be read");
  std::ostringstream text;
  text << file.rdbuf();
  return text.str();
}

// The files under `source_dir` that match `pattern`, whose wildcards are in its last component.
std::vector<fs::path> expand(const fs::path& source_dir, const fs::path& pattern) {
  const std::string name = pattern.filename();
  std::vector<fs::path> files;
  const fs::path folder = source_dir / pattern.parent_path();
  if (!fs::is_directory(folder)) throw std::runtime_error(folder.string() + ": no such folder");
  for (const fs::directory_entry& entry : fs::directory_iterator(folder)) {
    if (fnmatch(name.c_str(), entry.path().filename().c_str(), 0) == 0) {
      files.push_back(pattern.parent_path() / entry.path().filename());
    }
  }
  std::sort(files.begin(), files.end());
  return files;
}

// Whether the text at `at` follows a // on its line.
bool in_comment(const std::string& text, std::size_t at) {
  const std::size_t newline = text.rfind('\n', at);
  const std::size_t line = newline == std::string::npos ? 0 : newline + 1;
  return text.substr(line, at - line).find("//") != std::string::npos;
}

Mutant edit(std::string name, const fs::path& file, const std::string& text, std::size_t at,
            std::size_t length, const std::string& replacement) {
  Mutant mutant;
  mutant.name = std::move(name);
  mutant.file = file;
  mutant.at = at;
  mutant.line = 1 + static_cast<int>(std::count(text.begin(), text.begin() + at, '\n'));
  mutant.before = text.substr(at, length);
  mutant.after = replacement;
  mutant.text = std::string(text).replace(at, length, replacement);
  return mutant;
}

// "_tile_ready" where "  // tile_ready ..." follows, else nothing.
std::string comment_suffix(const std::string& text, std::size_t at) {
  static const std::regex kComment("^ *// *([a-z][a-z0-9_]*)\\b");
  const std::string rest = text.substr(at, text.find('\n', at) - at);
  std::smatch match;
  return std::regex_search(rest, match, kComment) ? "_" + match[1].str() : "";
}

void erase_each(const fs::path& source_dir, const nlohmann::json& rule,
                std::vector<Mutant>* mutants) {
  const std::string stem = rule.at("stem");
  const std::regex pattern(rule.at("pattern").get<std::string>());
  const auto except = rule.at("except").get<std::set<std::string>>();
  int ordinal = 0;
  for (const std::string glob : rule.at("files")) {
    for (const fs::path& file : expand(source_dir, glob)) {
      if (except.contains(file.string())) continue;
      const std::string text = read(source_dir / file);
      for (std::sregex_iterator it(text.begin(), text.end(), pattern), end; it != end; ++it) {
        const auto at = static_cast<std::size_t>(it->position());
        const auto length = static_cast<std::size_t>(it->length());
        if (in_comment(text, at)) continue;
        const std::string name =
            stem + "_" + std::to_string(++ordinal) + comment_suffix(text, at + length);
        mutants->push_back(edit(name, file, text, at, length, kNothing));
      }
    }
  }
  if (ordinal == 0) throw std::runtime_error(stem + ": its pattern matches nothing");
}

void add_fault(const fs::path& source_dir, const nlohmann::json& fault,
               std::vector<Mutant>* mutants) {
  const std::string name = fault.at("name");
  const std::string file = fault.at("file");
  const std::string find = fault.at("find");
  const std::string text = read(source_dir / file);
  const std::size_t at = text.find(find);
  if (at == std::string::npos) {
    throw std::runtime_error(name + ": '" + find + "' is not in " + file);
  }
  if (text.find(find, at + 1) != std::string::npos) {
    throw std::runtime_error(name + ": '" + find + "' stands in " + file + " more than once");
  }
  mutants->push_back(edit(name, file, text, at, find.size(), fault.at("replace")));
}

}  // namespace

Mutant unchanged(Mutant mutant) {
  mutant.text.replace(mutant.at, mutant.after.size(), mutant.before);
  mutant.after = mutant.before;
  return mutant;
}

std::vector<Mutant> make_mutants(const fs::path& source_dir, const fs::path& catalogue,
                                 std::string* error) {
  try {
    const nlohmann::json rules = nlohmann::json::parse(read(catalogue));
    std::vector<Mutant> mutants;
    for (const nlohmann::json& rule : rules.at("erase")) erase_each(source_dir, rule, &mutants);
    for (const nlohmann::json& fault : rules.at("faults")) add_fault(source_dir, fault, &mutants);
    std::set<std::string> names;
    for (const Mutant& mutant : mutants) {
      if (!names.insert(mutant.name).second) {
        throw std::runtime_error(mutant.name + ": two mutants have this name");
      }
    }
    return mutants;
  } catch (const std::exception& problem) {
    *error = catalogue.string() + ": " + problem.what();
    return {};
  }
}

}  // namespace fp8_sdpa::wrong
