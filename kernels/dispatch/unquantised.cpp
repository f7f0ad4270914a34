#include "fp8_sdpa/unquantised.hpp"

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <span>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include "attention/sequences.hpp"
#include "dispatch/check_problem.hpp"
#include "dispatch/check_tensor.hpp"
#include "dispatch/choose.hpp"
#include "dispatch/plan_state.hpp"
#include "dispatch/which_quantiser.hpp"
#include "fp8_sdpa/quantise.hpp"
#include "gpu/queue.hpp"

namespace fp8_sdpa {
namespace {

/// What lies in the workspace, one after the other.
class Layout {
 public:
  explicit Layout(void* base) : next_(reinterpret_cast<std::uintptr_t>(base)) {}

  template <class T>
  T* take(std::int64_t count) {
    constexpr std::uintptr_t kAlignment = UnquantisedPlan::kWorkspaceAlignment;
    const std::uintptr_t here = next_;
    const auto bytes = static_cast<std::uintptr_t>(count) * sizeof(T);
    next_ += (bytes + kAlignment - 1) / kAlignment * kAlignment;
    return reinterpret_cast<T*>(here);
  }
  std::uintptr_t end() const { return next_; }

 private:
  std::uintptr_t next_;
};

/// The quantisations of Q, K and V, and attention on what they write, with their workspaces behind
/// it.
struct Steps {
  Quantisation q, k, v;
  bool quantises_v;  ///< else attention takes it as it is
  Problem attention;
  bool at_once;          ///< Q, K and V by one launch
  std::byte* workspace;  ///< of one step at a time
};

/// Whether the quantiser of slabs takes Q, K and V in one launch.
bool have_slabs(const Problem& p, const Device& device) {
  return p.k.dtype == p.q.dtype && p.v.dtype == p.q.dtype && detail::runs_slabs(device) &&
         quantiser::has_slabs(p.q, p.seq_q) && quantiser::has_slabs(p.k, p.seq_kv) &&
         quantiser::has_slabs(p.v, p.seq_kv);
}

Steps steps_of(const UnquantisedProblem& problem, Granularity granularity, const Device& device,
               void* base) {
  const Problem& p = problem.attention;
  const bool blocks = granularity == Granularity::kBlock;
  const bool int8 = problem.precision == Precision::kInt8;
  // A head may be one block of rows.
  const bool at_once =
      !int8 && (blocks || std::max(p.seq_q, p.seq_kv) <= kKeysOfBlock) && have_slabs(p, device);
  Layout layout(base);
  const auto quantisation = [&](const Tensor& from, int heads, std::int64_t seq, int block_rows) {
    Quantisation q;
    q.batch = p.batch;
    q.heads = heads;
    q.seq = seq;
    q.head_dim = p.head_dim;
    q.from = from;
    const std::int64_t head = seq * p.head_dim;
    q.codes = {layout.take<std::uint8_t>(std::int64_t{p.batch} * heads * head),
               int8 ? Dtype::kInt8 : Dtype::kE4M3,
               heads * head,
               head,
               p.head_dim,
               1};
    if (at_once) q.block_rows = blocks ? block_rows : kKeysOfBlock;
    q.descales = layout.take<float>(std::int64_t{p.batch} * heads *
                                    descales_of_head(granularity, seq, block_rows));
    return q;
  };
  Steps steps{quantisation(p.q, p.heads_q, p.seq_q, kQueriesOfBlock),
              quantisation(p.k, p.heads_kv, p.seq_kv, kKeysOfBlock),
              int8 ? Quantisation{} : quantisation(p.v, p.heads_kv, p.seq_kv, kKeysOfBlock),
              !int8,
              p,
              at_once,
              nullptr};
  for (Quantisation* q : {&steps.q, &steps.k}) {
    q->rotate = problem.rotate;
    q->seed = problem.seed;
  }
  steps.k.smooth = problem.smooth;
  if (problem.smooth && p.lse != nullptr) {
    if (!at_once) {
      steps.k.mean = layout.take<float>(std::int64_t{p.batch} * p.heads_kv * p.head_dim);
      steps.q.dot_with = steps.k.mean;
    }
    steps.q.dots = layout.take<float>(std::int64_t{p.batch} * p.heads_q * p.seq_q);
    steps.q.dot_group = p.heads_q / p.heads_kv;
  }
  steps.attention.q = steps.q.codes;
  steps.attention.k = steps.k.codes;
  if (steps.quantises_v) steps.attention.v = steps.v.codes;
  steps.attention.descales = {steps.q.descales, steps.k.descales, steps.v.descales, granularity};
  steps.workspace = reinterpret_cast<std::byte*>(layout.end());
  return steps;
}

Status about(const char* tensor, const Status& status) {
  return {status.code(), std::string(tensor) + ": " + status.message()};
}

/// Sizes that steps_of() counts with; the rest is asked by the steps' own plans.
Status check_shape(const Problem& p) {
  constexpr std::int64_t kMax = std::int64_t{1} << 46;  // bytes of a tensor, and then some
  if (Status s = detail::check_counts(p); !s.ok()) return s;
  for (const auto& [name, heads, seq] :
       {std::tuple<const char*, int, std::int64_t>{"q", p.heads_q, p.seq_q},
        {"k", p.heads_kv, p.seq_kv}}) {
    if (seq <= kMax / p.head_dim / heads / p.batch) continue;
    return unsupported(std::string(name) + " has " + std::to_string(p.batch) + " * " +
                       std::to_string(heads) + " * " + std::to_string(seq) + " * " +
                       std::to_string(p.head_dim) + " elements; at most 2^46 are served");
  }
  return {};
}

Status check_precision(const UnquantisedProblem& problem) {
  const Dtype v = problem.attention.v.dtype;
  if (problem.precision == Precision::kFp8) return {};
  if (problem.precision != Precision::kInt8) {
    return invalid_argument("precision is " + std::to_string(static_cast<int>(problem.precision)) +
                            "; it must be fp8 or int8");
  }
  if (v == Dtype::kHalf || v == Dtype::kBFloat16) return {};
  return invalid_argument(std::string("v.dtype is ") + name_of(v) +
                          "; with precision int8 it must be half or bf16");
}

/// What they need: the most that one of them does. At once, it is that of the one which smooths.
Result<std::size_t> workspace_of_quantisations(const Steps& steps, const Device& device) {
  std::size_t most = 0;
  for (const auto& [name, step] : {std::pair{"q", &steps.q}, {"k", &steps.k}, {"v", &steps.v}}) {
    if (step == &steps.v && !steps.quantises_v) continue;
    Quantisation quantisation = *step;
    // Dot products with a mean that only the launch of all three knows.
    if (quantisation.dot_with == nullptr) quantisation.dots = nullptr;
    const Result<QuantisePlan> made = plan(quantisation, device);
    if (!made.ok()) return about(name, made.status());
    most = std::max(most, made->workspace_bytes());
  }
  return most;
}

/// What quantising takes on an H200, with rotation and smoothing, whatever is asked for
/// (quantise/JOURNAL.md, versions 7 and 8): of a call, and of 10^6 bytes that are read or written.
struct QuantiserCost {
  double call_us, us_of_megabyte;
};
constexpr QuantiserCost kOfHeads{20.0, 0.47};
constexpr QuantiserCost kAtOnce{4.0, 0.365};
/// Of the time with descales of heads. Those of blocks are taken for less: attention on their codes
/// is a little less exact.
constexpr double kWorthIt = 0.99;

double predicted_us(const Steps& steps, const Device& device, const PlanOptions& options) {
  const std::vector<detail::Prediction> attention =
      detail::predictions(steps.attention, device, options);
  if (attention.empty()) return std::numeric_limits<double>::infinity();
  double bytes = 0.0;
  for (const Quantisation* q : {&steps.q, &steps.k, &steps.v}) {
    bytes += static_cast<double>(q->batch) * q->heads * static_cast<double>(q->seq) * q->head_dim *
             (size_of(q->from.dtype) + 1);
  }
  const QuantiserCost& cost = steps.at_once ? kAtOnce : kOfHeads;
  return attention.front().us + cost.call_us + 1e-6 * bytes * cost.us_of_megabyte;
}

/// On the codes of blocks where it serves them and that is predicted to be worth it, else on those
/// of heads. Of batch_invariant the prediction, which the batch has a part in, is not asked.
Result<Plan> plan_attention(const UnquantisedProblem& problem, const Device& device,
                            const Variant* variant, const PlanOptions& options) {
  const Problem& p = problem.attention;
  void* const nowhere = reinterpret_cast<void*>(detail::kNowhere);
  const Steps heads = steps_of(problem, Granularity::kHead, device, nowhere);
  if (problem.granularity == Granularity::kBlock && problem.precision == Precision::kFp8 &&
      have_slabs(p, device)) {
    const Steps blocks = steps_of(problem, Granularity::kBlock, device, nowhere);
    Result<Plan> made = plan(blocks.attention, device, variant, options);
    const bool asked = variant != nullptr || options.batch_invariant;
    if (made.ok() && (asked || predicted_us(blocks, device, options) <
                                   kWorthIt * predicted_us(heads, device, options))) {
      return made;
    }
  }
  return plan(heads.attention, device, variant, options);
}

/// Checked when they were planned. K first: where each has a launch of its own, its mean is what Q
/// is multiplied with.
template <Backend kBackend>
Status quantise(const Steps& steps, const Device& device, const gpu::Queue& queue) {
  const std::array all = {steps.k, steps.q, steps.v};
  if (steps.at_once) {
    return quantiser::launch_slabs<kBackend>(all, device, steps.workspace, queue);
  }
  for (const Quantisation& quantisation : std::span(all).first(steps.quantises_v ? 3 : 2)) {
    const Status launched =
        detail::launch_quantisation<kBackend>(quantisation, device, steps.workspace, queue);
    if (!launched.ok()) return launched;
  }
  return {};
}

template <Backend kBackend>
Status add_to_lse(const Steps& steps, float scale, const gpu::Queue& queue) {
  const Problem& p = steps.attention;
  return quantiser::add_to_lse<kBackend>(p.lse, steps.q.dots, scale,
                                         std::int64_t{p.batch} * p.heads_q * p.seq_q, queue);
}

template <Backend kBackend>
Status run(const UnquantisedPlan& made, const Steps& steps, const gpu::Queue& queue) {
  const Status quantised = quantise<kBackend>(steps, made.attention().device(), queue);
  if (!quantised.ok()) return quantised;
  Plan attention = made.attention();
  if (Status s = rebind(attention, steps.attention); !s.ok()) return s;
  if (Status s = forward(attention, steps.workspace, queue.stream); !s.ok()) return s;
  if (steps.q.dots == nullptr) return {};
  return add_to_lse<kBackend>(steps, attention.problem().softmax_scale, queue);
}

}  // namespace

Result<UnquantisedPlan> plan(const UnquantisedProblem& problem, const Device& device,
                             const Variant* variant, const PlanOptions& options) {
  if (options.no_workspace) {
    return invalid_argument("PlanOptions::no_workspace is set; codes need a workspace");
  }
  if (attention::is_ragged_or_paged(problem.attention)) {
    return unsupported(
        "unquantised problems are served as whole tensors, not as pages or ragged "
        "lengths: quantise into the cache, and plan attention on it");
  }
  if (Status s = check_shape(problem.attention); !s.ok()) return s;
  if (Status s = check_precision(problem); !s.ok()) return s;
  void* const nowhere = reinterpret_cast<void*>(detail::kNowhere);
  const Result<std::size_t> of_heads =
      workspace_of_quantisations(steps_of(problem, Granularity::kHead, device, nowhere), device);
  if (!of_heads.ok()) return of_heads.status();
  const Result<Plan> attention = plan_attention(problem, device, variant, options);
  if (!attention.ok()) return attention.status();
  const Steps steps = steps_of(problem, attention->problem().descales.granularity, device, nowhere);
  const Result<std::size_t> most = workspace_of_quantisations(steps, device);
  if (!most.ok()) return most.status();
  UnquantisedPlan result;
  result.problem_ = problem;
  result.attention_ = *attention;
  result.workspace_bytes_ = reinterpret_cast<std::uintptr_t>(steps.workspace) - detail::kNowhere +
                            std::max(*most, attention->workspace_bytes());
  return result;
}

Status rebind(UnquantisedPlan& plan, const UnquantisedProblem& problem) {
  Problem before = plan.problem_.attention;
  before.descales = problem.attention.descales;  // which nobody looks at
  if (plan.problem_.rotate != problem.rotate || plan.problem_.smooth != problem.smooth ||
      plan.problem_.granularity != problem.granularity ||
      plan.problem_.precision != problem.precision ||
      !detail::are_alike(before, problem.attention)) {
    return invalid_argument(
        "the problem differs from the plan's in more than addresses, softmax_scale and seed: "
        "plan() it");
  }
  const Steps steps = steps_of(problem, plan.attention_.problem().descales.granularity,
                               plan.attention_.device(), reinterpret_cast<void*>(detail::kNowhere));
  const Result<std::size_t> most = workspace_of_quantisations(steps, plan.attention_.device());
  if (!most.ok()) return most.status();
  if (Status s = rebind(plan.attention_, steps.attention); !s.ok()) return s;
  plan.problem_ = problem;
  return {};
}

Status forward(const UnquantisedPlan& made, void* workspace, CUstream_st* stream) {
  if (workspace == nullptr) {
    return invalid_argument("workspace is null; this problem needs " +
                            std::to_string(made.workspace_bytes()) +
                            " bytes (UnquantisedPlan::workspace_bytes)");
  }
  if (reinterpret_cast<std::uintptr_t>(workspace) % UnquantisedPlan::kWorkspaceAlignment != 0) {
    return invalid_argument("workspace is not aligned to " +
                            std::to_string(UnquantisedPlan::kWorkspaceAlignment) + " bytes");
  }
  const Device& device = made.attention().device();
  const Steps steps =
      steps_of(made.problem(), made.attention().problem().descales.granularity, device, workspace);
  const gpu::Queue queue{stream, device.executor.get()};
  return detail::on_backend_of(
      device, [&]<Backend kBackend>() { return run<kBackend>(made, steps, queue); });
}

}  // namespace fp8_sdpa
