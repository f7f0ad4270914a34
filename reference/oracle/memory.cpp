#include "reference/oracle/memory.hpp"

#include <array>
#include <cstring>
#include <new>
#include <utility>
#include <vector>

#if FP8_SDPA_HAS_DEVICE
#include "gpu/cuda_check.hpp"
#endif

#if defined(__SANITIZE_ADDRESS__)
#define FP8_SDPA_ASAN 1
#elif defined(__has_feature)
#if __has_feature(address_sanitizer)
#define FP8_SDPA_ASAN 1
#endif
#endif
#ifndef FP8_SDPA_ASAN
#define FP8_SDPA_ASAN 0
#endif

#if FP8_SDPA_ASAN
#include <sanitizer/asan_interface.h>
#endif

namespace fp8_sdpa::reference {

void Buffer::close(const std::vector<ByteRange>& /*ranges*/, bool /*closed*/) {}

namespace {

constexpr int kPoisonByte = 0xFF;

/// NaN as E4M3, E5M2, half and binary32 alike, and unlike what a kernel would write: neither all
/// 0xFF nor the canonical NaN of half or binary32 throughout.
constexpr std::array<std::uint8_t, 4> kGuardPattern = {0x7F, 0x7F, 0xFF, 0xFF};

std::vector<std::uint8_t> guard_band() {
  std::vector<std::uint8_t> band(kGuardBytes);
  for (std::size_t i = 0; i < band.size(); ++i) band[i] = kGuardPattern[i % kGuardPattern.size()];
  return band;
}

std::int64_t differences(const std::uint8_t* bytes) {
  const std::vector<std::uint8_t> band = guard_band();
  std::int64_t count = 0;
  for (std::size_t i = 0; i < band.size(); ++i) count += bytes[i] != band[i] ? 1 : 0;
  return count;
}

Status out_of_memory(const std::string& name, std::size_t size, const char* where) {
  return {StatusCode::kOutOfMemory, std::string("out of ") + where + " memory: " + name +
                                        " needs " + std::to_string(size) +
                                        " bytes; use a smaller shape"};
}

class HostBuffer final : public Buffer {
 public:
  HostBuffer(std::string name, std::size_t size) : Buffer(std::move(name), size) {
    block_ = ::operator new(size + 2 * kBand, kAlignment);
    data_ = static_cast<std::uint8_t*>(block_) + kBand;
    if constexpr (kBand > 0) {
      const std::vector<std::uint8_t> band = guard_band();
      std::memcpy(block_, band.data(), kBand);
      std::memcpy(end(), band.data(), kBand);
    }
  }
  ~HostBuffer() override { ::operator delete(block_, kAlignment); }

  Status poison() override {
    std::memset(data_, kPoisonByte, size());
    return {};
  }
  Status upload(const void* host) override {
    std::memcpy(data_, host, size());
    return {};
  }
  Status download(void* host) const override {
    std::memcpy(host, data_, size());
    return {};
  }
  Result<std::int64_t> changed_guard_bytes() const override {
    if constexpr (kBand == 0) return std::int64_t{0};
    return differences(static_cast<std::uint8_t*>(block_)) + differences(end());
  }
#if FP8_SDPA_ASAN
  void close(const std::vector<ByteRange>& ranges, bool closed) override {
    const auto* base = static_cast<const std::uint8_t*>(data_);
    for (const ByteRange& range : ranges) {
      if (closed) {
        __asan_poison_memory_region(base + range.begin, range.end - range.begin);
      } else {
        __asan_unpoison_memory_region(base + range.begin, range.end - range.begin);
      }
    }
  }
#endif

 private:
  static constexpr std::size_t kBand = FP8_SDPA_ASAN ? 0 : kGuardBytes;
  static constexpr std::align_val_t kAlignment{256};

  std::uint8_t* end() const { return static_cast<std::uint8_t*>(data_) + size(); }

  void* block_ = nullptr;
};

#if FP8_SDPA_HAS_DEVICE

class DeviceBuffer final : public Buffer {
 public:
  DeviceBuffer(std::string name, std::size_t size) : Buffer(std::move(name), size) {}
  ~DeviceBuffer() override { static_cast<void>(cudaFree(block_)); }

