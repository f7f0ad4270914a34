#include "benchmarks/run/goal_shapes.hpp"

#include <utility>

#include "benchmarks/run/runner_options.hpp"
#include "reference/judge/sampled.hpp"

namespace fp8_sdpa::bench {

std::span<const GoalSize> goal_sizes() {
  static constexpr GoalSize kGoals[] = {
      {"d64_4k", 4, 16, 4096, 64},
      {"d64_16k", 1, 16, 16384, 64},
      {"d128_2k", 8, 16, 2048, 128},
      {"d128_8k", 2, 16, 8192, 128},
      {"d128_16k", 1, 16, 16384, 128},
      {"d256_4k", 4, 8, 4096, 256},
      {"d256_16k", 1, 8, 16384, 256},
      {"small", 1, 1, 32, 64},
      {"mission", 1, 8, 512, 64},
      {"long", 1, 8, 2048, 64},
      {"batch2", 2, 8, 512, 64},
      {"chunk_32k", 1, 32, 128, 128, /*heads_kv=*/8, /*seq_kv=*/32768},
  };
  return kGoals;
}

reference::Shape shape_of(const GoalSize& goal, Mask mask) {
  reference::Shape shape;
  shape.name = std::string(goal.name) + (mask == Mask::kCausal ? "_causal" : "");
  shape.batch = goal.batch;
  shape.heads_q = goal.heads;
  shape.heads_kv = goal.heads_kv;
  shape.seq_q = goal.seq;
  shape.seq_kv = goal.seq_kv;
  shape.head_dim = goal.head_dim;
  shape.mask = mask;
  shape.inputs.family = "normal";
  return shape;
}

std::vector<reference::Shape> goal_shapes() {
  std::vector<reference::Shape> shapes;
  for (const GoalSize& goal : goal_sizes()) {
    for (const Mask mask : {Mask::kNone, Mask::kCausal}) shapes.push_back(shape_of(goal, mask));
  }
  return shapes;
}

Result<GatedLaunch> GatedGoals::launch(const reference::Shape& shape) {
  if (name_ != shape.name) {
    last_ = nullptr;  // before the next one's tensors are made
    auto judged = judge(shape);
    name_ = shape.name;
    refused_ = judged.ok() ? Status{} : judged.status();
    if (judged.ok()) last_ = std::make_shared<const GatedLaunch>(std::move(*judged));
  }
  if (last_ == nullptr) return refused_;
  return *last_;
}

const reference::CaseData& GatedGoals::drawn(const reference::Shape& shape) {
  if (drawn_ && same_inputs(drawn_->shape, shape)) {
    drawn_->shape = shape;
  } else {
    drawn_.reset();  // before the next one's are made
    drawn_ = reference::draw_case(shape, config_.seeds.front());
  }
  return *drawn_;
}

Result<GatedLaunch> GatedGoals::judge(const reference::Shape& shape) {
  constexpr Dtype kOutput = Dtype::kBFloat16;
  const bool whole = score_count(shape) <= reference::kWholeScores;
  const auto of_whole = whole ? reference::make_case(shape, config_.seeds.front()) : nullptr;
  const reference::CaseData& data = whole ? *of_whole : drawn(shape);
  auto made = Workload::make(data, device_, kOutput);
  if (!made.ok()) return made.status();
  const auto workload = std::make_shared<const Workload>(std::move(*made));
  const auto planned = plan(workload->problem(), device_);
  if (!planned.ok()) return planned.status();
  const Variant& chosen = planned->variant();
  const reference::CheckOptions options{.output = kOutput, .lse = false};
  auto result = whole
                    ? reference::check(chosen, data, device_, config_.tolerances, options)
                    : reference::check_sampled(chosen, data, device_, config_.tolerances, options);
  if (!result.ok()) return result.status();
  if (!result->pass) {
    return Status{StatusCode::kExecutorError, std::string(chosen.name) + " on " + shape.name +
                                                  " is not timed: " + result->failure()};
  }
  return GatedLaunch{workload, *planned, std::move(result->output)};
}

}  // namespace fp8_sdpa::bench
