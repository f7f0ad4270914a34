#include "benchmarks/measure/rotation.hpp"

#include <array>
#include <cstring>
#include <utility>

#if FP8_SDPA_HAS_DEVICE
#include "gpu/cuda_check.hpp"
#endif

namespace fp8_sdpa::bench {
namespace {

constexpr std::int64_t kAlignment = 256;

/// From a tensor's first byte to its last.
std::int64_t span_bytes(const Tensor& tensor, const Problem& problem, int heads, std::int64_t seq) {
  const std::int64_t last = (problem.batch - 1) * tensor.stride_batch +
                            (heads - 1) * tensor.stride_head + (seq - 1) * tensor.stride_seq +
                            (problem.head_dim - 1) * tensor.stride_dim;
  return (last + 1) * static_cast<std::int64_t>(size_of(tensor.dtype));
}

struct Operand {
  Tensor Problem::*tensor;
  std::int64_t bytes;
  const char* name;
};
std::array<Operand, 3> operands_of(const Problem& p) {
  return {{{&Problem::q, span_bytes(p.q, p, p.heads_q, p.seq_q), "copies of Q"},
           {&Problem::k, span_bytes(p.k, p, p.heads_kv, p.seq_kv), "copies of K"},
           {&Problem::v, span_bytes(p.v, p, p.heads_kv, p.seq_kv), "copies of V"}}};
}

Status read(const Device& device, void* host, const void* data, std::size_t bytes) {
#if FP8_SDPA_HAS_DEVICE
  if (device.backend == Backend::kDevice) {
    return FP8_SDPA_CUDA_STATUS(cudaMemcpy(host, data, bytes, cudaMemcpyDeviceToHost));
  }
#endif
  static_cast<void>(device);
  std::memcpy(host, data, bytes);
  return {};
}

/// `copies` times `bytes` bytes of `data`, one aligned copy after the other.
Result<std::unique_ptr<reference::Buffer>> copied(const Device& device, const void* data,
                                                  std::int64_t bytes, std::int64_t stride,
                                                  std::int64_t copies, const char* name) {
  std::vector<std::uint8_t> all(static_cast<std::size_t>(stride * copies));
  if (Status s = read(device, all.data(), data, static_cast<std::size_t>(bytes)); !s.ok()) return s;
  for (std::int64_t i = 1; i < copies; ++i) {
    std::memcpy(all.data() + i * stride, all.data(), static_cast<std::size_t>(bytes));
  }
  auto buffer = reference::allocate(device, all.size(), name);
  if (!buffer.ok()) return buffer;
  if (Status s = (*buffer)->upload(all.data()); !s.ok()) return s;
  return buffer;
}

}  // namespace

std::int64_t input_bytes(const Problem& problem) {
  std::int64_t bytes = 0;
  for (const Operand& operand : operands_of(problem)) bytes += operand.bytes;
  return bytes;
}

Result<std::int64_t> l2_bytes(const Device& device) {
  int bytes = 0;
#if FP8_SDPA_HAS_DEVICE
  if (device.backend == Backend::kDevice) {
    FP8_SDPA_RETURN_IF_CUDA_ERROR(
        cudaDeviceGetAttribute(&bytes, cudaDevAttrL2CacheSize, device.index));
  }
#else
  static_cast<void>(device);
#endif
  return std::int64_t{bytes};
}

std::int64_t rotating_copies(std::int64_t bytes, std::int64_t l2_bytes) {
  constexpr std::int64_t kTimesL2 = 2;
  if (bytes <= 0 || bytes >= l2_bytes) return 1;
  return (kTimesL2 * l2_bytes + bytes - 1) / bytes;
}

Result<Rotation> Rotation::make(const Plan& plan, std::int64_t copies) {
  Rotation made;
  const Problem& from = plan.problem();
  std::vector<Problem> problems(static_cast<std::size_t>(copies), from);
  for (const Operand& operand : operands_of(from)) {
    const std::int64_t stride = (operand.bytes + kAlignment - 1) / kAlignment * kAlignment;
    auto buffer = copied(plan.device(), (from.*operand.tensor).data, operand.bytes, stride, copies,
                         operand.name);
    if (!buffer.ok()) return buffer.status();
    auto* at = static_cast<std::uint8_t*>((*buffer)->data());
    for (Problem& problem : problems) {
      (problem.*operand.tensor).data = at;
      at += stride;
    }
    made.buffers_.push_back(std::move(*buffer));
  }
  made.plans_.reserve(problems.size());
  for (const Problem& problem : problems) {
    auto planned = fp8_sdpa::plan(problem, plan.device(), &plan.variant());
    if (!planned.ok()) return planned.status();
    made.plans_.push_back(std::move(*planned));
  }
  return made;
}

}  // namespace fp8_sdpa::bench
