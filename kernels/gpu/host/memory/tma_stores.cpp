// TMA stores: what they read, and when it arrives in global memory.
#include "gpu/host/memory/tma_stores.hpp"

#include <utility>

#include "gpu/host/executor/block.hpp"
#include "gpu/host/executor/report.hpp"
#include "gpu/host/executor/sanitizers.hpp"

namespace gpu::host {
namespace {

void write(TmaTransfer& transfer) {
  if (std::exchange(transfer.written, true)) return;
  auto from = transfer.data.begin();
  transfer.for_each_chunk([&](const BoxChunk& chunk) {
    const Chunk bytes = *from++;
    raw_copy(chunk.global + chunk.first, reinterpret_cast<const char*>(&bytes) + chunk.first,
             static_cast<std::size_t>(chunk.last - chunk.first));
  });
}

}  // namespace

void TmaStores::reset() {
  if (unread() > 0) {
    for (char& token : read_tokens_) tsan::acquire(&token);
  }
  transfers_.clear();
  group_ends_.clear();
  read_ = read_groups_ = written_groups_ = 0;
}

void TmaStores::issue(Fiber& me, TmaTransfer transfer, void* caller) {
  touch(transfer);
  SharedMemory& shared = me.block.shared();
  const std::size_t group = group_ends_.size() % kTokens;
  me.tma.play(
      me.tsan_fiber,
      [&] {
        const tsan::Frame frame(caller);
        tsan::read(shared.data() + transfer.shared_offset, transfer.bytes());
        tsan::release(&read_tokens_[group]);
        transfer.for_each_chunk([](const BoxChunk& chunk) {
          tsan::write(chunk.global + chunk.first,
                      static_cast<std::size_t>(chunk.last - chunk.first));
        });
      },
      &written_tokens_[group], me.block.end_token());
  const tsan::Quiet quiet;
  bool published = true;
  transfer.for_each_chunk([&](const BoxChunk& chunk) {
    transfer.data.push_back(shared.async_load(chunk.shared_offset));
    published = published && shared.load(chunk.shared_offset) == transfer.data.back();
  });
  if (!published) {
    fail(me, me.at,
         "reads shared memory that ordinary stores wrote with no fence_proxy_async after them");
  }
  if (!me.block.lands_late()) write(transfer);
  transfers_.push_back(std::move(transfer));
}

const TmaTransfer* TmaStores::wait(Fiber& me, std::size_t groups_in_flight, bool until_written) {
  const TmaTransfer* overwritten = nullptr;
  for (; group_ends_.size() - read_groups_ > groups_in_flight; ++read_groups_) {
    for (; read_ < group_ends_[read_groups_]; ++read_) {
      const TmaTransfer& transfer = transfers_[read_];
      auto expected = transfer.data.begin();
      transfer.for_each_chunk([&](const BoxChunk& chunk) {
        if (me.block.shared().load(chunk.shared_offset) != *expected++) overwritten = &transfer;
      });
    }
    tsan::acquire(&read_tokens_[read_groups_ % kTokens]);
  }
  if (!until_written) return overwritten;
  for (; group_ends_.size() - written_groups_ > groups_in_flight; ++written_groups_) {
    const std::size_t first = written_groups_ == 0 ? 0 : group_ends_[written_groups_ - 1];
    for (std::size_t i = first; i < group_ends_[written_groups_]; ++i) write(transfers_[i]);
    tsan::acquire(&written_tokens_[written_groups_ % kTokens]);
  }
  return overwritten;
}

void TmaStores::write_all() {
  for (TmaTransfer& transfer : transfers_) write(transfer);
}

}  // namespace gpu::host
