// The table of conformance cases: inputs, expectations, and how closely the backends must agree.
#pragma once

#include <functional>
#include <iosfwd>
#include <string>
#include <vector>

#include "tests/gpu_model/conformance/conformance.hpp"

namespace conformance {

struct Case {
  const char* name = "";
  Primitive primitive{};
  std::vector<std::byte> in;
  std::size_t out_bytes = 0;
  int count = 0;             ///< elements, for element-wise primitives; else 0
  int min_sm_version = 0;    ///< devices before this one do not have the instruction
  bool only_sm_90a = false;  ///< nor do those after sm_90
  /// Empty, or the first output that is not what is expected.
  std::function<std::string(const std::vector<std::byte>& out)> check;
  /// Empty, or the first output in which host and device differ more than they may.
  std::function<std::string(const std::vector<std::byte>& host,
                            const std::vector<std::byte>& device)>
      compare;
};

void PrintTo(const Case& c, std::ostream* out);

std::vector<Case> cases();

// Parts of the table.
void add_conversion_cases(std::vector<Case>& all);
void add_math_cases(std::vector<Case>& all);
void add_thread_cases(std::vector<Case>& all);
void add_matrix_cases(std::vector<Case>& all);
void add_mma_cases(std::vector<Case>& all);
void add_hopper_cases(std::vector<Case>& all);
void add_wgmma_cases(std::vector<Case>& all);

}  // namespace conformance
