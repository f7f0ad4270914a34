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
  /// Where problems may ask for an LSE: it writes one for each, asked or not. Others decline those
  /// that ask.
  bool writes_lse;
  /// What decoded elements of O are to be multiplied by.
  double (*output_scale)(const Plan& plan);
};

/// The peers of one maker, and how to get them: one line where they are not there, else empty.
struct PeerSource {
  std::span<const Peer> peers;
  std::string (*missing)();
  void (*release_plans)();
};
const PeerSource& cudnn_source();  ///< without peers in a build without cudnn-frontend
const PeerSource& flash3_source();

/// The peers of the makers that are there.
const std::vector<Peer>& peers();

/// One line for each maker whose peers are not there: how to get them.
std::vector<std::string> missing_peers();

/// Frees what plans of peers hold. No such plan may be used afterwards.
void release_peer_plans();

/// O's bits, as Workload::output() returns them, as numbers in the format that was written there.
/// @pre bits.size() elements of 16 bits.
std::vector<float> decode_output(const std::vector<std::uint16_t>& bits, Dtype format,
                                 double scale);

}  // namespace fp8_sdpa::bench
