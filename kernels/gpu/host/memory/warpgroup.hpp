// Proxy fences, setmaxnreg and elect.sync on the host executor: see gpu/warpgroup.hpp.
#pragma once

#include "gpu/host/executor/runtime.hpp"

namespace gpu::host {

void fence_proxy_async(Location loc);
void fence_proxy_async_global(Location loc);
void setmaxnreg(int registers, bool increase, Location loc);
bool elect_one(Location loc);

}  // namespace gpu::host
