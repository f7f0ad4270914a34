// What became of random mutants: a number, and the list that explains it.
#pragma once

#include <filesystem>
#include <string>
#include <vector>

#include "tests/wrong/random/generate.hpp"

namespace fp8_sdpa::wrong {

enum class Fate {
  kNotCompiled,  ///< not counted
  kSame,         ///< the compiler makes the same of it: not counted
  kEquivalent,   ///< lives, and equivalent.json has the reason: not counted
  kKilled,
  kLives,
};

struct Judged {
  Mutant mutant;
  Fate fate = Fate::kLives;
  std::string by;  ///< "trials", "host_tests", "gates", or a sanitizer's name
  std::string detail;
};

/// What a score is of.
struct Experiment {
  unsigned long seed = 0;
  std::string files;
  std::string commit;
  std::string command;
  double seconds = 0;
};

/// The reason why a mutant is equivalent, by a file of (file, line, becomes, reason); or "".
std::string reason_of(const Mutant& mutant, const std::filesystem::path& equivalents);

/// Takes over what an earlier score of the same draw says, but of what lived; returns the seconds
/// that it took. Throws where it is of another draw.
double take_over(const std::filesystem::path& score, std::vector<Judged>& all);

/// Writes mutation_score.json and mutation_score.md into `folder`; returns a line for people.
std::string write_score(const Experiment& experiment, const std::vector<Judged>& all,
                        const std::filesystem::path& folder);

}  // namespace fp8_sdpa::wrong
