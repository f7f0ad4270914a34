// What a command line asks to be run: which variants, shapes and seeds.
#pragma once

#include <cstdint>
#include <functional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "dispatch/variant.hpp"
#include "fp8_sdpa/status.hpp"
#include "reference/config/config.hpp"

namespace fp8_sdpa::bench {

/// Looks up an environment variable: its value, or nullptr. std::getenv, or a test's own.
using Environment = std::function<const char*(const char*)>;

/// The process's environment.
Environment process_environment();

/// The names of all of the process's environment variables.
std::vector<std::string> environment_names();

/// kInvalidArgument for a name that begins with USE_ and is at most two letters, or any number of
/// underscores, from a toggle's without being one: whoever misspells a toggle would be given
/// another variant. Other programs' USE_* are nobody's business here.
Status check_toggle_names(const std::vector<std::string>& names);

/// Parts of "a,b,c", in order and without duplicates; empty parts are dropped.
std::vector<std::string> split_list(std::string_view text);

/// `base` with USE_KV_LUT, USE_CP_ASYNC, USE_VEC_PV, USE_WMMA_PV, USE_WARP_SPEC and USE_XOR_SWIZZLE
/// of the environment on top (0 or 1; anything else is kInvalidArgument and names the variable).
/// An illegal combination is declined with the reason of check_toggles().
Result<Toggles> default_toggles(const Toggles& base, const Environment& environment);

/// The Stage C variant with these toggles, or kInvalidArgument with the variants that are there.
Result<const Variant*> variant_of(const Toggles& toggles, std::span<const Variant> table);

/// The variants that names, globs (`*`, `?`, `[...]`) or "all" pick, in the order of the table and
/// once each. A pattern that picks nothing is kInvalidArgument with the variants that are there.
Result<std::vector<const Variant*>> select_variants(const std::vector<std::string>& patterns,
                                                    std::span<const Variant> table);

/// The shapes of these names or globs, in the order of the configuration.
Result<std::vector<reference::Shape>> select_shapes(const std::vector<std::string>& patterns,
                                                    const reference::Config& config);

/// The shapes of a suite, or of every suite for "all".
Result<std::vector<reference::Shape>> select_suite(const std::string& suite,
                                                   const reference::Config& config);

/// The seeds listed, in order and once each; the configuration's for an empty list.
Result<std::vector<std::uint64_t>> select_seeds(const std::vector<std::string>& seeds,
                                                const reference::Config& config);

}  // namespace fp8_sdpa::bench
