// What every variant asks of a problem, whatever it serves.
#pragma once

#include "fp8_sdpa/problem.hpp"
#include "fp8_sdpa/status.hpp"

namespace fp8_sdpa::detail {

/// Success, or kInvalidArgument with one line that names the field, its value and what would be
/// right. Looks at the description alone: touches no memory behind the pointers.
Status check_problem(const Problem& problem);

/// Of it, that every size is 1 or more and heads_kv divides heads_q.
Status check_counts(const Problem& problem);

/// Whether two problems differ in addresses and softmax_scale alone.
bool are_alike(const Problem& a, Problem b);

}  // namespace fp8_sdpa::detail
