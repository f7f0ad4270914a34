// What a wrong quantiser is put through: the gates of reference/judge/quantise_check.hpp.
#pragma once

#include <string_view>

#include "reference/judge/quantise_check.hpp"
#include "tests/wrong/trials.hpp"

namespace fp8_sdpa::wrong {

/// Whether a kernel's tag is one of the quantiser's.
bool is_quantiser(std::string_view kernel);

/// Puts what stands for one of the quantiser's kernels through all trials, or until it fails one.
void try_quantiser(std::string_view kernel, const reference::Quantiser& quantiser, Extent extent,
                   Outcome& outcome);

}  // namespace fp8_sdpa::wrong
