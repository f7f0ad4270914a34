// Wrong kernels, made from the shipped ones: each is one edit of one file. A suite that lets one of
// them pass is not a gate.
#pragma once

#include <cstddef>
#include <filesystem>
#include <string>
#include <vector>

namespace fp8_sdpa::wrong {

/// One edited file.
struct Mutant {
  std::string name;
  std::filesystem::path file;  ///< relative to the source tree
  std::size_t at = 0;          ///< of the edit: offset in `text`
  int line = 0;                ///< the same, counted from 1
  std::string before;          ///< what stood there
  std::string after;           ///< what stands there now
  std::string text;            ///< the whole edited file
};

/// Every mutant that the catalogue asks for:
///   "erase":  for each match of a regular expression in the files of a few globs, one mutant
///             without it, so that a barrier added to a kernel is covered by itself. Comments do
///             not count. Named <stem>_<ordinal>[_<first word of the comment that follows>].
///   "faults": named edits, find -> replace; `find` must stand in the file exactly once.
/// On failure returns nothing and sets `error` to one line; so do a pattern that matches nothing
/// and a name that comes twice, for then the catalogue no longer fits the kernels.
std::vector<Mutant> make_mutants(const std::filesystem::path& source_dir,
                                 const std::filesystem::path& catalogue, std::string* error);

/// The mutant with its edit undone: the control of an experiment.
Mutant unchanged(Mutant mutant);

}  // namespace fp8_sdpa::wrong
