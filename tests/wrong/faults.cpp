#include "tests/wrong/faults.hpp"

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

std::string read(const fs::path& path) {
  std::ifstream file(path);
  if (!file) throw std::runtime_error(path.string() + ": cannot be read");
  std::ostringstream text;
  text << file.rdbuf();
  return text.str();
}

/// Writes only what differs, so that a build does not compile again what has not changed.
void write_if_changed(const fs::path& path, const std::string& text) {
  if (fs::exists(path) && read(path) == text) return;
  std::ofstream(path) << text;
}

std::string replaced(const std::string& text, const Fault& fault) {
  const std::size_t at = text.find(fault.find);
  if (at == std::string::npos) {
    throw std::runtime_error(fault.name + ": '" + fault.find + "' is not in " +
                             fault.file.string());
  }
  if (text.find(fault.find, at + 1) != std::string::npos) {
    throw std::runtime_error(fault.name + ": '" + fault.find + "' stands in " +
                             fault.file.string() + " more than once");
  }
  return std::string(text).replace(at, fault.find.size(), fault.replace);
}

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
    std::string text = read(kernels_ / file);
    if (file == fault_.file) {
      text = replaced(text, fault_);
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
        out_ += std::regex_replace(line, kNamespace, "namespace fp8_sdpa::" + fault_.name) + "\n";
      } else {
        out_ += line + "\n";
      }
    }
  }

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

Fault read_fault(const nlohmann::json& entry, const std::string& family) {
  return {entry.at("name"),
          entry.at("what"),
          family,
          entry.at("kernel"),
          entry.at("file").get<std::string>(),
          entry.at("find"),
          entry.at("replace"),
          judge_of(entry.value("judge", "gates"))};
}

}  // namespace

Judge judge_of(const std::string& name) {
  if (name == "gates") return Judge::kGates;
  if (name == "address") return Judge::kAddress;
  throw std::runtime_error("judge is '" + name + "'; it is gates or address");
}

Catalogue read_catalogue(const fs::path& folder, const fs::path& kernels) {
  const fs::path families = folder / "families.json";
  Catalogue catalogue;
  const nlohmann::json root = nlohmann::json::parse(read(families));
  for (const auto& [name, entry] : root.at("families").items()) {
    catalogue.families[name] = {entry.at("roots"), entry.at("defines"), entry.at("launch")};
  }
  std::set<fs::path> files;
  for (const auto& entry : fs::directory_iterator(folder)) {
    if (entry.path().extension() == ".json" && entry.path() != families) files.insert(entry.path());
  }
  std::set<std::string> names;
  for (const fs::path& file : files) {
    const nlohmann::json of_family = nlohmann::json::parse(read(file));
    for (const nlohmann::json& entry : of_family.at("faults")) {
      Fault fault = read_fault(entry, of_family.at("family"));
      if (!names.insert(fault.name).second) {
        throw std::runtime_error(fault.name + ": two faults have this name");
      }
      if (!catalogue.families.contains(fault.family)) {
        throw std::runtime_error(fault.name + ": no family '" + fault.family + "'");
      }
      static_cast<void>(replaced(read(kernels / fault.file), fault));
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
  std::size_t count = 0;
  for (const Fault& fault : catalogue.faults) {
    if (fault.judge != judge) continue;
    std::string launch = catalogue.families.at(fault.family).launch;
    replace_all(&launch, "@KERNEL@", fault.kernel);
    const std::string signature = "fp8_sdpa::Status launch_" + fault.name +
                                  "(const fp8_sdpa::Problem& problem, const gpu::Queue& queue)";
    units[count++ % units.size()] += flatten(catalogue, fault, kernels) + signature +
                                     " {\n  using namespace fp8_sdpa::" + fault.name +
                                     ";\n  return fp8_sdpa::" + fault.name + "::" + launch +
                                     "(problem, queue);\n}\n";
    declarations += signature + ";\n";
    rows += "    {\"" + fault.name + "\", \"" + fault.kernel + "\", launch_" + fault.name + "},\n";
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
