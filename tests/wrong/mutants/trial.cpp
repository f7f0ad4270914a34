#include "tests/wrong/mutants/trial.hpp"

#include <sys/wait.h>

#include <algorithm>
#include <cstdlib>
#include <fstream>
#include <nlohmann/json.hpp>
#include <regex>
#include <sstream>
#include <vector>

namespace fp8_sdpa::wrong {
namespace {

namespace fs = std::filesystem;

constexpr int kGtestFailed = 1;
constexpr int kSanitizerReported = 66;

std::string quote(const std::string& word) {
  std::string quoted = "'";
  for (const char c : word) quoted += c == '\'' ? std::string("'\\''") : std::string(1, c);
  return quoted + "'";
}

std::string read(const fs::path& path) {
  std::ostringstream text;
  text << std::ifstream(path).rdbuf();
  return text.str();
}

void replace(std::string* text, const std::string& word, const std::string& by) {
  if (const auto at = text->find(word); at != std::string::npos) text->replace(at, word.size(), by);
}

// Runs a shell command with its output in `log`. A signal counts as 128 + its number, as in a
// shell.
int run(const std::string& command, const fs::path& log) {
  constexpr int kSignalBase = 128;
  const std::string line = "( " + command + " ) >" + quote(log) + " 2>&1";
  const int status = std::system(line.c_str());
  return WIFEXITED(status) ? WEXITSTATUS(status) : kSignalBase + WTERMSIG(status);
}

// The first line of `log` that matches, for people.
std::string evidence_of(const fs::path& log, const std::string& pattern) {
  const std::regex wanted(pattern);
  std::istringstream lines(read(log));
  std::string line;
  while (std::getline(lines, line)) {
    if (std::regex_search(line, wanted)) return line;
  }
  return "see " + log.string();
}

// The build tree's own command for the unit, given a copy of it beside the object and with the
// shadow folders ahead of its include path. A copy, for a quoted include looks beside the file
// first.
std::string compile_command(const Workshop& workshop, const fs::path& unit,
                            const std::vector<fs::path>& shadows, const fs::path& object) {
  const auto commands = nlohmann::json::parse(read(workshop.build_dir / "compile_commands.json"),
                                              nullptr, /*allow_exceptions=*/false);
  if (commands.is_discarded()) return {};
  for (const auto& entry : commands) {
    if (fs::path(entry.at("file").get<std::string>()) != unit) continue;
    std::string command = entry.at("command");
    static const std::regex kOutput(" -o [^ ]+");
    command = std::regex_replace(command, kOutput, "");
    const fs::path copy = fs::path(object).replace_extension();
    std::ofstream(copy) << read(unit);
    const auto at = command.rfind(unit.string());
    if (at == std::string::npos) return {};
    command.replace(at, unit.string().size(), quote(copy));
    std::string includes;
    for (const fs::path& shadow : shadows) includes += " -I" + quote(shadow);
    command.insert(command.find(' '), includes);
    return "cd " + quote(entry.at("directory").get<std::string>()) + " && " + command + " -o " +
           quote(object);
  }
  return {};
}

Trial build(const Workshop& workshop, const Mutant& mutant, const fs::path& folder,
            const fs::path& binary) {
  const fs::path shadow = folder / "include";
  const fs::path copy = shadow / mutant.file.lexically_relative("kernels");
  fs::create_directories(copy.parent_path());
  std::ofstream(copy) << mutant.text;

  const fs::path log = folder / "build.log";
  std::string objects = workshop.table.empty() ? "" : quote(workshop.table);
  std::string commands;
  for (const std::string& unit : workshop.units) {
    std::string flat = unit;  // units of different folders may have one name
    std::replace(flat.begin(), flat.end(), '/', '_');
    const fs::path object = folder / (flat + ".o");
    const std::string compile =
        compile_command(workshop, workshop.source_dir / unit, {shadow, workshop.shadow}, object);
    if (compile.empty()) {
      return {Verdict::kError, "no command for " + unit + " in compile_commands.json"};
    }
    commands += "( " + compile + " ) && ";
    objects += (objects.empty() ? "" : " ") + quote(object);
  }
  std::string link = workshop.link_command;
  replace(&link, "@MUTANT@", objects);
  replace(&link, "@BINARY@", quote(binary));
  if (run(commands + link, log) != 0) {
    return {Verdict::kError, "does not build: " + evidence_of(log, "error|undefined")};
  }
  return {Verdict::kSurvived, ""};
}

}  // namespace

const char* name_of(Verdict verdict) {
  switch (verdict) {
    case Verdict::kGates: return "gates";
    case Verdict::kSanitizer: return "sanitizer";
    case Verdict::kSurvived: return "survived";
    case Verdict::kError: return "error";
  }
  return "unknown";
}

Trial try_mutant(const Workshop& workshop, const Mutant& mutant) {
  const fs::path folder = workshop.work_dir / mutant.name;
  fs::remove_all(folder);
  fs::create_directories(folder);
  const fs::path binary = folder / "gates";
  if (Trial built = build(workshop, mutant, folder, binary); built.verdict == Verdict::kError) {
    return built;
  }

  const std::string gates = "SDPA_CONFIG=" + quote(workshop.config) +
                            " SDPA_SCHEDULES=" + std::to_string(workshop.schedules) + " " +
                            quote(binary) +
                            " --gtest_fail_fast --gtest_filter=" + quote(workshop.filter);
  const struct {
    const char* options;
    const char* log;
    Verdict verdict;
  } rounds[] = {
      {"report_bugs=0", "gates.log", Verdict::kGates},
      {"halt_on_error=1 exitcode=66", "sanitizer.log", Verdict::kSanitizer},
  };
  for (const auto& round : rounds) {
    const fs::path log = folder / round.log;
    const int status = run("TSAN_OPTIONS=" + quote(round.options) + " " + gates, log);
    if (status == kGtestFailed) return {round.verdict, evidence_of(log, "^[a-z0-9_]+: |Failure")};
    if (status == kSanitizerReported) return {round.verdict, evidence_of(log, "SUMMARY|WARNING")};
    static const std::regex kPassed("\\[  PASSED  \\] [1-9][0-9]* tests?\\.");
    if (status != 0 || !std::regex_search(read(log), kPassed)) {
      return {Verdict::kError,
              "exit status " + std::to_string(status) + " of the gates, see " + log.string()};
    }
  }
  return {Verdict::kSurvived, ""};
}

}  // namespace fp8_sdpa::wrong
