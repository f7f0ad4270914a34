// Builds a mutant in a finished build tree and asks the gates about it.
#pragma once

#include <filesystem>
#include <string>
#include <vector>

#include "tests/wrong/mutants/mutants.hpp"

namespace fp8_sdpa::wrong {

/// Where and how mutants are built. Only the translation units that hold the edited kernels'
/// instances are compiled again; everything else comes from the build tree.
struct Workshop {
  std::filesystem::path source_dir;
  std::filesystem::path build_dir;  ///< of a ThreadSanitizer build; has compile_commands.json
  std::filesystem::path work_dir;   ///< of the trials
  std::vector<std::string> units;   ///< the translation units, relative to source_dir
  std::string table;                ///< an object with a table of fewer variants; or empty
  std::string link_command;      ///< "@MUTANT@" stands for the objects, "@BINARY@" for the result
  std::filesystem::path shadow;  ///< headers that stand in for the shipped ones in every trial
  std::filesystem::path config;  ///< the gates' configuration: small shapes
  std::string filter;            ///< the gates that are asked
  int schedules = 0;             ///< seeds per schedule of the executor
};

enum class Verdict {
  kGates,      ///< the gates alone failed it
  kSanitizer,  ///< the gates passed it, ThreadSanitizer did not
  kSurvived,   ///< nobody noticed
  kError,      ///< it could not be tried: it does not build, or the gates did not run
};
const char* name_of(Verdict verdict);

struct Trial {
  Verdict verdict = Verdict::kError;
  std::string evidence;  ///< the first line that says what was wrong
};

/// Builds the mutant and runs the gates, first with ThreadSanitizer's reports off, then on.
Trial try_mutant(const Workshop& workshop, const Mutant& mutant);

}  // namespace fp8_sdpa::wrong
