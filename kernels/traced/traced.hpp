// The ladder's rungs once more, with a log of their phases: the same kernels, with Traced<Tag> for
// Tag. For the timeline tool; no part of the installed library.
#pragma once

#include <span>
#include <string_view>

#include "attention/phase_log.hpp"
#include "dispatch/variant.hpp"
#include "fp8_sdpa/device.hpp"
#include "fp8_sdpa/problem.hpp"
#include "fp8_sdpa/status.hpp"
#include "gpu/queue.hpp"

namespace fp8_sdpa::traced {

/// A variant of the table that can be logged.
struct TracedVariant {
  std::string_view name;  ///< as in variants()
  int warps;              ///< per block
  int tile_m, tile_n;
  Status (*launch_device)(const Problem&, const attention::PhaseSink&, const gpu::Queue&);
  Status (*launch_host)(const Problem&, const attention::PhaseSink&, const gpu::Queue&);

  unsigned blocks(const Problem& problem) const;
  /// As many marks as a warp of this variant can make.
  int marks_per_warp(const Problem& problem) const;
};

std::span<const TracedVariant> traced_variants();

/// The variant of that name, or nullptr where it has no log.
const TracedVariant* find_traced_variant(std::string_view name);

/// Instantiated once per tag and backend, in instances.cuh.
template <class Tag, Backend kBackend>
Status launch(const Problem& problem, const attention::PhaseSink& sink, const gpu::Queue& queue);

}  // namespace fp8_sdpa::traced
