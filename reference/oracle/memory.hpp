// Memory of a device or of the host executor, with guard bands around every allocation.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "fp8_sdpa/device.hpp"
#include "fp8_sdpa/plan.hpp"
#include "fp8_sdpa/status.hpp"

namespace fp8_sdpa::reference {

/// Bytes [begin, end) of a buffer.
struct ByteRange {
  std::size_t begin;
  std::size_t end;
};

/// An allocation of an exact size, aligned to 256 bytes (as cudaMalloc aligns), between two guard
/// bands whose bytes read as NaN in every format, so that what is read out of bounds shows in the
/// output and what is written shows in check_guards(). Under AddressSanitizer, on the host, there
/// is no band: the sanitizer stops at the very access.
class Buffer {
 public:
  virtual ~Buffer() = default;
  Buffer(const Buffer&) = delete;
  Buffer& operator=(const Buffer&) = delete;

  /// The first byte, in the backend's address space.
  void* data() const { return data_; }
  std::size_t size() const { return size_; }
  const std::string& name() const { return name_; }

  /// Fills with 0xFF bytes: NaN in every format.
  virtual Status poison() = 0;
  /// Copies size() bytes in. Blocking.
  virtual Status upload(const void* host) = 0;
  /// Copies size() bytes out. Blocking.
  virtual Status download(void* host) const = 0;
  /// How many bytes of the guard bands have changed.
  virtual Result<std::int64_t> changed_guard_bytes() const = 0;
  /// Makes any access to these ranges an error, or allows it again, where AddressSanitizer can
  /// tell; elsewhere does nothing.
  virtual void close(const std::vector<ByteRange>& ranges, bool closed);

 protected:
  Buffer(std::string name, std::size_t size) : size_(size), name_(std::move(name)) {}
  void* data_ = nullptr;

 private:
  std::size_t size_;
  std::string name_;
};

/// Bytes of a guard band, before and after the allocation.
inline constexpr std::size_t kGuardBytes = 4096;

/// Allocates `size` > 0 bytes where `device` runs its kernels. `name` is used in messages.
/// kOutOfMemory, with name and size, if there is not enough.
Result<std::unique_ptr<Buffer>> allocate(const Device& device, std::size_t size, std::string name);

/// The workspace of launches of `plan`, filled with 0xFF bytes; its data() is null where the plan
/// needs none.
class Workspace {
 public:
  static Result<Workspace> make(const Plan& plan);
  void* data() const { return buffer_ != nullptr ? buffer_->data() : nullptr; }

 private:
  std::unique_ptr<Buffer> buffer_;
};

/// Waits for everything on the device and reports what went wrong there. Nothing to do on the host.
Status synchronise(const Device& device);

}  // namespace fp8_sdpa::reference
