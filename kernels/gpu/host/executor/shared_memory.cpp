#include "gpu/host/executor/shared_memory.hpp"

#include <sys/mman.h>

#include <cstdint>
#include <new>

#include "gpu/host/executor/raw_memory.hpp"
#include "gpu/host/executor/sanitizers.hpp"

namespace gpu::host {
namespace {

/// Red zone on either side, in bytes.
constexpr std::size_t kRedZone = 1024;
/// A NaN in every format: reads of what was never written, and reads past the end, show.
constexpr unsigned char kPoisonByte = 0xFF;

}  // namespace

SharedMemory::~SharedMemory() { unmap(); }

void SharedMemory::unmap() {
  if (mapping_ == nullptr) return;
  asan::unpoison(mapping_, mapping_size_);
  munmap(mapping_, mapping_size_);
  mapping_ = nullptr;
}

void SharedMemory::map(std::size_t bytes, std::size_t alignment) {
  unmap();
  mapping_size_ = bytes + alignment + 2 * kRedZone;
  void* mapping =
      mmap(nullptr, mapping_size_, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (mapping == MAP_FAILED) throw std::bad_alloc();
  mapping_ = static_cast<char*>(mapping);
  const auto first = reinterpret_cast<std::uintptr_t>(mapping_) + kRedZone;
  data_ = mapping_ + kRedZone + (alignment - first % alignment) % alignment;
  size_ = bytes;
}

void SharedMemory::reset(std::size_t bytes, std::size_t alignment, bool poison) {
  // A new mapping for each block under ThreadSanitizer: it forgets the block before, which is
  // another block's memory on a device.
  const bool fits = mapping_ != nullptr && bytes == size_ &&
                    reinterpret_cast<std::uintptr_t>(data_) % alignment == 0;
  if (kTsan || !fits) map(bytes, alignment);
  asan::unpoison(mapping_, mapping_size_);
  initial_byte_ = poison ? kPoisonByte : 0;
  has_view_ = false;
  raw_fill(data_, initial_byte_, size_);
  raw_fill(data_ + size_, kPoisonByte, kRedZone);
  asan::poison(mapping_, static_cast<std::size_t>(data_ - mapping_));
  asan::poison(data_ + size_, kRedZone);
}

bool SharedMemory::contains(const void* p, std::size_t bytes) const {
  const auto offset = reinterpret_cast<std::uintptr_t>(p) - reinterpret_cast<std::uintptr_t>(data_);
  return offset < size_ && bytes <= size_ - offset;
}

std::size_t SharedMemory::overrun() const {
  if constexpr (kAsan) return 0;
  for (std::size_t i = kRedZone; i > 0; --i) {
    if (static_cast<unsigned char>(data_[size_ + i - 1]) != kPoisonByte) return i;
  }
  return 0;
}

char* SharedMemory::make_view() {
  has_view_ = true;
  if (view_.size() < size_) view_.resize(size_);
  raw_fill(view_.data(), initial_byte_, size_);
  return view_.data();
}

void SharedMemory::publish() { raw_copy(async_view(), data_, size_); }

void SharedMemory::async_fill(std::size_t offset, unsigned char value, std::size_t bytes) {
  raw_fill(data_ + offset, value, bytes);
  raw_fill(async_view() + offset, value, bytes);
}

}  // namespace gpu::host
