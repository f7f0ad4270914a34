// What a block asks of a multiprocessor, where that depends on the head dim.
#pragma once

#include "dispatch/variant.hpp"

namespace fp8_sdpa {

/// What one block of the variant's kernel for `head_dim` asks for. `variant.resources` for kernels
/// of one shape, and for a head dim that the variant does not serve.
Resources resources_at(const Variant& variant, int head_dim);

}  // namespace fp8_sdpa
