#include "benchmarks/run/host_memory.hpp"

#include <unistd.h>

#include <algorithm>
#include <fstream>

#include "benchmarks/command/text.hpp"

namespace fp8_sdpa::bench {

std::int64_t host_memory_bytes() {
  const std::int64_t machine = std::int64_t{sysconf(_SC_PHYS_PAGES)} * sysconf(_SC_PAGESIZE);
  // "max" where there is no limit, which leaves the value as it is.
  std::int64_t limit = 0;
  const bool limited = bool(std::ifstream("/sys/fs/cgroup/memory.max") >> limit);
  return limited ? std::min(machine, limit) : machine;
}

std::int64_t least_host_bytes(const reference::Shape& shape) {
  constexpr std::int64_t kInput = 4 + 1 + 4;       // fp32, code, dequantised
  constexpr std::int64_t kOutput = 4 + 4 + 2 + 4;  // two references, 16 bits, decoded
  const std::int64_t rows = std::int64_t{shape.batch} * shape.head_dim;
  return rows * (shape.heads_q * shape.seq_q * (kInput + kOutput) +
                 2 * shape.heads_kv * shape.seq_kv * kInput);
}

Status check_host_memory(const reference::Shape& shape, std::int64_t there) {
  constexpr double kGiB = 1 << 30;
  const std::int64_t least = least_host_bytes(shape);
  if (least <= there) return {};
  return {StatusCode::kOutOfMemory,
          "shape " + shape.name +
              format(": judging it takes at least %.1f GiB of host memory, and this machine has "
                     "%.1f GiB; expected fewer queries or keys",
                     static_cast<double>(least) / kGiB, static_cast<double>(there) / kGiB)};
}

}  // namespace fp8_sdpa::bench
