#include <memory>
#include <utility>

#include "benchmarks/ceilings/device_limits.hpp"
#include "benchmarks/ceilings/kernels.hpp"

#if FP8_SDPA_HAS_DEVICE
#include "benchmarks/measure/cuda_handles.hpp"
#include "gpu/cuda_check.hpp"
#include "reference/oracle/memory.hpp"
#endif

namespace fp8_sdpa::bench {

#if FP8_SDPA_HAS_DEVICE

namespace {

/// Appends the device limit if `samples` is there, else says why not.
void add(MeasuredLimit ceiling, Result<std::vector<double>> samples, MeasuredLimits& ceilings) {
  if (samples.ok()) {
    ceiling.samples_us = std::move(*samples);
    ceilings.measured.push_back(std::move(ceiling));
  } else {
    ceilings.left_out.push_back({ceiling.name, samples.status().message()});
  }
}

Status measure_instructions(const Device& device, int samples, MeasuredLimits& ceilings) {
  struct Entry {
    Instruction instruction;
    const char* name;
    const char* what;
    int iterations;  // one to two milliseconds
    double per_instruction;
    LimitUnit unit;
  };
  constexpr double kFlopPerFma = 2;
  constexpr int kEx2Iterations = 4096;
  constexpr int kFmaIterations = 32768;
  constexpr Entry kEntries[] = {
      {Instruction::kEx2, "ex2", "ex2.approx.ftz.f32, eight chains a lane, 1024 threads an SM",
       kEx2Iterations, 1, LimitUnit::kOperationPerSecond},
      {Instruction::kFma, "fma", "fma.rn.f32, eight chains a lane, 1024 threads an SM",
       kFmaIterations, kFlopPerFma, LimitUnit::kFlopPerSecond},
  };
  auto cycles = reference::allocate(device, sizeof(long long), "the cycle count");
  if (!cycles.ok()) return cycles.status();
  auto sink = reference::allocate(device, sizeof(float), "the sink");
  if (!sink.ok()) return sink.status();
  for (const Entry& entry : kEntries) {
    const Saturation size{device.sm_count * kBlocksPerSm, entry.iterations};
    MeasuredLimit ceiling{entry.name, entry.what, entry.unit,
                          instruction_count(size) * entry.per_instruction};
    long long count = 0;
    if (Status s = (*cycles)->upload(&count); !s.ok()) return s;
    auto times = time_work(
        [&](CUstream_st* stream) {
          return launch_saturation(entry.instruction, size,
                                   static_cast<long long*>((*cycles)->data()),
                                   static_cast<float*>((*sink)->data()), stream);
        },
        samples);
    if (times.ok()) {
      if (Status s = (*cycles)->download(&count); !s.ok()) return s;
      ceiling.cycles = static_cast<double>(count);
    }
    add(std::move(ceiling), std::move(times), ceilings);
  }
  return {};
}

/// As much memory as is wanted, or a quarter of what is free.
Result<std::size_t> bytes_to_move() {
  constexpr std::size_t kWanted = std::size_t{1} << 30;
  constexpr std::size_t kShareOfFree = 4;
  std::size_t free_bytes = 0;
  std::size_t total_bytes = 0;
  FP8_SDPA_RETURN_IF_CUDA_ERROR(cudaMemGetInfo(&free_bytes, &total_bytes));
  return std::min(kWanted, free_bytes / kShareOfFree);
}

Status measure_copy(const Device& device, int samples, MeasuredLimits& ceilings) {
  const auto wanted = bytes_to_move();
  if (!wanted.ok()) return wanted.status();
  const std::size_t bytes = *wanted;
  auto from = reference::allocate(device, bytes, "the copy's source");
  if (!from.ok()) return from.status();
  auto to = reference::allocate(device, bytes, "the copy's destination");
  if (!to.ok()) return to.status();
  // A copy reads each byte once and writes it once.
  MeasuredLimit ceiling{"copy",
                        "cudaMemcpyAsync on the device, " + std::to_string(bytes >> 20U) + " MiB",
                        LimitUnit::kBytesPerSecond, 2.0 * static_cast<double>(bytes)};
  auto times = time_work(
      [&](CUstream_st* stream) {
        return FP8_SDPA_CUDA_STATUS(cudaMemcpyAsync((*to)->data(), (*from)->data(), bytes,
                                                    cudaMemcpyDeviceToDevice, stream));
      },
      samples);
  add(std::move(ceiling), std::move(times), ceilings);
  return {};
}

/// Nodes of the graph of empty kernels, as many as timer.hpp's graphs have launches.
constexpr int kGraphNodes = 20;

Status measure_empty_graph(int samples, MeasuredLimits& ceilings) {
  cudaStream_t raw_stream = nullptr;
  FP8_SDPA_RETURN_IF_CUDA_ERROR(cudaStreamCreateWithFlags(&raw_stream, cudaStreamNonBlocking));
  const Stream stream(raw_stream);
  GraphExec exec;
  if (Status s = capture(stream, kGraphNodes, launch_empty, exec); !s.ok()) return s;
  auto times = time_work(
      [&](CUstream_st* on) { return FP8_SDPA_CUDA_STATUS(cudaGraphLaunch(exec.get(), on)); },
      samples);
  if (times.ok()) {
    for (double& sample : *times) sample /= kGraphNodes;
  }
  add({"empty_launch_in_graph",
       "an empty kernel, per node of a CUDA graph of " + std::to_string(kGraphNodes),
       LimitUnit::kMicroseconds, 1},
      std::move(times), ceilings);
  return {};
}

}  // namespace

Result<std::vector<double>> time_work(const StreamWork& work, int samples) {
  constexpr int kWarmUps = 3;
  constexpr double kMicrosecondsPerMillisecond = 1000.0;
  cudaStream_t raw_stream = nullptr;
  FP8_SDPA_RETURN_IF_CUDA_ERROR(cudaStreamCreateWithFlags(&raw_stream, cudaStreamNonBlocking));
  const Stream stream(raw_stream);
  cudaEvent_t raw_event = nullptr;
  FP8_SDPA_RETURN_IF_CUDA_ERROR(cudaEventCreate(&raw_event));
  const Event start(raw_event);
  FP8_SDPA_RETURN_IF_CUDA_ERROR(cudaEventCreate(&raw_event));
  const Event stop(raw_event);
  std::vector<double> times;
  for (int i = -kWarmUps; i < samples; ++i) {
    FP8_SDPA_RETURN_IF_CUDA_ERROR(cudaEventRecord(start.get(), stream.get()));
    if (Status s = work(stream.get()); !s.ok()) return s;
    FP8_SDPA_RETURN_IF_CUDA_ERROR(cudaEventRecord(stop.get(), stream.get()));
    FP8_SDPA_RETURN_IF_CUDA_ERROR(cudaEventSynchronize(stop.get()));
    float milliseconds = 0;
    FP8_SDPA_RETURN_IF_CUDA_ERROR(cudaEventElapsedTime(&milliseconds, start.get(), stop.get()));
    if (i >= 0) times.push_back(milliseconds * kMicrosecondsPerMillisecond);
  }
  return times;
}

Result<MeasuredLimit> measure_read(const Device& device, int samples) {
  FP8_SDPA_RETURN_IF_CUDA_ERROR(cudaSetDevice(device.index));
  const auto wanted = bytes_to_move();
  if (!wanted.ok()) return wanted.status();
  const std::size_t bytes = *wanted / kReadMultiple * kReadMultiple;
  auto from = reference::allocate(device, bytes, "what is read");
  if (!from.ok()) return from.status();
  auto sink = reference::allocate(device, sizeof(float), "the sink");
  if (!sink.ok()) return sink.status();
  auto times = time_work(
      [&](CUstream_st* stream) {
        return launch_read((*from)->data(), bytes, device.sm_count,
                           static_cast<float*>((*sink)->data()), stream);
      },
      samples);
  if (!times.ok()) return times.status();
  return MeasuredLimit{
      "read",
      "16 bytes a load, eight loads in flight a thread, " + std::to_string(bytes >> 20U) + " MiB",
      LimitUnit::kBytesPerSecond, static_cast<double>(bytes), std::move(*times)};
}

Result<MeasuredLimits> measure_limits(const Device& device, int samples) {
  if (device.backend != Backend::kDevice) {
    return unsupported("the host executor's speed is no limit of a GPU");
  }
  FP8_SDPA_RETURN_IF_CUDA_ERROR(cudaSetDevice(device.index));
  MeasuredLimits ceilings;
  measure_matrix_multiplies(samples, ceilings);
  if (Status s = measure_copy(device, samples, ceilings); !s.ok()) return s;
  auto read = measure_read(device, samples);
  if (!read.ok()) return read.status();
  ceilings.measured.push_back(std::move(*read));
  if (Status s = measure_instructions(device, samples, ceilings); !s.ok()) return s;
  add({"empty_launch", "an empty kernel between two CUDA events", LimitUnit::kMicroseconds, 1},
      time_work(launch_empty, samples), ceilings);
  if (Status s = measure_empty_graph(samples, ceilings); !s.ok()) return s;
  return ceilings;
}

#else

Result<std::vector<double>> time_work(const StreamWork&, int) {
  return unsupported("this build has no device code");
}
Result<MeasuredLimit> measure_read(const Device&, int) {
  return unsupported("this build has no device code");
}
Result<MeasuredLimits> measure_limits(const Device&, int) {
  return unsupported("this build has no device code");
}

#endif

}  // namespace fp8_sdpa::bench
