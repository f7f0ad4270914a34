#include "fp8_sdpa/plan.hpp"

#include <cmath>
#include <cstdint>
#include <string>

#include "dispatch/check_problem.hpp"
#include "dispatch/choose.hpp"
#include "dispatch/variant_impl.hpp"

namespace fp8_sdpa {
namespace {

const detail::Functions& functions_of(const Variant& variant, const Device& device) {
  return device.backend == Backend::kDevice ? variant.impl->device : variant.impl->host;
}

float scale_of(const Problem& problem) {
  if (problem.softmax_scale != 0.0F) return problem.softmax_scale;
  return static_cast<float>(1.0 / std::sqrt(static_cast<double>(problem.head_dim)));
}

}  // namespace

Result<Plan> plan(const Problem& problem, const Device& device, const Variant* variant,
                  const PlanOptions& options) {
  if (variant == nullptr) {
    const Result<const Variant*> chosen =
        detail::choose(problem, device, toggles_chosen(), options);
    if (!chosen.ok()) return chosen.status();
    variant = *chosen;
  } else if (Status s = variant->supports(problem, device); !s.ok()) {
    return s;
  } else if (options.no_workspace && variant->impl->needs_workspace) {
    return unsupported(std::string(variant->name) +
                       " needs a workspace, which PlanOptions::no_workspace rules out");
  }
  Plan result;
  result.problem_ = problem;
  result.problem_.softmax_scale = scale_of(problem);
  result.device_ = device;
  result.variant_ = variant;
  result.options_ = options;
  if (const detail::Prepare prepare = functions_of(*variant, device).prepare; prepare != nullptr) {
    if (Status s = prepare(result.problem_, device, options, result.state_); !s.ok()) return s;
  }
  return result;
}

Status rebind(Plan& plan, const Problem& problem) {
  if (plan.variant_ == nullptr || !detail::are_alike(plan.problem_, problem)) {
    return invalid_argument(
        "the problem differs from the plan's in more than addresses and softmax_scale: plan() it");
  }
  Problem bound = problem;
  bound.softmax_scale = scale_of(problem);
  if (bound == plan.problem_) return {};
  if (Status s = plan.variant_->supports(problem, plan.device_); !s.ok()) return s;
  const detail::Prepare prepare = functions_of(*plan.variant_, plan.device_).prepare;
  if (prepare != nullptr) {
    plan.state_.has_sizes = true;
    if (Status s = prepare(bound, plan.device_, plan.options_, plan.state_); !s.ok()) return s;
  }
  plan.problem_ = bound;
  return {};
}

std::string_view Plan::variant_name() const { return variant_->name; }

Status forward(const Plan& plan, void* workspace, CUstream_st* stream) {
  if (workspace == nullptr && plan.workspace_bytes() > 0) {
    return invalid_argument("workspace is null; " + std::string(plan.variant_name()) + " needs " +
                            std::to_string(plan.workspace_bytes()) +
                            " bytes for this problem (Plan::workspace_bytes)");
  }
  if (plan.workspace_bytes() > 0 &&
      reinterpret_cast<std::uintptr_t>(workspace) % Plan::kWorkspaceAlignment != 0) {
    return invalid_argument("workspace is not aligned to " +
                            std::to_string(Plan::kWorkspaceAlignment) + " bytes");
  }
  const gpu::Queue queue{stream, plan.device().executor.get()};
  const detail::Functions& functions = functions_of(plan.variant(), plan.device());
  if (functions.launch_prepared != nullptr) {
    return functions.launch_prepared(plan.state(), workspace, queue);
  }
  return functions.launch(plan.problem(), queue);
}

Status detail::forward_at_once(const Problem& problem, const Device& device, CUstream_st* stream) {
  const Result<Plan> made = plan(problem, device, nullptr, {.no_workspace = true});
  if (!made.ok()) return made.status();
  return forward(*made, nullptr, stream);
}

Status forward(const Problem& problem, CUstream_st* stream) {
  const Result<Device> device = current_device();
  if (!device.ok()) return device.status();
  return detail::forward_at_once(problem, *device, stream);
}

}  // namespace fp8_sdpa
