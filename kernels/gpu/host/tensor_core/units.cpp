#include "gpu/host/executor/units.hpp"

#include "gpu/host/executor/block.hpp"
#include "gpu/host/memory/async_units.hpp"
#include "gpu/host/tensor_core/wgmma_unit.hpp"

namespace gpu::host {

std::shared_ptr<AsyncUnits> make_async_units() {
  auto units = std::make_shared<AsyncUnits>();
  units->wgmma = std::make_shared<WgmmaUnit>();
  return units;
}

void reset_units(AsyncUnits& units, const Launch& launch, int elected_lane) {
  units.barriers.reset();
  units.loads.reset();
  units.wgmma->reset(launch.threads);
  units.registers.reset(launch);
  units.elected_lane = elected_lane;
}

std::string land_load(Block& block, std::size_t index) {
  return block.async().loads.land(block, index);
}

void check_wgmma_at_exit(const Fiber& me) { me.block.async().wgmma->check_exit(me); }

std::string unfinished(const AsyncUnits& units) {
  if (std::string what = units.loads.unfinished(); !what.empty()) return what;
  if (std::string what = units.barriers.unfinished(); !what.empty()) return what;
  return units.registers.unfinished();
}

std::string describe_waits(const AsyncUnits& units) { return units.barriers.describe_waits(); }

}  // namespace gpu::host
