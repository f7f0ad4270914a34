#include "tests/wrong/faults.hpp"

#include <fnmatch.h>

#include <algorithm>
#include <fstream>
#include <nlohmann/json.hpp>
#include <regex>
#include <set>
#include <sstream>
#include <stdexcept>
#include <utility>

namespace fp8_sdpa::wrong {
namespace {

namespace fs = std::filesystem;

/// Writes only what differs, so that a build does not compile again what has not changed.
void write_if_changed(const fs::path& path, const std::string& text) {
  if (fs::exists(path) && read_text(path) == text) return;
  std::ofstream(path) << text;
}

/// Where a fault's text stands, alone.
std::size_t place_of(const Fault& fault, const std::string& text) {
  const std::size_t at = text.find(fault.find);
  if (at == std::string::npos) {
    throw std::runtime_error(fault.name + ": '" + fault.find + "' is not in " +
                             fault.file.string());
  }
  if (text.find(fault.find, at + 1) != std::string::npos) {
    throw std::runtime_error(fault.name + ": '" + fault.find + "' stands in " +
                             fault.file.string() + " more than once");
  }
  return at;
}

/// Of its C++: each kernel that a fault is compiled as has its own.
std::string scope_of(const Fault& fault) { return fault.name + "_" + fault.kernel; }

void replace_all(std::string* text, const std::string& word, const std::string& by) {
  for (std::size_t at = 0; (at = text->find(word, at)) != std::string::npos; at += by.size()) {
    text->replace(at, word.size(), by);
  }
}

/// Appends files and what they include, depth first.
class Flattener {
 public:
  Flattener(const Fault& fault, const fs::path& kernels) : fault_(fault), kernels_(kernels) {}

  void append(const fs::path& file) {
    if (!seen_.insert(file.string()).second) return;
    std::string text = read_text(kernels_ / file);
    if (file == fault_.file) {
      text.replace(fault_.at, fault_.find.size(), fault_.replace);
      edited_ = true;
    }
    std::istringstream lines(text);
    std::string line;
    static const std::regex kInclude("^ *# *include \"([^\"]+)\"");
    static const std::regex kNamespace("\\bnamespace fp8_sdpa\\b");
    while (std::getline(lines, line)) {
      std::smatch match;
      if (line.rfind("#pragma once", 0) == 0) continue;
      if (line.find('#') != std::string::npos && std::regex_search(line, match, kInclude) &&
          is_ours(match[1].str())) {
        append(match[1].str());
      } else if (line.find("namespace") != std::string::npos) {
        out_ +=
            std::regex_replace(line, kNamespace, "namespace fp8_sdpa::" + scope_of(fault_)) + "\n";
      } else {
        out_ += line + "\n";
      }
    }
  }

  bool has(const fs::path& file) const { return seen_.contains(file.string()); }
  std::string take() {
    if (!edited_) {
      throw std::runtime_error(fault_.name + ": " + fault_.file.string() +
                               " is not part of the family " + fault_.family);
    }
    return std::move(out_);
  }

 private:
  /// Kernel sources are copied; what they stand on (the executor, the library's own headers, its
  /// table) and tables read by macro are included.
  bool is_ours(const std::string& include) const {
    return include.find('/') != std::string::npos && include.rfind("gpu/", 0) != 0 &&
           include.rfind("fp8_sdpa/", 0) != 0 && include.rfind("dispatch/", 0) != 0 &&
           fs::path(include).extension() != ".def" && fs::exists(kernels_ / include);
  }

