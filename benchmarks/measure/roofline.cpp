#include "benchmarks/measure/roofline.hpp"

#include <algorithm>
#include <array>

#include "benchmarks/command/text.hpp"

namespace fp8_sdpa::bench {
namespace {

constexpr double kMega = 1e6;
constexpr double kGiga = 1e9;
constexpr double kMebi = 1024.0 * 1024.0;

// FP8 rates per SM and clock follow from the peak rates of the architecture papers and the clocks
// that they are given for: "NVIDIA H100 Tensor Core GPU Architecture" (SXM5: 1978.9 TFLOPS, 132
// SMs, 1830 MHz under tensor work) = 8192; "NVIDIA Ada GPU Architecture" (AD102: 660.6 TFLOPS, 128
// SMs, 2520 MHz) = 2048. DRAM, L2 and the Ada parts' clocks: the data sheets of H200 (4.8 TB/s),
// H100 NVL (3.9 TB/s), H100, L4, L40 and L40S. 1980 MHz is what NVML gives as an H200's highest
// clock; no other Hopper part is clocked higher.
constexpr std::array kLimits = {
    DeviceLimits{"H200", 8192, 4800 * kGiga, 50 * kMebi, 1980},
    DeviceLimits{"H100 NVL", 8192, 3938 * kGiga, 50 * kMebi, 1980},
    DeviceLimits{"H100 PCIe", 8192, 2039 * kGiga, 50 * kMebi, 1980},
    DeviceLimits{"H100", 8192, 3352 * kGiga, 50 * kMebi, 1980},
    DeviceLimits{"L40S", 2048, 864 * kGiga, 96 * kMebi, 2520},
    DeviceLimits{"L40", 2048, 864 * kGiga, 96 * kMebi, 2490},
    DeviceLimits{"L4", 2048, 300 * kGiga, 48 * kMebi, 2040},
};

bool is_letter_or_digit(char c) {
  return (c >= '0' && c <= '9') || (c >= 'A' && c <= 'Z') || (c >= 'a' && c <= 'z');
}

/// Whether `name` has `part` as whole words: "L4" is not a part of "NVIDIA L40".
bool has_words(std::string_view name, std::string_view part) {
  const std::size_t at = name.find(part);
  if (at == std::string_view::npos) return false;
  const std::size_t end = at + part.size();
  return (at == 0 || !is_letter_or_digit(name[at - 1])) &&
         (end == name.size() || !is_letter_or_digit(name[end]));
}

/// Bytes of Q, K and V: one each.
double input_bytes(const reference::Shape& shape) {
  const double queries =
      static_cast<double>(shape.batch) * shape.heads_q * static_cast<double>(shape.seq_q);
  const double keys =
      static_cast<double>(shape.batch) * shape.heads_kv * static_cast<double>(shape.seq_kv);
  return (queries + 2 * keys) * shape.head_dim;
}

std::optional<double> highest_clock(const std::vector<Repetition>& repetitions) {
  std::optional<double> highest;
  for (const Repetition& repetition : repetitions) {
    const std::optional<int>& clock = repetition.clocks.sm_clock_mhz;
    if (clock) highest = std::max(highest.value_or(0), static_cast<double>(*clock));
  }
  return highest;
}

}  // namespace

const DeviceLimits* find_limits(std::string_view device_name) {
  const auto found = std::find_if(kLimits.begin(), kLimits.end(), [&](const DeviceLimits& limits) {
    return has_words(device_name, limits.name);
  });
  return found == kLimits.end() ? nullptr : &*found;
}

double attended_pairs(const reference::Shape& shape) {
  const auto rows = static_cast<double>(shape.seq_q);
  const auto keys = static_cast<double>(shape.seq_kv);
  double pairs = rows * keys;
  if (shape.mask == Mask::kCausal) {
    // The last row sees every key, each row above it one less, down to none.
    const double seeing = std::min(rows, keys);
    pairs = seeing * keys - seeing * (seeing - 1) / 2;
  }
  return pairs * shape.batch * shape.heads_q;
}

Roofline roofline(const DeviceLimits& limits, int sm_count, const reference::Shape& shape,
                  Method method, const std::optional<double>& clock_mhz) {
  constexpr double kFlopPerPairAndDim = 4;
  constexpr double kMicroseconds = 1e6;
  Roofline out;
  out.clock_mhz = clock_mhz.value_or(limits.max_sm_clock_mhz);
  const double flop_per_second = limits.flop_per_clock_per_sm * sm_count * out.clock_mhz * kMega;
  out.flop_us =
      kFlopPerPairAndDim * attended_pairs(shape) * shape.head_dim / flop_per_second * kMicroseconds;
  const double all = input_bytes(shape);
  double from_dram = method == Method::kEventsCold ? all : std::max(0.0, all - limits.l2_bytes);
  // Copies that go round are twice L2, which holds half of them at most.
  if (method == Method::kQueuedRotating && all < limits.l2_bytes) from_dram = all / 2;
  out.bytes_us = from_dram / limits.dram_bytes_per_second * kMicroseconds;
  return out;
}

Status check_roofline(const PerfRecord& record, const Device& device) {
  const DeviceLimits* limits = find_limits(device.name);
  if (limits == nullptr || device.backend != Backend::kDevice) return {};
  const Roofline bound = roofline(*limits, device.sm_count, record.shape, record.method,
                                  highest_clock(record.repetitions));
  const double p50 = summarise(record.samples_us).p50;
  const double least = std::max(bound.flop_us, bound.bytes_us);
  if (p50 >= least) return {};
  return {StatusCode::kExecutorError,
          format("%s on %s by %s: p50 = %.3f us is above the roofline of %s: %s alone take %.3f us "
                 "at %.0f MHz",
                 record.variant.c_str(), record.shape.name.c_str(), name_of(record.method), p50,
                 device.name.c_str(), bound.flop_us >= bound.bytes_us ? "its FLOP" : "its bytes",
                 least, bound.clock_mhz)};
}

std::string roofline_note(const Device& device) {
  if (device.backend != Backend::kDevice || find_limits(device.name) != nullptr) return "";
  return device.name + " is not in the table of limits: results are not judged by the roofline";
}

}  // namespace fp8_sdpa::bench
