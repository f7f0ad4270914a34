// One block's shared memory: exactly as many bytes as the kernel asked for, aligned, with red zones
// around it.
#pragma once

#include <cstddef>

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

  /// How far from the end the block wrote into the red zone behind it, or 0. AddressSanitizer stops
  /// at such a write; other builds ask here.
  std::size_t overrun() const;

 private:
  void map(std::size_t bytes, std::size_t alignment);
  void unmap();

  char* mapping_ = nullptr;
  std::size_t mapping_size_ = 0;
  char* data_ = nullptr;
  std::size_t size_ = 0;
};

}  // namespace gpu::host