  const Fault& fault_;
  fs::path kernels_;
  std::set<std::string> seen_;
  std::string out_;
  bool edited_ = false;
};

// "_tile_ready" where "  // tile_ready ..." follows, else nothing.
std::string comment_suffix(const std::string& text, std::size_t at) {
  static const std::regex kComment("^ *// *([a-z][a-z0-9_]*)\\b");
  const std::string rest = text.substr(at, text.find('\n', at) - at);
  std::smatch match;
  return std::regex_search(rest, match, kComment) ? "_" + match[1].str() : "";
}

// Whether the text at `at` follows a // on its line.
bool in_comment(const std::string& text, std::size_t at) {
  const std::size_t line = text.rfind('\n', at) + 1;
  return text.substr(line, at - line).find("//") != std::string::npos;
}

// The files under `folder` that match a pattern, whose wildcards are in its last component.
std::set<fs::path> expand(const fs::path& folder, const fs::path& pattern) {
  std::set<fs::path> files;
  for (const auto& entry : fs::directory_iterator(folder / pattern.parent_path())) {
    const fs::path name = entry.path().filename();
    if (fnmatch(pattern.filename().c_str(), name.c_str(), 0) == 0) {
      files.insert(pattern.parent_path() / name);
    }
  }
  return files;
}

// As every kernel that might show it.
void append_for_each_kernel(const Fault& fault, const fs::path& kernels, Catalogue* catalogue) {
  const std::vector<std::string> families = families_of(*catalogue, fault.file, kernels);
  for (const std::string& family : families) {
    for (const std::string& kernel : catalogue->families[family].kernels) {
      catalogue->faults.push_back(fault);
      catalogue->faults.back().family = family;
      catalogue->faults.back().kernel = kernel;
    }
  }
  if (families.empty()) {
    throw std::runtime_error(fault.name + ": no kernel has " + fault.file.string());
  }
}

void erase_each(const nlohmann::json& rule, const fs::path& kernels, Catalogue* catalogue) {
  // What a statement becomes: still a statement, so that `if (...) erased` parses.
  constexpr char kNothing[] = "static_cast<void>(0);";
  const std::string stem = rule.at("stem");
  const std::regex pattern(rule.at("pattern").get<std::string>());
  const auto except = rule.at("except").get<std::set<std::string>>();
  int ordinal = 0;
  for (const std::string glob : rule.at("files")) {
    for (const fs::path& file : expand(kernels, glob)) {
      if (except.contains(file.string())) continue;
      const std::string text = read_text(kernels / file);
      for (std::sregex_iterator it(text.begin(), text.end(), pattern), end; it != end; ++it) {
        const auto at = static_cast<std::size_t>(it->position());
        if (in_comment(text, at)) continue;
        const std::string name =
            stem + "_" + std::to_string(++ordinal) + comment_suffix(text, at + it->str().size());
        Fault erased{
            name,        "a barrier, wait or commit is missing", "", "", file, it->str(), kNothing,
            Judge::kRace};
        erased.at = at;
        erased.line =
            1 + static_cast<int>(std::count(text.begin(), text.begin() + it->position(), '\n'));
        append_for_each_kernel(erased, kernels, catalogue);
      }
    }
  }
  if (ordinal == 0) throw std::runtime_error(stem + ": its pattern matches nothing");
}

Fault read_fault(const nlohmann::json& entry, const std::string& family) {
  return {entry.at("name"),
          entry.at("what"),
          family,
          entry.value("kernel", ""),
          entry.at("file").get<std::string>(),
          entry.at("find"),
          entry.at("replace"),
          judge_of(entry.value("judge", "gates"))};
}

}  // namespace

std::string read_text(const fs::path& path) {
  std::ifstream file(path);
  if (!file) throw std::runtime_error(path.string() + ": cannot be read");
  std::ostringstream text;
  text << file.rdbuf();
  return text.str();
}

Judge judge_of(const std::string& name) {
  if (name == "gates") return Judge::kGates;
  if (name == "address") return Judge::kAddress;
  if (name == "race") return Judge::kRace;
  if (name == "compiler") return Judge::kCompiler;
  throw std::runtime_error("judge is '" + name + "'; it is gates, address, race or compiler");
}

std::vector<std::string> families_of(const Catalogue& catalogue, const fs::path& file,
                                     const fs::path& kernels) {
  std::vector<std::string> names;
  for (const auto& [name, family] : catalogue.families) {
    Fault fault;
    Flattener flattener(fault, kernels);
    for (const std::string& root : family.roots) flattener.append(root);
    if (flattener.has(file) && !family.kernels.empty()) names.push_back(name);
  }
  return names;
}

Catalogue read_catalogue(const fs::path& folder, const fs::path& kernels) {
  const fs::path families = folder / "families.json";
  Catalogue catalogue;
  const nlohmann::json root = nlohmann::json::parse(read_text(families));
  for (const auto& [name, entry] : root.at("families").items()) {
    FaultFamily& family = catalogue.families[name];
    family.roots = entry.at("roots").get<std::vector<std::string>>();
    family.defines = entry.at("defines");
    family.launch = entry.at("launch");
    family.kernels = entry.value("kernels", std::vector<std::string>());
    family.parameters = entry.value("parameters", family.parameters);
    family.arguments = entry.value("arguments", family.arguments);
    family.gates = entry.value("gates", "*" + name + "*");
  }
  std::set<fs::path> files;
  for (const auto& entry : fs::directory_iterator(folder)) {
    if (entry.path().extension() == ".json" && entry.path() != families) files.insert(entry.path());
  }
  std::set<std::string> names;
  for (const fs::path& file : files) {
    const nlohmann::json of_family = nlohmann::json::parse(read_text(file));
    for (const nlohmann::json& rule : of_family.value("erase", nlohmann::json::array())) {
      erase_each(rule, kernels, &catalogue);
    }
    for (const nlohmann::json& entry : of_family.at("faults")) {
      Fault fault = read_fault(entry, of_family.value("family", ""));
      if (!names.insert(fault.name).second) {
        throw std::runtime_error(fault.name + ": two faults have this name");
      }
      if (entry.contains("at")) {
        fault.at = entry.at("at");
        fault.line = entry.at("line");
        append_for_each_kernel(fault, kernels, &catalogue);
        continue;
      }
      if (!catalogue.families.contains(fault.family)) {
        throw std::runtime_error(fault.name + ": no family '" + fault.family + "'");
      }
      fault.at = place_of(fault, read_text(kernels / fault.file));
      catalogue.faults.push_back(std::move(fault));
    }
  }
  return catalogue;
}

std::string flatten(const Catalogue& catalogue, const Fault& fault, const fs::path& kernels) {
  const FaultFamily& family = catalogue.families.at(fault.family);
  Flattener flattener(fault, kernels);
  for (const std::string& root : family.roots) flattener.append(root);
  return family.defines + "\n" + flattener.take();
}

void write_translation_units(const Catalogue& catalogue, const fs::path& kernels,
                             const fs::path& folder, int shards, Judge judge) {
  fs::create_directories(folder);
  std::vector<std::string> units(static_cast<std::size_t>(shards),
                                 "#include \"tests/wrong/wrong_kernels.hpp\"\n");
  std::string declarations;
  std::string rows;
  const auto is_judged = [&](const Fault& fault) {
    return fault.judge == judge || fault.judge == Judge::kCompiler;
  };
  const auto total = std::count_if(catalogue.faults.begin(), catalogue.faults.end(), is_judged);
  std::ptrdiff_t count = 0;
  for (const Fault& fault : catalogue.faults) {
    if (!is_judged(fault)) continue;
    const FaultFamily& family = catalogue.families.at(fault.family);
    std::string launch = family.launch;
    replace_all(&launch, "@KERNEL@", fault.kernel);
    const std::string scope = scope_of(fault);
    const std::string signature =
        "fp8_sdpa::Status launch_" + scope + "(" + family.parameters + ")";
    std::string& unit = units[static_cast<std::size_t>(count++ * shards / total)];
    if (fault.judge == Judge::kCompiler) continue;
    unit += "#line 1 \"" + fault.name + "\"\n" + flatten(catalogue, fault, kernels) + signature +
            " {\n  using namespace fp8_sdpa::" + scope + ";\n  return fp8_sdpa::" + scope +
            "::" + launch + "(" + family.arguments + ");\n}\n";
    declarations += signature + ";\n";
    rows += "    {\"" + fault.name + "\", \"" + fault.kernel + "\", launch_" + scope + "},\n";
  }
  for (std::size_t i = 0; i < units.size(); ++i) {
    write_if_changed(folder / ("faults_" + std::to_string(i) + ".cpp"), units[i]);
  }
  write_if_changed(folder / "faults_table.cpp",
                   "#include \"tests/wrong/wrong_kernels.hpp\"\n" + declarations +
                       "namespace fp8_sdpa::wrong {\nstd::span<const WrongKernel> wrong_kernels() {"
                       "\n  static const WrongKernel kKernels[] = {\n" +
                       rows + "  };\n  return kKernels;\n}\n}  // namespace fp8_sdpa::wrong\n");
}

}  // namespace fp8_sdpa::wrong
