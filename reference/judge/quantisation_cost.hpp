// What quantising a case's tensors costs each head, and what the quantiser's options would leave of
// it.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "reference/oracle/case.hpp"

namespace fp8_sdpa::reference {

/// Of a query head: ||O' - O|| / ||O||, where O is fp64 attention of the tensors as they were and
/// O' of what they quantise to, in E4M3 with a descale a (batch, head). No kernel is in it.
struct QuantisationCost {
  std::int64_t batch = 0, head = 0;
  double plain = 0;   ///< of the codes that the case has
  double rotate = 0;  ///< Q and K rotated (Quantisation::rotate)
  double smooth = 0;  ///< the mean of the keys subtracted (Quantisation::smooth)
  double both = 0;
};

/// The costs, the head that loses most first. Three passes of the oracle.
std::vector<QuantisationCost> quantisation_costs(const CaseData& data);

/// A table as Markdown: the `most` worst heads, and below them the mean over all.
std::string cost_table(const std::vector<QuantisationCost>& costs, std::size_t most);

}  // namespace fp8_sdpa::reference
