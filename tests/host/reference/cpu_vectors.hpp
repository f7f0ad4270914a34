// The vectors that the CPU of this test has.
#pragma once

#include <vector>

#include "reference/oracle/vectors.hpp"

namespace fp8_sdpa::reference {

inline std::vector<Vectors> vectors_of_this_cpu() {
  std::vector<Vectors> all = {Vectors::kBaseline};
  if (widest_vectors() >= Vectors::kAvx2) all.push_back(Vectors::kAvx2);
  if (widest_vectors() >= Vectors::kAvx512) all.push_back(Vectors::kAvx512);
  return all;
}

}  // namespace fp8_sdpa::reference
