// The fp32 reference: attention as a naive CUDA kernel, on either backend. The fp64 oracle judges
// it; it shows that a kernel through gpu/ with plain fp32 arithmetic gets the same answer.
#pragma once

#include <cstdint>

#include "fp8_sdpa/device.hpp"
#include "fp8_sdpa/status.hpp"
#include "reference/oracle/case.hpp"
#include "reference/oracle/oracle.hpp"

namespace fp8_sdpa::reference {

/// What the kernel reads and writes; pointers into the memory of the backend it runs on, all
/// tensors (batch, heads, seq, head_dim) contiguous.
struct Fp32Params {
  const std::uint8_t* q;  ///< FP8 codes
  const std::uint8_t* k;
  const std::uint8_t* v;
  const float* descale_q;  ///< (batch, heads_q)
  const float* descale_k;  ///< (batch, heads_kv)
  const float* descale_v;  ///< (batch, heads_kv)
  const float* table;      ///< the 256 values of the codes
  float* o;                ///< fp32
  float* lse;              ///< (batch, heads_q, seq_q)
  AttentionSizes sizes;
  float scale;
};

/// Launches the kernel on the backend's default queue. One specialisation per backend of the build.
template <Backend kBackend>
Status launch_fp32_reference(const Fp32Params& params, const ExecutorOptions* executor);

/// Attention on the codes and descales of `data`, any sizes and mask. kUnsupported where this build
/// lacks the device's backend; kOutOfMemory, kDeviceError and kExecutorError as they come.
Result<Attention> attention_fp32(const CaseData& data, const Device& device);

}  // namespace fp8_sdpa::reference
