#include "reference/oracle/fp32_reference.hpp"

#include <cstddef>
#include <memory>
#include <utility>
#include <vector>

#include "reference/formats/fp8.hpp"
#include "reference/oracle/memory.hpp"

namespace fp8_sdpa::reference {
namespace {

Status launch_on(const Fp32Params& params, const Device& device) {
  if (device.backend == Backend::kDevice) {
#if FP8_SDPA_HAS_DEVICE
    return launch_fp32_reference<Backend::kDevice>(params, device.executor.get());
#else
    return unsupported("the fp32 reference: this build has no device code; build with nvcc");
#endif
  }
#if FP8_SDPA_HAS_HOST
  return launch_fp32_reference<Backend::kHost>(params, device.executor.get());
#else
  return unsupported("the fp32 reference: this build has no host executor");
#endif
}

/// Allocates on one device, keeps what it allocated, and remembers the first failure.
class Arena {
 public:
  explicit Arena(const Device& device) : device_(device) {}

  /// `count` elements; poisoned, or a copy of `values` if given.
  template <class T>
  T* make(std::size_t count, const T* values, const char* name) {
    if (!status_.ok()) return nullptr;
    auto buffer = allocate(device_, count * sizeof(T), name);
    if (!buffer.ok()) {
      status_ = buffer.status();
      return nullptr;
    }
    status_ = values != nullptr ? (*buffer)->upload(values) : (*buffer)->poison();
    buffers_.push_back(std::move(*buffer));
    return static_cast<T*>(buffers_.back()->data());
  }
  template <class T>
  const T* copy(const std::vector<T>& values, const char* name) {
    return make(values.size(), values.data(), name);
  }
  const Status& status() const { return status_; }
  /// Downloads the buffer that starts at `data`.
  Status fetch(const float* data, std::vector<float>& values) const {
    for (const auto& buffer : buffers_) {
      if (buffer->data() != data) continue;
      values.resize(buffer->size() / sizeof(float));
      return buffer->download(values.data());
    }
    return invalid_argument("fetch: no such buffer");
  }

 private:
  Device device_;
  std::vector<std::unique_ptr<Buffer>> buffers_;
  Status status_;
};

}  // namespace

Result<Attention> attention_fp32(const CaseData& data, const Device& device) {
  const auto& table = decode_table(data.dtype);
  const std::size_t elements = data.q.codes.size();
  Arena arena(device);
  Fp32Params params{};
  params.q = arena.copy(data.q.codes, "Q");
  params.k = arena.copy(data.k.codes, "K");
  params.v = arena.copy(data.v.codes, "V");
  params.descale_q = arena.copy(data.q.descales, "Q's descales");
  params.descale_k = arena.copy(data.k.descales, "K's descales");
  params.descale_v = arena.copy(data.v.descales, "V's descales");
  params.table = arena.make(table.size(), table.data(), "the decode table");
  params.o = arena.make<float>(elements, nullptr, "O");
  params.lse =
      arena.make<float>(elements / static_cast<std::size_t>(data.shape.head_dim), nullptr, "LSE");
  params.sizes = sizes_of(data.shape);
  params.scale = data.softmax_scale;
  if (!arena.status().ok()) return arena.status();
  if (Status status = launch_on(params, device); !status.ok()) return status;
  if (Status status = synchronise(device); !status.ok()) return status;
  Attention result;
  if (Status status = arena.fetch(params.o, result.o); !status.ok()) return status;
  if (Status status = arena.fetch(params.lse, result.lse); !status.ok()) return status;
  return result;
}

}  // namespace fp8_sdpa::reference
