// One block's shared memory: exactly as many bytes as the kernel asked for, aligned, with red zones
// around it. And as the async proxy sees it: what TMA wrote, and ordinary stores as of the last
// proxy fence.
#pragma once

#include <cstddef>
#include <vector>

#include "gpu/host/executor/raw_memory.hpp"

namespace gpu::host {

class SharedMemory {
 public:
  SharedMemory() = default;
  ~SharedMemory();
  SharedMemory(const SharedMemory&) = delete;
  SharedMemory& operator=(const SharedMemory&) = delete;

  /// Makes room for a block of `bytes` and fills it: 0xFF bytes (NaN in every format) or zeros.
  /// Throws std::bad_alloc.
  void reset(std::size_t bytes, std::size_t alignment, bool poison);

  char* data() const { return data_; }
  std::size_t size() const { return size_; }
  /// Whether [p, p + bytes) lies inside.
  bool contains(const void* p, std::size_t bytes) const;

  /// Of a byte inside.
  std::size_t offset_of(const void* p) const {
    return static_cast<std::size_t>(static_cast<const char*>(p) - data_);
  }

  /// How far from the end the block wrote into the red zone behind it, or 0. AddressSanitizer stops
  /// at such a write; other builds ask here.
  std::size_t overrun() const;

  /// fence.proxy.async: the async proxy sees all stores made so far.
  void publish();
  /// A chunk, 16-byte aligned, as ordinary loads see it. It may be poisoned for AddressSanitizer.
  Chunk load(std::size_t offset) const { return raw_load(data_ + offset); }
  /// As the async proxy sees it.
  Chunk async_load(std::size_t offset) { return raw_load(async_view() + offset); }
  /// A store by the async proxy, seen by all.
  void async_store(std::size_t offset, const Chunk& chunk) {
    raw_store(data_ + offset, chunk);
    raw_store(async_view() + offset, chunk);
  }
  void async_fill(std::size_t offset, unsigned char value, std::size_t bytes);

 private:
  /// What the async proxy sees. Made when first asked for, as shared memory was at the start.
  char* async_view() { return has_view_ ? view_.data() : make_view(); }
  char* make_view();
  void map(std::size_t bytes, std::size_t alignment);
  void unmap();

  char* mapping_ = nullptr;
  std::size_t mapping_size_ = 0;
  char* data_ = nullptr;
  std::size_t size_ = 0;
  unsigned char initial_byte_ = 0;
  bool has_view_ = false;
  std::vector<char> view_;
};

}  // namespace gpu::host
