// Builds a mutant into the test binaries of a finished build tree, and runs them.
#pragma once

#include <cstddef>
#include <filesystem>
#include <functional>
#include <map>
#include <mutex>
#include <optional>
#include <string>
#include <vector>

#include "tests/wrong/faults.hpp"
#include "tests/wrong/random/generate.hpp"

namespace fp8_sdpa::wrong {

/// Runs a shell command with its output in `log`; its status, or 124 when a process of it has had
/// so many seconds of a core, or the command ten times as many in all.
int run(const std::string& command, const std::filesystem::path& log, int seconds);

/// Calls work(i) for each i below count, on as many threads as there are cores; throws what the
/// first of them threw.
void on_all_cores(std::size_t count, const std::function<void(std::size_t)>& work);

class Workshop {
 public:
  /// Mutants are compiled with `flags` beside those of the tree.
  Workshop(std::filesystem::path source, std::filesystem::path build, std::filesystem::path work,
           std::string flags = "");

  /// Objects of the translation units that hold a mutant's file: it alone, if no kernel has it,
  /// else those of kernels that between them hold every line.
  struct Built {
    bool compiles = true;
    bool differs = false;  ///< from what the file as it is gives
    std::string objects;
  };
  Built build(const Mutant& mutant);

  /// std::runtime_error where tests fail without a mutant: each would be a kill.
  void check_unedited();

  /// What a test binary says of the mutant: empty if it passes, else the test that fails; no value
  /// where it does not link (host code that names what a build without CUDA lacks). Its tests run
  /// as `shards` processes side by side, each for so many seconds of a core at most.
  std::optional<std::string> failure_of(const Mutant& mutant, const Built& built,
                                        const std::string& binary, const std::string& filter,
                                        int seconds, int shards);

 private:
  enum class Which { kTried, kOthers };  ///< kernels of a family
  std::vector<std::filesystem::path> units_of(const std::filesystem::path& file, Which which) const;
  std::string compile_command(const std::filesystem::path& unit,
                              const std::filesystem::path& shadow,
                              const std::filesystem::path& object) const;
  std::filesystem::path unedited(const std::filesystem::path& unit);

  std::filesystem::path source_, build_, work_;
  std::string flags_;
  Catalogue catalogue_;
  std::map<std::filesystem::path, std::string> commands_;  ///< of each unit
  std::mutex mutex_;
};

}  // namespace fp8_sdpa::wrong
