#include "tests/wrong/random/workshop.hpp"

#include <sys/wait.h>

#include <algorithm>
#include <atomic>
#include <csignal>
#include <cstdlib>
#include <exception>
#include <fstream>
#include <nlohmann/json.hpp>
#include <regex>
#include <sstream>
#include <stdexcept>
#include <thread>
#include <utility>

namespace fp8_sdpa::wrong {
namespace {

namespace fs = std::filesystem;

constexpr int kTimeIsOver = 124;
constexpr int kSignalled = 128;  // of a shell's status
constexpr int kSecondsToBuild = 300;

std::string quote(const std::string& word) { return "'" + word + "'"; }

void write_text(const fs::path& path, const std::string& text) {
  fs::create_directories(path.parent_path());
  std::ofstream(path) << text;
}

}  // namespace

int run(const std::string& command, const fs::path& log, int seconds) {
  fs::create_directories(log.parent_path());
  const fs::path script = fs::path(log).replace_extension(".sh");
  std::ofstream(script) << "ulimit -t " << seconds << "\n" << command << "\n";
  const std::string line = "timeout -k 5 " + std::to_string(10 * seconds) + " sh " +
                           quote(script.string()) + " >" + quote(log.string()) + " 2>&1";
  const int status = std::system(line.c_str());
  const int code = WIFEXITED(status) ? WEXITSTATUS(status) : kTimeIsOver;
  return code == kSignalled + SIGXCPU || code == kSignalled + SIGKILL ? kTimeIsOver : code;
}

void on_all_cores(std::size_t count, const std::function<void(std::size_t)>& work) {
  std::atomic<std::size_t> next = 0;
  std::exception_ptr problem;
  std::once_flag first;
  std::vector<std::thread> threads;
  for (unsigned i = 0; i < std::max(1U, std::thread::hardware_concurrency()); ++i) {
    threads.emplace_back([&] {
      try {
        for (std::size_t at = next++; at < count; at = next++) work(at);
      } catch (...) {
        std::call_once(first, [&] { problem = std::current_exception(); });
        next = count;
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  if (problem) std::rethrow_exception(problem);
}

namespace {

/// Runs a test binary in `folder` as so many processes side by side; its exit status.
int run_tests(const fs::path& binary, const fs::path& folder, const std::string& filter,
              int seconds, int shards, const fs::path& log) {
  const std::string tests =
      quote(binary.string()) + " --gtest_fail_fast --gtest_brief=1 --gtest_filter=" + quote(filter);
  const std::string all = std::to_string(shards);
  return run("cd " + quote(folder.string()) + "; export GTEST_TOTAL_SHARDS=" + all +
                 "; status=0; pids=; i=0; while [ $i -lt " + all + " ]; do GTEST_SHARD_INDEX=$i " +
                 tests +
                 " > shard_$i 2>&1 & pids=\"$pids $!\"; i=$((i + 1)); done; "
                 "for pid in $pids; do wait $pid || status=$?; done; cat shard_*; exit $status",
             log, seconds);
}

}  // namespace

Workshop::Workshop(fs::path source, fs::path build, fs::path work, std::string flags)
    : source_(std::move(source)),
      build_(std::move(build)),
      work_(std::move(work)),
      flags_(std::move(flags)) {
  fs::remove_all(work_ / "unedited");
  catalogue_ = read_catalogue(source_ / "tests/wrong/faults", source_ / "kernels");
  const auto commands = nlohmann::json::parse(read_text(build_ / "compile_commands.json"));
  for (const auto& entry : commands) {
    static const std::regex kOutput(" -o [^ ]+");
    commands_[entry.at("file").get<std::string>()] =
        "cd " + quote(entry.at("directory")) + " && " +
        std::regex_replace(entry.at("command").get<std::string>(), kOutput, "");
  }
  compile_command(source_ / "kernels/dispatch/plan.cpp", "", "o");  // or throws
}

std::vector<fs::path> Workshop::units_of(const fs::path& file, Which which) const {
  std::vector<fs::path> units;
  const auto families = families_of(catalogue_, file, source_ / "kernels");
  if (file.extension() == ".cpp" && which == Which::kTried) {
    units.push_back(source_ / "kernels" / file);
  }
  for (const std::string& family : families) {
    const auto& kernels = catalogue_.families.at(family).kernels;
    for (const auto& [unit, command] : commands_) {
      const std::string name = unit.filename();
      if (unit.parent_path() != build_ / "kernels/instances" || !name.starts_with(family + "_")) {
        continue;
      }
      // A part of a family a unit, or the kernels of exact and rounded sums.
      const std::string kernel = name.substr(0, name.rfind("_host"));
      const bool tried = kernel.size() == family.size() + 2 ||
                         std::any_of(kernels.begin(), kernels.end(), [&](const std::string& one) {
                           return one == kernel || one.starts_with(kernel + "_");
                         });
      const bool for_host = name.ends_with("_host.cpp");
      if (for_host && tried == (which == Which::kTried)) units.push_back(unit);
    }
  }
  return units;
}

std::string Workshop::compile_command(const fs::path& unit, const fs::path& shadow,
                                      const fs::path& object) const {
  const auto found = commands_.find(unit);
  if (found == commands_.end()) {
    throw std::runtime_error(unit.string() +
                             " is not compiled on its own: build without SDPA_UNITY");
  }
  std::string command = found->second;
  const std::string kernels = (source_ / "kernels").string();
  if (!shadow.empty()) {
    const fs::path copy = shadow / unit.lexically_relative(kernels);
    if (fs::exists(copy)) {
      command.replace(command.rfind(unit.string()), unit.string().size(), copy.string());
    }
    const std::size_t first_option = command.find(" -", command.find("&&"));
    command.insert(first_option, " -I" + shadow.string() + " -ffile-prefix-map=" + shadow.string() +
                                     "=" + kernels);
  }
  return command + " -w -g0 -O1 " + flags_ + " -o " + quote(object.string());
}

fs::path Workshop::unedited(const fs::path& unit) {
  const fs::path object = work_ / "unedited" / (unit.filename().string() + ".o");
  const std::lock_guard lock(mutex_);
  if (fs::exists(object)) return object;
  fs::create_directories(object.parent_path());
  if (run(compile_command(unit, "", object), object.string() + ".log", kSecondsToBuild) != 0) {
    throw std::runtime_error(unit.string() + " does not compile: " + object.string() + ".log");
  }
  return object;
}

Workshop::Built Workshop::build(const Mutant& mutant) {
  const fs::path folder = work_ / mutant.name;
  const fs::path shadow = folder / "include";
  std::string text = read_text(source_ / "kernels" / mutant.file);
  write_text(shadow / mutant.file, text.replace(mutant.at, mutant.before.size(), mutant.after));
  Built built;
  for (const Which which : {Which::kTried, Which::kOthers}) {
    if (built.differs) break;
    for (const fs::path& unit : units_of(mutant.file, which)) {
      const fs::path object = folder / (unit.filename().string() + ".o");
      const fs::path log = object.string() + ".log";
      if (run(compile_command(unit, shadow, object), log, kSecondsToBuild) != 0) {
        built.compiles = false;
        return built;
      }
      if (read_text(object) == read_text(unedited(unit))) continue;
      built.differs = true;
      built.objects += " " + quote(object.string());
    }
  }
  return built;
}

void Workshop::check_unedited() {
  const fs::path folder = work_ / "unedited_tests";
  constexpr int kSeconds = 1000;
  constexpr int kShards = 8;
  for (const char* binary : {"tests/host_tests", "tests/gates/gates"}) {
    const fs::path log = folder / (fs::path(binary).filename().string() + ".log");
    if (run_tests(build_ / binary, folder, "*", kSeconds, kShards, log) == 0) continue;
    throw std::runtime_error(std::string(binary) + " fails without a mutant: " + log.string());
  }
}

std::optional<std::string> Workshop::failure_of(const Mutant& mutant, const Built& built,
                                                const std::string& binary,
                                                const std::string& filter, int seconds,
                                                int shards) {
  const fs::path folder = work_ / mutant.name;
  const std::string name = fs::path(binary).filename();
  const fs::path log = folder / (name + ".log");
  const fs::path linked = folder / name;
  const fs::path how = folder / (name + ".link");
  if (run("ninja -C " + quote(build_.string()) + " -t commands " + binary + " | tail -n 1", how,
          kSecondsToBuild) != 0) {
    throw std::runtime_error("no command links " + binary);
  }
  std::string link = read_text(how);
  link.erase(link.rfind("&& :"));
  const std::string output = "-o " + binary;
  // Before the archive, so that nobody asks that for the unedited ones.
  link.replace(link.find(output), output.size(), built.objects + " -o " + quote(linked.string()));
  if (run("cd " + quote(build_.string()) + " && " + link, log, kSecondsToBuild) != 0) {
    if (read_text(log).find("undefined reference") != std::string::npos) return std::nullopt;
    throw std::runtime_error(mutant.name + " does not link: " + log.string());
  }
  const int status = run_tests(linked, folder, filter, seconds, shards, log);
  fs::remove(linked);
  if (status == 0) return "";
  if (status == kTimeIsOver) return "it hung";
  std::smatch match;
  const std::string text = read_text(log);
  static const std::regex kFailed("\\[  FAILED  \\] ([^ ,\\n]+)");
  return std::regex_search(text, match, kFailed) ? match[1].str()
                                                 : "exit status " + std::to_string(status);
}

}  // namespace fp8_sdpa::wrong
