// One block's asynchronous units: what Hopper adds to a multiprocessor.
#pragma once

#include <cstddef>
#include <memory>

#include "gpu/host/memory/mbarrier_unit.hpp"
#include "gpu/host/memory/register_file.hpp"
#include "gpu/host/memory/tma_loads.hpp"

namespace gpu::host {

class WgmmaUnit;

struct AsyncUnits {
  MBarriers barriers;
  TmaLoads loads;
  std::shared_ptr<WgmmaUnit> wgmma;
  RegisterFile registers;
  int elected_lane = 0;  ///< whom elect_one elects

  /// The TMA load in flight into this byte of shared memory, or null.
  const TmaTransfer* load_at(std::size_t offset) const {
    const TmaTransfer* load = loads.find(offset);
    return load != nullptr ? load : barriers.find_landed(offset);
  }
};

}  // namespace gpu::host
