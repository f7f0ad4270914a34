// What the executor asks of the units that the rooms above it play: types that are incomplete here,
// and functions whose bodies lie there (tensor_core/units.cpp, memory/global_stores.cpp).
#pragma once

#include <cstddef>
#include <memory>
#include <string>

namespace gpu::host {

class Block;
class GlobalStores;
struct AsyncUnits;
struct Fiber;
struct Launch;

std::shared_ptr<AsyncUnits> make_async_units();
std::shared_ptr<GlobalStores> make_global_stores();

/// Empties them for a block of this launch. `elected_lane`: whom elect_one elects.
void reset_units(AsyncUnits& units, const Launch& launch, int elected_lane);
/// Lets the block's TMA load number `index` of those in flight land. Empty, or what is wrong.
std::string land_load(Block& block, std::size_t index);
/// Ends the kernel with an error if the warp of `me`, which exits, has multiplies in flight.
void check_wgmma_at_exit(const Fiber& me);
/// What a block that has run to its end left undone, or empty.
std::string unfinished(const AsyncUnits& units);
/// Every mbarrier that somebody waits for, in words.
std::string describe_waits(const AsyncUnits& units);

}  // namespace gpu::host
