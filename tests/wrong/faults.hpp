// The catalogue of wrong kernels (faults/), and the C++ that each becomes: one edit of one shipped
// file, in a namespace of its own, so that dozens of wrong kernels compile as a few translation
// units beside the right ones.
#pragma once

#include <cstddef>
#include <filesystem>
#include <map>
#include <string>
#include <vector>

namespace fp8_sdpa::wrong {

/// Who must notice.
enum class Judge {
  kGates,     ///< the gates, in every build
  kAddress,   ///< AddressSanitizer: what is read out of bounds is not used
  kRace,      ///< the gates or ThreadSanitizer, in its build: a barrier, wait or commit is erased
  kCompiler,  ///< it is rejected; it keeps its place, so that the others stay in their units
};

/// "gates", "address", "race", "compiler"; std::runtime_error otherwise.
Judge judge_of(const std::string& name);

/// One edit of a shipped kernel source.
struct Fault {
  std::string name;            ///< letters, digits, underscores; an erased statement's comes with
                               ///< each kernel that might show it
  std::string what;            ///< one line for people: the mistake
  std::string family;          ///< of kernels: a key of Catalogue::families
  std::string kernel;          ///< of that family that is built with it: its tag
  std::filesystem::path file;  ///< relative to kernels/
  std::string find;            ///< stands there exactly once, but for what is erased
  std::string replace;
  Judge judge = Judge::kGates;
  std::size_t at = 0;  ///< of `find` in the file
  int line = 0;        ///< the same, from 1: of what is erased
};

/// How a family's kernels are compiled from text.
struct FaultFamily {
  std::vector<std::string> roots;  ///< files, relative to kernels/, that hold its launch function
  std::string defines;             ///< lines before them
  std::string launch;              ///< the launch function; @KERNEL@ stands for the kernel's tag
  std::vector<std::string>
      kernels;  ///< that between them hold every line: what is erased is tried as
  /// Of the launch function: WrongKernel::Launch's, or what the family says.
  std::string parameters = "const fp8_sdpa::Problem& problem, const gpu::Queue& queue";
  std::string arguments = "problem, queue";
  std::string gates;  ///< those that run its kernels, as a filter of GoogleTest: by its name, or
                      ///< what the family says
};

struct Catalogue {
  std::map<std::string, FaultFamily> families;
  std::vector<Fault> faults;
};

/// A whole file.
std::string read_text(const std::filesystem::path& path);

/// Reads a folder with families.json and, in the other JSON files, faults of one family each, or
///   "erase": for each match of a regular expression in the files of a few globs, a fault without
///            it for each kernel of each family that has the file, so that a barrier added to a
///            kernel is covered by itself. Comments do not count. Named
///            <stem>_<ordinal>[_<first word of the comment that follows>].
/// A fault with "at" and "line" may stand more than once, and is tried as each of those kernels
/// too. Tries each edit against the sources under `kernels`: throws std::runtime_error, naming the
/// fault, where a file is missing, or `find` does not stand in it exactly once, or a pattern
/// matches nothing, or a name comes twice.
Catalogue read_catalogue(const std::filesystem::path& folder, const std::filesystem::path& kernels);

/// The families that have kernels to try and whose text has a file of kernels/.
std::vector<std::string> families_of(const Catalogue& catalogue, const std::filesystem::path& file,
                                     const std::filesystem::path& kernels);

/// The text of a wrong kernel: its family's roots and all that they include from kernels/ but gpu/
/// and fp8_sdpa/, each file once, edited, in namespace fp8_sdpa::<fault's name>_<kernel>.
std::string flatten(const Catalogue& catalogue, const Fault& fault,
                    const std::filesystem::path& kernels);

/// Writes the faults of one judge, in their order, as `shards` translation units faults_<n>.cpp,
/// and faults_table.cpp, which defines wrong_kernels() (wrong_kernels.hpp), into `folder`.
void write_translation_units(const Catalogue& catalogue, const std::filesystem::path& kernels,
                             const std::filesystem::path& folder, int shards, Judge judge);

}  // namespace fp8_sdpa::wrong
