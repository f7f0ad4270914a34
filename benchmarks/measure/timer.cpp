#include "benchmarks/measure/timer.hpp"

#include <utility>

#include "benchmarks/statistics/stats.hpp"
#if FP8_SDPA_HAS_DEVICE
#include <optional>

#include "benchmarks/measure/cuda_handles.hpp"
#include "benchmarks/measure/hold.hpp"
#include "benchmarks/measure/rotation.hpp"
#include "gpu/cuda_check.hpp"
#include "reference/oracle/memory.hpp"
#endif

namespace fp8_sdpa::bench {

#if FP8_SDPA_HAS_DEVICE

namespace {

Status make_event(Event& event) {
  cudaEvent_t raw = nullptr;
  FP8_SDPA_RETURN_IF_CUDA_ERROR(cudaEventCreate(&raw));
  event.reset(raw);
  return {};
}

}  // namespace

struct LaunchTimer::Impl {
  Plan plan;
  Method method = Method::kEventsWarm;
  std::unique_ptr<reference::Buffer>
      flush;  // before the stream, so that it outlives what the stream does with it
  reference::Workspace workspace;  // likewise
  Stream stream;
  Event start;
  Event stop;
  GraphExec graph;
  std::optional<Hold> hold;
  std::optional<Rotation> rotation;
  std::function<Status(CUstream_st*)> function;  ///< what is timed in place of the plan

  Status set_up() {
    cudaStream_t raw = nullptr;
    FP8_SDPA_RETURN_IF_CUDA_ERROR(cudaStreamCreateWithFlags(&raw, cudaStreamNonBlocking));
    stream.reset(raw);
    if (Status status = make_event(start); !status.ok()) return status;
    if (Status status = make_event(stop); !status.ok()) return status;
    if (function) {
      return method == Method::kGraphWarm ? capture(stream, kGraphLaunches, function, graph)
                                          : make_hold();
    }
    auto space = reference::Workspace::make(plan);
    if (!space.ok()) return space.status();
    workspace = std::move(*space);
    if (method == Method::kEventsCold) return allocate_flush_buffer();
    if (method == Method::kGraphWarm) {
      return capture(
          stream, kGraphLaunches,
          [&](CUstream_st* on) { return forward(plan, workspace.data(), on); }, graph);
    }
    if (method == Method::kQueuedRotating) {
      if (Status status = make_rotation(); !status.ok()) return status;
    }
    if (method == Method::kQueuedWarm || method == Method::kQueuedRotating) return make_hold();
    return {};
  }

  Status allocate_flush_buffer() {
    constexpr std::size_t kTimesL2 = 2;
    const auto l2 = l2_bytes(plan.device());
    if (!l2.ok()) return l2.status();
    auto buffer = reference::allocate(plan.device(), kTimesL2 * static_cast<std::size_t>(*l2),
                                      "the L2 flush buffer");
    if (!buffer.ok()) return buffer.status();
    flush = std::move(*buffer);
    return {};
  }

  Status make_rotation() {
    const auto l2 = l2_bytes(plan.device());
    if (!l2.ok()) return l2.status();
    const std::int64_t copies = rotating_copies(input_bytes(plan.problem()), *l2);
    if (copies == 1) return {};
    auto made = Rotation::make(plan, copies);
    if (!made.ok()) return made.status();
    rotation = std::move(*made);
    return {};
  }

  Status make_hold() {
    auto made = Hold::make();
    if (!made.ok()) return made.status();
    hold = std::move(*made);
    return {};
  }

  Status launch() {
    if (graph != nullptr) return FP8_SDPA_CUDA_STATUS(cudaGraphLaunch(graph.get(), stream.get()));
    if (function) return function(stream.get());
    return forward(rotation ? rotation->next() : plan, workspace.data(), stream.get());
  }

  /// Event, launch, event.
  Status queue_sample() {
    FP8_SDPA_RETURN_IF_CUDA_ERROR(cudaEventRecord(start.get(), stream.get()));
    if (Status status = launch(); !status.ok()) return status;
    return FP8_SDPA_CUDA_STATUS(cudaEventRecord(stop.get(), stream.get()));
  }

  /// The same behind a hold, and a wait for the end. Whether the hold lasted that long.
  Result<bool> queue_held_sample() {
    if (Status status = hold->hold(stream.get()); !status.ok()) return status;
    Status queued = queue_sample();
    hold->release();
    if (!queued.ok()) return queued;
    FP8_SDPA_RETURN_IF_CUDA_ERROR(cudaEventSynchronize(stop.get()));
    return hold->was_held();
  }

