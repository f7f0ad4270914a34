// One block's asynchronous units: what Hopper adds to a multiprocessor.
#pragma once

#include <string>

#include "gpu/host/executor/runtime.hpp"
#include "gpu/host/memory/mbarrier_unit.hpp"
#include "gpu/host/memory/register_file.hpp"
#include "gpu/host/memory/tma_loads.hpp"
#include "gpu/host/tensor_core/wgmma_unit.hpp"

namespace gpu::host {

struct AsyncUnits {
  MBarriers barriers;
  TmaLoads loads;
  WgmmaUnit wgmma;
  RegisterFile registers;
  int elected_lane = 0;  ///< whom elect_one elects

  /// Empties everything for a block of this launch.
  void reset(const Launch& launch) {
    barriers.reset();
    loads.reset();
    wgmma.reset(launch.threads);
    registers.reset(launch);
  }

  /// The TMA load in flight into this byte of shared memory, or null.
  const TmaTransfer* load_at(std::size_t offset) const {
    const TmaTransfer* load = loads.find(offset);
    return load != nullptr ? load : barriers.find_landed(offset);
  }

  /// What a block that has run to its end left undone, or empty.
  std::string unfinished() const {
    if (std::string what = loads.unfinished(); !what.empty()) return what;
    if (std::string what = barriers.unfinished(); !what.empty()) return what;
    return registers.unfinished();
  }
};

}  // namespace gpu::host
