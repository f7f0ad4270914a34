// What quantising a case's tensors costs each head, and what the quantiser's options would leave of
// it.
#pragma once

#include <array>
#include <cstdint>
#include <string>
#include <vector>

#include "reference/oracle/case.hpp"

namespace fp8_sdpa::reference {

struct NamedWay {
  const char* name;
  QuantisingWay way;
};
/// The first is that of the codes which a case has.
inline constexpr std::array<NamedWay, 6> kQuantisingWays = {{{"as it is", {}},
                                                             {"rotated", {true}},
                                                             {"smoothed", {false, true}},
                                                             {"both", {true, true}},
                                                             {"blocks", {false, false, true}},
                                                             {"blocks, both", {true, true, true}}}};

/// Of a query head, for each of kQuantisingWays: ||O' - O|| / ||O||, where O is fp64 attention of
/// the tensors as they were and O' of what they quantise to, in E4M3. No kernel is in it.
struct QuantisationCost {
  std::int64_t batch = 0, head = 0;
  std::array<double, kQuantisingWays.size()> of = {};
};

/// The costs, the head that loses most as it is first. A pass of the oracle for each other way.
std::vector<QuantisationCost> quantisation_costs(const CaseData& data);

/// A table as Markdown: the `most` worst heads, and below them the mean over all.
std::string cost_table(const std::vector<QuantisationCost>& costs, std::size_t most);

}  // namespace fp8_sdpa::reference
