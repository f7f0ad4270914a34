// The kill matrix: which gate killed which wrong kernel, by what margin, and which published gates
// would have let it through.
#pragma once

#include <filesystem>
#include <string>
#include <vector>

#include "tests/wrong/trials.hpp"

namespace fp8_sdpa::wrong {

/// A wrong kernel and what became of it.
struct Row {
  std::string name;
  std::string what;
  std::string kind;   ///< "kernel" (an edit of a shipped source) or "model"
  std::string place;  ///< the edited file, or the family of the rounding model
  std::string variant;
  Outcome outcome;
};

/// One row as JSON text, and back; the form in which a trial's process hands over its result.
std::string encode_row(const Row& row);
Row decode_row(const std::string& text);

/// Writes kill_matrix.json (every failed gate of every trial) and kill_matrix.md (a line per fault)
/// into `folder`. Returns whether every fault was killed.
bool write_matrix(const std::vector<Row>& rows, const std::filesystem::path& folder);

}  // namespace fp8_sdpa::wrong
