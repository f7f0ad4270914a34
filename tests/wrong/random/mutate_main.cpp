// Random single-point mutants of kernels, planner and checks: draws them, builds them, asks the
// gates, and says what lives.
//   mutate --seed N --count M [--files GLOB] [--out FOLDER] [--tsan BUILD] [--command TEXT]
//          [--asan BUILD] [--commit TEXT] [--again SCORE]
// A kernel's mutant goes through the trials of wrong_kernels, dozens of them in one binary; what
// lives, and a mutant of host code, goes into host_tests and gates, what then lives into the same
// with UndefinedBehaviorSanitizer, and into the trials of an AddressSanitizer and of a
// ThreadSanitizer build. --again takes over an earlier score of the same draw and judges what
// lived: for an explanation or a gate that came later, or after a run that was cut short, of which
// FOLDER/unfinished has the score so far.
// Exit code 0 if all were judged.
#include <fnmatch.h>

#include <chrono>
#include <cstdio>
#include <exception>
#include <fstream>
#include <map>
#include <mutex>
#include <nlohmann/json.hpp>
#include <optional>
#include <regex>
#include <set>
#include <sstream>
#include <string>
#include <vector>

#include "tests/wrong/faults.hpp"
#include "tests/wrong/random/generate.hpp"
#include "tests/wrong/random/score.hpp"
#include "tests/wrong/random/workshop.hpp"

