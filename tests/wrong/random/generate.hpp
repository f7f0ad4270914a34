// Random single-point mutants: where a source could be wrong, and a draw of such edits.
#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <string>
#include <vector>

namespace fp8_sdpa::wrong {

/// A place of a source, a kind of mistake, and what it could turn the place into.
struct Place {
  std::size_t at = 0;
  std::string before;
  std::string kind;
  std::vector<std::string> afters;
};

/// One edit of one file. Known by file, line_text and becomes, which survive that lines move.
struct Mutant {
  std::string name;            ///< m and its number in the draw
  std::filesystem::path file;  ///< relative to kernels/
  std::size_t at = 0;
  int line = 0;
  std::string line_text;  ///< without the spaces around it
  std::string becomes;    ///< the edited line
  std::string before;
  std::string after;
  std::string kind;
};

/// Every place of a text but in comments, literals, static_assert and lines of the preprocessor.
std::vector<Place> places_of(const std::string& text);

/// `count` different mutants of the files, uniform over (file, place, kind), then over what the
/// place could become. Equal seeds and sources give equal draws, and longer ones begin with
/// shorter.
std::vector<Mutant> draw(const std::filesystem::path& kernels,
                         const std::vector<std::filesystem::path>& files, std::uint64_t seed,
                         std::size_t count);

}  // namespace fp8_sdpa::wrong
