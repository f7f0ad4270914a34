// mbarriers on the host executor: see gpu/mbarrier.hpp. A wait suspends its fiber; nothing spins.
#pragma once

#include "gpu/host/executor/runtime.hpp"

namespace gpu {
struct MBarrier;
}

namespace gpu::host {

void mbarrier_init(MBarrier& barrier, int count, Location loc);
void fence_mbarrier_init(Location loc);
void mbarrier_arrive(MBarrier& barrier, Location loc);
void mbarrier_arrive_expect_tx(MBarrier& barrier, int bytes, Location loc);
void mbarrier_wait(MBarrier& barrier, int parity, Location loc);

}  // namespace gpu::host
