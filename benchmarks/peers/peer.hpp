// Somebody else's kernel behind our interface, so that everything that times and judges ours does
// the same to it.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "benchmarks/peers/sampled_case.hpp"
#include "dispatch/variant.hpp"
#include "fp8_sdpa/plan.hpp"
#include "fp8_sdpa/status.hpp"

namespace fp8_sdpa::bench {

/// A peer. Its variant is used as any other: supports(problem, device) says why not, plan()
/// prepares, forward(plan, stream) launches, on a stream or in a graph's capture. It is not in the
/// library's table.
///
/// Inputs are the problem's own, which must have one scale per tensor (SampledCase): FP8 peers read
/// them where they are, bf16 peers get the same values as bf16, made when the plan is. O's memory
/// receives the peer's own format, whatever 16-bit format the problem says; an FP8 output fills the
/// first half of it.
struct Peer {
  Variant variant;  ///< its name is "peer/..."
  Formats formats;
  /// What decoded elements of O are to be multiplied by.
  double (*output_scale)(const Plan& plan);
};

/// Peers that this build has; empty without cudnn-frontend.
std::span<const Peer> peers();

/// One line: which peers this build lacks, and how to get them. Empty where it has them all.
std::string missing_peers();

/// Frees what plans of peers hold. No such plan may be used afterwards.
void release_peer_plans();

/// O's bits, as Workload::output() returns them, as numbers in the format that was written there.
/// @pre bits.size() elements of 16 bits.
std::vector<float> decode_output(const std::vector<std::uint16_t>& bits, Dtype format,
                                 double scale);

}  // namespace fp8_sdpa::bench