  Status allocate() {
    FP8_SDPA_RETURN_IF_CUDA_ERROR(cudaMalloc(&block_, size() + 2 * kGuardBytes));
    data_ = static_cast<std::uint8_t*>(block_) + kGuardBytes;
    const std::vector<std::uint8_t> band = guard_band();
    FP8_SDPA_RETURN_IF_CUDA_ERROR(
        cudaMemcpy(block_, band.data(), kGuardBytes, cudaMemcpyHostToDevice));
    return FP8_SDPA_CUDA_STATUS(
        cudaMemcpy(end(), band.data(), kGuardBytes, cudaMemcpyHostToDevice));
  }
  /// Done when it returns, which cudaMemset is not: else it could overtake what a stream that does
  /// not wait for the default one writes here next.
  Status poison() override {
    FP8_SDPA_RETURN_IF_CUDA_ERROR(cudaMemset(data_, kPoisonByte, size()));
    return FP8_SDPA_CUDA_STATUS(cudaStreamSynchronize(cudaStreamLegacy));
  }
  Status upload(const void* host) override {
    return FP8_SDPA_CUDA_STATUS(cudaMemcpy(data_, host, size(), cudaMemcpyHostToDevice));
  }
  Status download(void* host) const override {
    return FP8_SDPA_CUDA_STATUS(cudaMemcpy(host, data_, size(), cudaMemcpyDeviceToHost));
  }
  Result<std::int64_t> changed_guard_bytes() const override {
    std::int64_t count = 0;
    std::vector<std::uint8_t> band(kGuardBytes);
    for (const void* start : {static_cast<const void*>(block_), static_cast<const void*>(end())}) {
      FP8_SDPA_RETURN_IF_CUDA_ERROR(
          cudaMemcpy(band.data(), start, kGuardBytes, cudaMemcpyDeviceToHost));
      count += differences(band.data());
    }
    return count;
  }

 private:
  std::uint8_t* end() const { return static_cast<std::uint8_t*>(data_) + size(); }

  void* block_ = nullptr;
};

Result<std::unique_ptr<Buffer>> allocate_on_device(std::size_t size, const std::string& name) {
  auto buffer = std::make_unique<DeviceBuffer>(name, size);
  const Status status = buffer->allocate();
  if (status.code() == StatusCode::kOutOfMemory) return out_of_memory(name, size, "device");
  if (!status.ok()) return status;
  return std::unique_ptr<Buffer>(std::move(buffer));
}

#endif  // FP8_SDPA_HAS_DEVICE

}  // namespace

Result<std::unique_ptr<Buffer>> allocate(const Device& device, std::size_t size, std::string name) {
  if (size == 0) return invalid_argument(name + ": an allocation of 0 bytes; give 1 or more");
  if (device.backend == Backend::kDevice) {
#if FP8_SDPA_HAS_DEVICE
    return allocate_on_device(size, name);
#else
    return unsupported(name + ": this build has no device code; build with nvcc");
#endif
  }
  try {
    return std::unique_ptr<Buffer>(std::make_unique<HostBuffer>(name, size));
  } catch (const std::bad_alloc&) {
    return out_of_memory(name, size, "host");
  }
}

Result<Workspace> Workspace::make(const Plan& plan) {
  Workspace made;
  if (plan.workspace_bytes() == 0) return made;
  auto buffer = allocate(plan.device(), plan.workspace_bytes(), "the workspace");
  if (!buffer.ok()) return buffer.status();
  if (Status status = (*buffer)->poison(); !status.ok()) return status;
  made.buffer_ = std::move(*buffer);
  return made;
}

Status synchronise([[maybe_unused]] const Device& device) {
#if FP8_SDPA_HAS_DEVICE
  if (device.backend == Backend::kDevice) {
    FP8_SDPA_RETURN_IF_CUDA_ERROR(cudaDeviceSynchronize());
    return FP8_SDPA_CUDA_STATUS(cudaGetLastError());
  }
#endif
  return {};
}

}  // namespace fp8_sdpa::reference
