// The tolerances of config_forward.json, for tests that judge without a configuration file.
#pragma once

#include "reference/config/config.hpp"

namespace fp8_sdpa::reference {

inline constexpr Tolerances kTolerances{.max_abs_err = 0.06,
                                        .mean_abs_err = 0.02,
                                        .pct_bad = 1.0,
                                        .bad_threshold = 0.06,
                                        .rel_l2_quantised = 0.06,
                                        .abs_kernel = 0.01,
                                        .rel_l2_kernel = 0.005,
                                        .rel_l2_kernel_fp8_p = 0.04};

}  // namespace fp8_sdpa::reference
