// What metamorphic tests are asked of: variants on a backend, and what judges them, the oracle and
// the model.
#pragma once

#include <cstdint>
#include <functional>
#include <iosfwd>
#include <string>
#include <vector>

#include "reference/formats/fp8.hpp"
#include "reference/judge/harness.hpp"
#include "tests/gates/gate_cases.hpp"

namespace fp8_sdpa::tests {

struct Subject {
  std::string name;  ///< "<backend>_<kernel>", "host_oracle", "host_model_half", "host_model_e4m3"
  Backend backend = Backend::kHost;
  Dtype weights = Dtype::kHalf;  ///< what P is rounded to
  /// O as bits of `output`, and LSE, from codes and descales.
  std::function<Result<reference::RunOutput>(const reference::CaseData&, const Device&,
                                             Dtype output, const PlanOptions& options)>
      run;
  Kernel kernel = {};  ///< what it is for; no variant where it is the oracle or the rounding model

  bool fp8_p() const { return is_fp8(weights); }
  /// Skips the calling test where the backend cannot be used.
  bool prepare(Device* device) const { return use_backend(backend, device); }
};
void PrintTo(const Subject& subject, std::ostream* os);

/// Every kernel on each backend, the oracle, and the model with half and with E4M3 weights.
std::vector<Subject> all_subjects();

/// Codes and descales of drawn inputs, without references.
reference::CaseData codes_of(const reference::Shape& shape, std::uint64_t seed,
                             Dtype dtype = Dtype::kE4M3);

/// Gives each (batch, head) descales of its own: 2^-2 to 2^2 apart, and no powers of two.
void vary_descales(reference::CaseData& data);

/// Gives each block of rows descales of its own, likewise: Granularity::kBlock.
void vary_block_descales(reference::CaseData& data);

/// A plan's launch, made once: on a GPU captured in a graph, which runs each time; on the host
/// executor forward(). The plan's memory outlives it.
using Launch = std::function<Status()>;
Result<Launch> kept_launch(const Plan& plan, void* workspace);

}  // namespace fp8_sdpa::tests
