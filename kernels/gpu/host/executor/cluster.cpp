#include "gpu/host/executor/cluster.hpp"

#include <algorithm>
#include <string>
#include <utility>

#include "gpu/host/executor/block.hpp"
#include "gpu/host/executor/report.hpp"
#include "gpu/host/executor/sanitizers.hpp"

namespace gpu::host {
namespace {

/// A cluster address: the rank above, the offset below these bits.
constexpr int kOffsetBits = 24;

void no_action(Warp&) {}

}  // namespace

void Cluster::reset(std::vector<Block*> blocks, int threads) {
  blocks_ = std::move(blocks);
  expected_ = static_cast<int>(blocks_.size()) * threads;
  leaving_ = 0;
  arrived_ = 0;
  phase_ = 0;
  waiters_.clear();
}

int Cluster::rank_of(const Block& block) const {
  return static_cast<int>(std::find(blocks_.begin(), blocks_.end(), &block) - blocks_.begin());
}

void Cluster::settle() {
  if (arrived_ < expected_ || arrived_ == 0) return;
  expected_ -= std::exchange(leaving_, 0);
  arrived_ = 0;
  ++phase_;
  for (Fiber* fiber : waiters_) fiber->block.make_ready(*fiber);
  waiters_.clear();
}

void Cluster::arrive(Fiber& me) {
  if (me.cluster_arrivals > me.cluster_waits) {
    fail(me, me.at, "arrives twice with no cluster_wait between");
  }
  tsan::release(&tokens_[phase_ % 2]);
  ++me.cluster_arrivals;
  ++arrived_;
  settle();
}

void Cluster::wait(Fiber& me) {
  if (me.cluster_arrivals == me.cluster_waits) {
    fail(me, me.at, "waits with no cluster_arrive before");
  }
  const std::uint64_t phase = me.cluster_waits++;
  if (phase == phase_) {
    waiters_.push_back(&me);
    me.block.suspend(me);
  }
  tsan::acquire(&tokens_[phase % 2]);
}

void Cluster::exit(const Fiber& me) {
  if (me.cluster_arrivals > phase_) {
    ++leaving_;
  } else {
    --expected_;
  }
  settle();
}

int cluster_rank() {
  const Fiber& me = current_fiber();
  return me.block.cluster().rank_of(me.block);
}

void cluster_arrive(Location loc) {
  Fiber& me = current_fiber();
  me.block.collective(me, {.name = "cluster_arrive", .loc = loc}, no_action, nullptr);
  const tsan::Quiet quiet;
  me.block.cluster().arrive(me);
}

void cluster_wait(Location loc) {
  Fiber& me = current_fiber();
  me.block.collective(me, {.name = "cluster_wait", .loc = loc}, no_action, nullptr);
  const tsan::Quiet quiet;
  me.block.cluster().wait(me);
}

std::uint32_t cluster_address(const void* shared, int rank, Location loc) {
  Fiber& me = current_fiber();
  me.at = {.name = "cluster_address", .loc = loc};
  if (!me.block.shared().contains(shared, 1)) {
    fail(me, me.at, "not an address in the block's shared memory");
  }
  const auto blocks = static_cast<int>(me.block.cluster().blocks().size());
  if (rank < 0 || rank >= blocks) {
    fail(me, me.at, "block " + std::to_string(rank) + " of a cluster of " + std::to_string(blocks));
  }
  return static_cast<std::uint32_t>(rank) << kOffsetBits |
         static_cast<std::uint32_t>(me.block.shared().offset_of(shared));
}

const void* cluster_memory(std::uint32_t address, std::size_t bytes, Location loc) {
  Fiber& me = current_fiber();
  me.at = {.name = "load_cluster_float", .loc = loc};
  const std::uint32_t rank = address >> kOffsetBits;
  const std::size_t offset = address & ((1U << kOffsetBits) - 1);
  const auto& blocks = me.block.cluster().blocks();
  if (rank >= blocks.size() || offset + bytes > blocks[rank]->shared().size()) {
    fail(me, me.at, "not an address in the cluster's shared memory");
  }
  if (blocks[rank]->live() == 0) {
    fail(me, me.at, "block " + std::to_string(rank) + " of the cluster has exited");
  }
  return blocks[rank]->shared().data() + offset;
}

}  // namespace gpu::host