namespace fp8_sdpa::wrong {
namespace {

namespace fs = std::filesystem;

constexpr int kBadUsage = 2;
constexpr int kShards = 16;
constexpr int kSecondsToBuild = 3600;
constexpr int kSecondsOfUnitTests = 60;
constexpr int kSecondsOfGates = 400;  // of the variants of a family, or of an eighth of all
constexpr int kShardsOfAllGates = 8;
/// The checks of the asan preset that need no library, and what they cost.
constexpr const char* kUndefined = "-fsanitize=undefined -fsanitize-undefined-trap-on-error";
constexpr int kTimesSlower = 4;

const fs::path kSource = MUTATE_SOURCE_DIR;
const fs::path kKernels = kSource / "kernels";
const fs::path kBuild = MUTATE_BUILD_DIR;
const fs::path kRoom = "tests/wrong/random";  // of a build tree

/// Kernels, planner and checks: not the executor, nor what prints and logs.
std::vector<fs::path> files_of(const Catalogue& catalogue, const std::string& glob) {
  static const std::regex kLeftOut("^(gpu|include|traced)/|/(debug_print|phase_log)\\.hpp$");
  std::set<fs::path> files;
  for (const auto& entry : fs::recursive_directory_iterator(kKernels)) {
    const fs::path file = entry.path().lexically_relative(kKernels);
    const std::string name = file.string();
    if (std::regex_search(name, kLeftOut) || fnmatch(glob.c_str(), name.c_str(), 0) != 0) continue;
    // Headers that no kernel has declare things, but for a constant or two.
    if (file.extension() == ".cpp" || ((file.extension() == ".hpp" || file.extension() == ".cuh") &&
                                       !families_of(catalogue, file, kKernels).empty())) {
      files.insert(file);
    }
  }
  return {files.begin(), files.end()};
}

/// The mutants as faults of a catalogue: what does not compile keeps its place there.
void write_catalogue(const std::vector<Judged*>& mutants, const fs::path& folder) {
  nlohmann::json faults = nlohmann::json::array();
  for (const Judged* judged : mutants) {
    const Mutant& m = judged->mutant;
    faults.push_back({{"name", m.name},
                      {"what", "`" + m.before + "` -> `" + m.after + "`"},
                      {"file", m.file.string()},
                      {"at", m.at},
                      {"line", m.line},
                      {"find", m.before},
                      {"replace", m.after},
                      {"judge", judged->fate == Fate::kNotCompiled ? "compiler" : "gates"}});
  }
  fs::create_directories(folder);
  fs::copy_file(kSource / "tests/wrong/faults/families.json", folder / "families.json",
                fs::copy_options::overwrite_existing);
  std::ofstream(folder / "mutants.json") << nlohmann::json{{"faults", faults}}.dump(1) << "\n";
}

/// The mutants that a compiler's log names where it says that something is wrong.
std::set<std::string> names_in(const std::string& log) {
  static const std::regex kError(
      "^(m[0-9]+):[0-9]+:.*(error:|required from)|undefined .*::(m[0-9]+)_");
  std::set<std::string> names;
  std::istringstream lines(log);
  std::string line;
  while (std::getline(lines, line)) {
    std::smatch match;
    if (std::regex_search(line, match, kError)) {
      names.insert(match[1].matched ? match[1].str() : match[3].str());
    }
  }
  return names;
}

/// Builds all mutants of kernels as one binary, without those that do not compile.
void build_kernels(const std::vector<Judged*>& mutants, const fs::path& build) {
  const fs::path work = build / kRoom;
  while (true) {
    write_catalogue(mutants, work / "catalogue");
    write_translation_units(read_catalogue(work / "catalogue", kKernels), kKernels, work / "units",
                            kShards, Judge::kGates);
    const fs::path log = work / "build.log";
    if (run("cmake --build '" + build.string() + "' --target random_kernels -- -k 0", log,
            kSecondsToBuild) == 0) {
      return;
    }
    const std::set<std::string> names = names_in(read_text(log));
    std::size_t dropped = 0;
    for (Judged* judged : mutants) {
      if (!names.contains(judged->mutant.name) || judged->fate == Fate::kNotCompiled) continue;
      judged->fate = Fate::kNotCompiled;
      ++dropped;
    }
    std::printf("%zu do not compile\n", dropped);
    std::fflush(stdout);
    if (dropped == 0) throw std::runtime_error("the mutants do not build: " + log.string());
  }
}

/// Through the trials of a build tree's wrong_kernels.
void try_kernels(const std::vector<Judged*>& mutants, const fs::path& build, const char* by) {
  if (mutants.empty()) return;
  build_kernels(mutants, build);
  const fs::path work = build / kRoom;
  fs::remove_all(work / "rows");
  run("'" + (build / "tests/wrong/random_kernels").string() + "' --kernels --catalogue '" +
          (work / "catalogue").string() + "' --work '" + (work / "rows").string() + "'",
      work / "trials.log", kSecondsToBuild);
  for (Judged* judged : mutants) {
    if (judged->fate == Fate::kNotCompiled) continue;
    const auto row =
        nlohmann::json::parse(read_text(work / "rows" / (judged->mutant.name + ".json")));
    for (const auto& finding : row.at("findings")) {
      if (finding.at("pass")) continue;
      judged->fate = Fate::kKilled;
      judged->by = by;
      judged->detail =
          finding.at("trial").get<std::string>() + ": " + finding.at("gate").get<std::string>();
      break;
    }
  }
}

/// The gates of the variants that have a mutant's file.
std::string filter_of(const Catalogue& catalogue, const fs::path& file) {
  std::string filter;
  for (const std::string& family : families_of(catalogue, file, kKernels)) {
    filter += (filter.empty() ? "" : ":") + catalogue.families.at(family).gates;
  }
  return filter.empty() ? "*" : filter + ":Hostile*:DeviceText*";
}

/// Whether what lives is known to be equivalent.
void explain(Judged& judged) {
  judged.detail = reason_of(judged.mutant, kSource / "tests/wrong/random/equivalent.json");
  if (!judged.detail.empty()) judged.fate = Fate::kEquivalent;
}

/// Host code, and what the trials let pass; `by` says who judges, where the binary does not.
void try_tests(const Catalogue& catalogue, Workshop& workshop, const char* by, Judged& judged) {
  const Mutant& mutant = judged.mutant;
  const Workshop::Built built = workshop.build(mutant);
  if (!built.compiles || !built.differs) {
    judged.fate = built.compiles ? Fate::kSame : Fate::kNotCompiled;
    return;
  }
  const bool is_host_code = families_of(catalogue, mutant.file, kKernels).empty();
  const struct {
    const char* binary;
    std::string filter;
    int seconds, shards;
  } tests[] = {{"tests/host_tests", "*", kSecondsOfUnitTests, 1},
               {"tests/gates/gates", filter_of(catalogue, mutant.file), kSecondsOfGates,
                is_host_code ? kShardsOfAllGates : 1}};
  for (const auto& test : tests) {
    const std::optional<std::string> failure =
        workshop.failure_of(mutant, built, test.binary, test.filter,
                            test.seconds * (by != nullptr ? kTimesSlower : 1), test.shards);
    if (!failure) {
      judged.fate = Fate::kNotCompiled;
      return;
    }
    if (failure->empty()) continue;
    judged.detail = *failure;
    judged.fate = Fate::kKilled;
    judged.by = by != nullptr ? by : fs::path(test.binary).filename().string();
    return;
  }
  explain(judged);
}

void say(const Judged& judged) {
  if (judged.fate != Fate::kLives) return;
  const Mutant& m = judged.mutant;
  std::printf("LIVES %s %s:%d: '%s' -> '%s' in: %s\n", m.name.c_str(), m.file.c_str(), m.line,
              m.before.c_str(), m.after.c_str(), m.line_text.c_str());
  std::fflush(stdout);
}

/// What lives, through the trials of the sanitizers' build trees; empty: there is none.
void try_sanitizers(const Catalogue& catalogue, const fs::path& asan, const fs::path& tsan,
                    std::vector<Judged*> left) {
  if (!asan.empty()) {
    std::erase_if(left, [&](const Judged* judged) {
      return judged->fate != Fate::kLives ||
             families_of(catalogue, judged->mutant.file, kKernels).empty();
    });
    try_kernels(left, asan, "AddressSanitizer");
  }
  if (!tsan.empty()) {
    // Blocks of sm90 take minutes there.
    std::erase_if(left, [&](const Judged* judged) {
      const auto families = families_of(catalogue, judged->mutant.file, kKernels);
      return judged->fate != Fate::kLives || families.empty() || families.back() == "sm90";
    });
    try_kernels(left, tsan, "ThreadSanitizer");
  }
}

int judge_all(const std::map<std::string, std::string>& options) {
  const auto start = std::chrono::steady_clock::now();
  const Catalogue catalogue = read_catalogue(kSource / "tests/wrong/faults", kKernels);
  const unsigned long seed = std::stoul(options.at("--seed"));
  const std::string glob = options.at("--files");
  std::vector<Judged> all;
  for (Mutant& mutant :
       draw(kKernels, files_of(catalogue, glob), seed, std::stoul(options.at("--count")))) {
    all.push_back({std::move(mutant), Fate::kLives, "", ""});
  }
  Workshop workshop(kSource, kBuild, kBuild / kRoom);
  workshop.check_unedited();
  double before = 0.0;
  if (!options.at("--again").empty()) {
    before = take_over(options.at("--again"), all);
    for (Judged& judged : all) {
      if (judged.fate == Fate::kLives) explain(judged);
    }
  }
  std::vector<Judged*> kernels;
  for (Judged& judged : all) {
    if (judged.fate != Fate::kLives) continue;
    fs::remove_all(kBuild / kRoom / judged.mutant.name);
    if (!families_of(catalogue, judged.mutant.file, kKernels).empty()) kernels.push_back(&judged);
  }
  try_kernels(kernels, kBuild, "trials");
  std::vector<Judged*> left;
  for (Judged& judged : all) {
    if (judged.fate == Fate::kLives) left.push_back(&judged);
  }
  const auto seconds = [&] {
    return std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
  };
  const auto write = [&](const fs::path& folder) {
    return write_score(
        {seed, glob, options.at("--commit"), options.at("--command"), before + seconds()}, all,
        folder);
  };
  const fs::path unfinished = fs::path(options.at("--out")) / "unfinished";
  fs::create_directories(unfinished);
  std::mutex one_at_a_time;
  const auto try_all = [&](Workshop& where, const char* by) {
    on_all_cores(left.size(), [&](std::size_t i) {
      Judged judged = *left[i];
      try_tests(catalogue, where, by, judged);
      const std::lock_guard lock(one_at_a_time);
      *left[i] = judged;
      write(unfinished);
    });
    std::erase_if(left, [](const Judged* judged) { return judged->fate != Fate::kLives; });
  };
  std::printf("%zu mutants, %zu of kernels; %zu left after %.0f s\n", all.size(), kernels.size(),
              left.size(), seconds());
  std::fflush(stdout);
  write(unfinished);
  try_all(workshop, nullptr);
  std::printf("%zu left after %.0f s\n", left.size(), seconds());
  std::fflush(stdout);
  Workshop checked(kSource, kBuild, kBuild / kRoom / "checked", kUndefined);
  try_all(checked, "UndefinedBehaviorSanitizer");
  try_sanitizers(catalogue, options.at("--asan"), options.at("--tsan"), left);
  for (const Judged& judged : all) say(judged);
  const std::string line = write(options.at("--out"));
  fs::remove_all(unfinished);
  std::printf("%s (%.0f s)\n", line.c_str(), seconds());
  return 0;
}

}  // namespace
}  // namespace fp8_sdpa::wrong

int main(int argc, char** argv) {
  std::map<std::string, std::string> options = {{"--files", "*"}, {"--out", "results"}};
  for (const char* name :
       {"--seed", "--count", "--asan", "--tsan", "--command", "--commit", "--again"}) {
    options[name] = "";
  }
  for (int i = 1; i < argc; i += 2) {
    if (i + 1 == argc || !options.contains(argv[i])) {
      options["--seed"] = "";
      break;
    }
    options[argv[i]] = argv[i + 1];
  }
  const auto is_number = [](const std::string& text) {
    return !text.empty() && text.find_first_not_of("0123456789") == std::string::npos;
  };
  if (!is_number(options["--seed"]) || !is_number(options["--count"])) {
    std::fprintf(
        stderr, "usage: mutate --seed N --count M [--files GLOB] [--out FOLDER] [--again SCORE]\n");
    return fp8_sdpa::wrong::kBadUsage;
  }
  try {
    return fp8_sdpa::wrong::judge_all(options);
  } catch (const std::exception& problem) {
    std::fprintf(stderr, "mutate: %s\n", problem.what());
    return 1;
  }
}
