// Runs a quantiser on a case and judges what it wrote: codes and descales bit by bit where nothing
// is transformed, and else within what fp32 sums may differ by.
#pragma once

#include <cstdint>
#include <functional>
#include <vector>

#include "fp8_sdpa/quantise.hpp"
#include "reference/judge/gates.hpp"
#include "reference/judge/harness.hpp"

namespace fp8_sdpa::reference {

/// What is quantised, and how.
struct QuantiserCase {
  int batch = 2;
  int heads = 3;
  std::int64_t seq = 300;
  int head_dim = 64;
  Dtype from = Dtype::kBFloat16;
  Dtype to = Dtype::kE4M3;
  bool rotate = false;
  bool smooth = false;
  bool sequence_major = false;
  bool broadcast = false;  ///< the values are those of one head, which all heads are
  bool counts = true;      ///< infinities
  bool keeps_mean = true;
  int dot_group = 0;    ///< heads that share a vector for `dots`; 0: none are asked for
  double offset = 0.0;  ///< of all values, for quantiser_values()
  std::vector<float> static_descales = {};
  int block_rows = 0;  ///< rows that share a descale; 0: a head's
  std::uint64_t seed = 7;

  Extent extent(std::int64_t pad) const {
    return {batch, heads, seq, head_dim, sequence_major, pad};
  }
  std::size_t blocks() const {
    return static_cast<std::size_t>(block_rows == 0 ? 1 : (seq + block_rows - 1) / block_rows);
  }
  std::size_t all_heads() const {
    return static_cast<std::size_t>(batch) * static_cast<std::size_t>(heads);
  }
};

/// What a quantiser writes; codes are contiguous.
struct Quantised {
  std::vector<std::uint8_t> codes;
  std::vector<float> descales;
  std::vector<float> mean;
  std::vector<float> dots;
  std::uint32_t infinities = 0;
  bool operator==(const Quantised&) const = default;
};

/// Quantises on a device: fp8_sdpa::quantise, or what is tried in its place.
using Quantiser = std::function<Status(const QuantisePlan&, void* workspace)>;
/// The library's own.
Status quantise_now(const QuantisePlan& plan, void* workspace);

/// Values that `from` can hold: heads 2^-6 to 2^6 apart, channels with offsets, and in each head
/// one largest value, whose place moves through rows and columns from head to head.
std::vector<float> quantiser_values(const QuantiserCase& request);

/// Runs it on `values`, (batch, heads, seq, head_dim) contiguous, in padded memory between guard
/// bands. Gates: "guards", "padding".
Result<Quantised> run_quantiser(const QuantiserCase& request, const std::vector<float>& values,
                                const Device& device, std::vector<GateResult>& gates,
                                const Quantiser& quantiser = quantise_now);

/// Gates: "descales", "mean", "dots" (the largest difference over what is allowed), "codes" (the
/// number of wrong ones), "infinities" (the difference of the counts).
std::vector<GateResult> judge_quantised(const QuantiserCase& request,
                                        const std::vector<float>& values, const Quantised& outcome);

}  // namespace fp8_sdpa::reference
