// Google Benchmark's filter, looked at before anything is run: it says little of one that is wrong.
#pragma once

#include <string>
#include <vector>

#include "fp8_sdpa/status.hpp"

namespace fp8_sdpa::bench {

/// kInvalidArgument for a --benchmark_filter (a POSIX regular expression; a "-" before it picks all
/// others) that is none, or picks nothing of `names`.
Status check_filter(const std::string& filter, const std::vector<std::string>& names);

}  // namespace fp8_sdpa::bench