  int launches_at_once() const { return graph == nullptr ? 1 : kGraphLaunches; }
};

Result<LaunchTimer> LaunchTimer::make(const Plan& plan, Method method) {
  if (plan.device().backend != Backend::kDevice) {
    return unsupported("the host executor has no CUDA events: its time says nothing of a GPU");
  }
  auto impl = std::make_unique<Impl>(Impl{plan, method, {}, {}, {}, {}, {}, {}, {}, {}, {}});
  if (Status status = impl->set_up(); !status.ok()) return status;
  return LaunchTimer(std::move(impl));
}

Result<LaunchTimer> LaunchTimer::make(std::function<Status(CUstream_st*)> launch, Method method) {
  auto impl = std::make_unique<Impl>();
  impl->method = method;
  impl->function = std::move(launch);
  if (Status status = impl->set_up(); !status.ok()) return status;
  return LaunchTimer(std::move(impl));
}

Status LaunchTimer::warm_up(int launches) {
  for (int done = 0; done < launches; done += impl_->launches_at_once()) {
    if (Status status = impl_->launch(); !status.ok()) return status;
  }
  return FP8_SDPA_CUDA_STATUS(cudaStreamSynchronize(impl_->stream.get()));
}

Result<double> LaunchTimer::sample_us() {
  constexpr double kMicrosecondsPerMillisecond = 1000.0;
  cudaStream_t stream = impl_->stream.get();
  if (impl_->flush != nullptr) {
    FP8_SDPA_RETURN_IF_CUDA_ERROR(
        cudaMemsetAsync(impl_->flush->data(), 0, impl_->flush->size(), stream));
    // Else the launch's latency would hide behind the flush, and cold could seem faster than warm.
    FP8_SDPA_RETURN_IF_CUDA_ERROR(cudaStreamSynchronize(stream));
  }
  Status queued = impl_->hold ? queue_held([this] { return impl_->queue_held_sample(); })
                              : impl_->queue_sample();
  if (!queued.ok()) return queued;
  FP8_SDPA_RETURN_IF_CUDA_ERROR(cudaEventSynchronize(impl_->stop.get()));
  float milliseconds = 0;
  FP8_SDPA_RETURN_IF_CUDA_ERROR(
      cudaEventElapsedTime(&milliseconds, impl_->start.get(), impl_->stop.get()));
  return milliseconds * kMicrosecondsPerMillisecond / impl_->launches_at_once();
}

#else

struct LaunchTimer::Impl {};

Result<LaunchTimer> LaunchTimer::make(const Plan&, Method) {
  return unsupported("this build has no device code: nvcc was not found when it was configured");
}
Result<LaunchTimer> LaunchTimer::make(std::function<Status(CUstream_st*)>, Method) {
  return unsupported("this build has no device code: nvcc was not found when it was configured");
}
Status LaunchTimer::warm_up(int) { return unsupported("this build has no device code"); }
Result<double> LaunchTimer::sample_us() { return unsupported("this build has no device code"); }

#endif

LaunchTimer::LaunchTimer(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}
LaunchTimer::LaunchTimer(LaunchTimer&&) noexcept = default;
LaunchTimer& LaunchTimer::operator=(LaunchTimer&&) noexcept = default;
LaunchTimer::~LaunchTimer() = default;

Result<std::vector<double>> time_in_turns(
    const std::vector<std::function<Status(CUstream_st*)>>& launches, Method method, int warmup,
    int samples) {
  std::vector<LaunchTimer> timers;
  for (const auto& launch : launches) {
    auto timer = LaunchTimer::make(launch, method);
    if (!timer.ok()) return timer.status();
    if (Status s = timer->warm_up(warmup); !s.ok()) return s;
    timers.push_back(std::move(*timer));
  }
  std::vector<std::vector<double>> times(launches.size());
  for (int turn = 0; turn < samples; ++turn) {
    for (std::size_t i = 0; i < timers.size(); ++i) {
      const auto us = timers[i].sample_us();
      if (!us.ok()) return us.status();
      times[i].push_back(*us);
    }
  }
  std::vector<double> medians;
  for (const auto& of_launch : times) medians.push_back(summarise(of_launch).p50);
  return medians;
}

Result<std::vector<double>> time_launches(const Plan& plan, Method method, int warmup,
                                          int samples) {
  auto timer = LaunchTimer::make(plan, method);
  if (!timer.ok()) return timer.status();
  if (Status status = timer->warm_up(warmup); !status.ok()) return status;
  std::vector<double> times;
  times.reserve(static_cast<std::size_t>(samples));
  for (int i = 0; i < samples; ++i) {
    const Result<double> time = timer->sample_us();
    if (!time.ok()) return time.status();
    times.push_back(*time);
  }
  return times;
}

}  // namespace fp8_sdpa::bench
