// Lists and tries wrong kernels.
//   mutants list            one name per line
//   mutants control         the kernels as they are, through the same mill: they must survive
//   mutants try NAME        one wrong kernel: it must not
//   mutants report          what became of all of them; fails if one survived or was not tried
#include <cstdio>
#include <fstream>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "tests/wrong/mutants/mutants.hpp"
#include "tests/wrong/mutants/trial.hpp"

namespace fp8_sdpa::wrong {
namespace {

constexpr int kFailed = 1;
constexpr int kBadUsage = 2;
constexpr char kControl[] = "control";
constexpr char kStageC[] = "tests/wrong/mutants/stage_c_unit.cpp";

/// What must be compiled again, and which variants are asked, when a file of a folder is edited.
struct Reach {
  const char* prefix;  ///< of the file's name; the first that fits counts
  std::vector<std::string> units;
  const char* variants;     ///< glob
  const char* except = "";  ///< glob of variants that are not asked after all
};

const std::vector<Reach>& reaches() {
  static const std::string kSm80 = MUTANTS_BUILD_DIR "/kernels/instances/sm80_mma_host.cpp";
  static const std::string kSm89 = MUTANTS_BUILD_DIR "/kernels/instances/sm89_mma_host.cpp";
  static const std::vector<Reach> kReaches = {
      {"kernels/stage_c/", {kStageC}, "stage_c*"},
      {"kernels/sm80/", {kSm80}, "sm80*"},
      {"kernels/sm89/", {kSm89}, "sm89*"},
      {"kernels/attention/key_group", {kSm80, kSm89}, "sm8*"},
      // sm90 has no trials here: see CMakeLists.txt.
      {"", {kStageC, kSm80, kSm89}, "*", "*sm90*"},
  };
  return kReaches;
}

Workshop workshop(const std::filesystem::path& edited) {
  const Reach* reach = &reaches().back();
  for (const Reach& candidate : reaches()) {
    if (edited.string().rfind(candidate.prefix, 0) != 0) continue;
    reach = &candidate;
    break;
  }
  const std::string variants = reach->variants;
  const std::string except = reach->except;
  return {.source_dir = MUTANTS_SOURCE_DIR,
          .build_dir = MUTANTS_BUILD_DIR,
          .work_dir = MUTANTS_WORK_DIR,
          .units = reach->units,
          .table = reach->units.front() == kStageC ? MUTANTS_TABLE : "",
          .link_command = std::string(
              std::istreambuf_iterator<char>(std::ifstream(MUTANTS_LINK_COMMAND).rdbuf()), {}),
          .shadow = MUTANTS_SOURCE_DIR "/tests/wrong/mutants/include",
          .config = MUTANTS_SOURCE_DIR "/tests/wrong/mutants/config_small.json",
          .filter = "*ForwardGate*host_*_" + variants + ":*Adversary*/" + variants +
                    (except.empty() ? "" : ":-" + except),
          .schedules = 2};
}

std::filesystem::path verdict_file(const std::string& name) {
  return std::filesystem::path(MUTANTS_WORK_DIR) / (name + ".verdict.json");
}

int try_one(const Mutant& mutant, bool must_survive) {
  std::filesystem::remove(verdict_file(mutant.name));
  const Trial trial =
      try_mutant(workshop(mutant.name == kControl ? std::filesystem::path() : mutant.file), mutant);
  std::printf("%s: %s:%d: '%s' -> '%s'\n%s: %s\n", mutant.name.c_str(), mutant.file.c_str(),
              mutant.line, mutant.before.c_str(), mutant.after.c_str(), name_of(trial.verdict),
              trial.evidence.c_str());
  const nlohmann::json verdict = {
      {"name", mutant.name},
      {"place", mutant.file.string() + ":" + std::to_string(mutant.line)},
      {"verdict", name_of(trial.verdict)},
      {"evidence", trial.evidence}};
  std::ofstream(verdict_file(mutant.name)) << verdict.dump(2) << "\n";
  const bool survived = trial.verdict == Verdict::kSurvived;
  return trial.verdict != Verdict::kError && survived == must_survive ? 0 : kFailed;
}

int report(const std::vector<Mutant>& mutants) {
  int killed = 0;
  for (const Mutant& mutant : mutants) {
    const auto verdict = nlohmann::json::parse(std::ifstream(verdict_file(mutant.name)), nullptr,
                                               /*allow_exceptions=*/false);
    const std::string how = verdict.is_object() ? verdict.value("verdict", "") : "not tried";
    if (how == name_of(Verdict::kGates) || how == name_of(Verdict::kSanitizer)) ++killed;
    const std::string place = mutant.file.string() + ":" + std::to_string(mutant.line);
    std::printf("%-36s %-40s %s\n", mutant.name.c_str(), place.c_str(), how.c_str());
  }
  std::printf("%d of %zu wrong kernels rejected\n", killed, mutants.size());
  return killed == static_cast<int>(mutants.size()) && killed > 0 ? 0 : kFailed;
}

int run(const std::vector<std::string>& arguments) {
  const std::filesystem::path source_dir = MUTANTS_SOURCE_DIR;
  std::string error;
  const std::vector<Mutant> mutants =
      make_mutants(source_dir, source_dir / "tests/wrong/mutants/catalogue.json", &error);
  if (!error.empty()) {
    std::fprintf(stderr, "%s\n", error.c_str());
    return kBadUsage;
  }
  const std::string command = arguments.empty() ? "" : arguments[0];
  if (command == "list" && arguments.size() == 1) {
    for (const Mutant& mutant : mutants) std::printf("%s\n", mutant.name.c_str());
    return 0;
  }
  if (command == "report" && arguments.size() == 1) return report(mutants);
  if (command == kControl && arguments.size() == 1) {
    Mutant control = unchanged(mutants.front());
    control.name = kControl;
    return try_one(control, /*must_survive=*/true);
  }
  if (command == "try" && arguments.size() == 2) {
    for (const Mutant& mutant : mutants) {
      if (mutant.name == arguments[1]) return try_one(mutant, /*must_survive=*/false);
    }
    std::fprintf(stderr, "unknown mutant '%s'; 'mutants list' names them\n", arguments[1].c_str());
    return kBadUsage;
  }
  std::fprintf(stderr, "usage: mutants list | control | try NAME | report\n");
  return kBadUsage;
}

}  // namespace
}  // namespace fp8_sdpa::wrong

int main(int argc, char** argv) { return fp8_sdpa::wrong::run({argv + 1, argv + argc}); }
