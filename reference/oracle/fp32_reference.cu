// The fp32 reference kernel's launch. nvcc compiles this file for the device;
// fp32_reference_host.cpp gives the same text to the host compiler for the host executor.
#include <algorithm>

#include "reference/oracle/fp32_kernel.cuh"

namespace fp8_sdpa::reference {

template <>
Status launch_fp32_reference<gpu::kBackend>(const Fp32Params& params,
                                            const ExecutorOptions* executor) {
  // A block per row, in lines of the grid short enough for either dimension's limit.
  constexpr std::int64_t kLine = 32768;
  const AttentionSizes& sizes = params.sizes;
  const std::int64_t rows = std::int64_t{sizes.batch} * sizes.heads_q * sizes.seq_q;
  const std::int64_t lines = (rows + kLine - 1) / kLine;
  constexpr std::int64_t kMostLines = 65535;
  if (lines > kMostLines) {
    return unsupported("the fp32 reference serves up to 2^31 query rows, not " +
                       std::to_string(rows));
  }
  const dim3 grid(static_cast<unsigned>(std::min(rows, kLine)), static_cast<unsigned>(lines));
  return gpu::launch<Fp32Kernel<gpu::kBackend>>(grid, params, gpu::Queue{nullptr, executor});
}

}  // namespace fp8_sdpa::reference
