// plan(), remembered: PyTorch's callers come with new tensors of the same shapes at every call. To
// predict the time of every variant takes a hundred microseconds, to share out the work of one some
// tens, and to bind a plan to other addresses one.
#pragma once

#include <array>
#include <bit>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <unordered_map>
#include <utility>

#include "fp8_sdpa/plan.hpp"
#include "fp8_sdpa/unquantised.hpp"
#include "tensors.hpp"

namespace fp8_sdpa::torch_op {

/// Of one thread. By all that a plan depends on but for addresses.
class Plans {
 public:
  /// As plan() without a variant; good until the next call.
  template <class AnyProblem>
  const auto& plan_of(const AnyProblem& problem, const Device& device, const PlanOptions& options) {
    auto& known = of(problem);
    const Key key = key_of(problem, device, options);
    if (known.size() >= kMost && known.find(key) == known.end()) known.clear();
    auto& mine = known[key];
    if (mine && rebind(*mine, problem).ok()) return *mine;
    if (mine) {
      // Of another number of queries; or at an address that the variant does not serve.
      auto again = plan(problem, device, &attention_of(*mine).variant(), options);
      if (again.ok()) return *(mine = std::move(*again));
    }
    return *(mine = value_of(plan(problem, device, nullptr, options)));
  }

  static Plans& of_this_thread() {
    static thread_local Plans plans;
    return plans;
  }

 private:
  using Key = std::array<std::int64_t, 34>;
  struct Hash {
    std::size_t operator()(const Key& key) const {  // FNV-1a, a word at a time
      std::uint64_t hash = 0xcbf29ce484222325;
      for (const std::int64_t word : key) {
        hash = (hash ^ static_cast<std::uint64_t>(word)) * 0x100000001b3;
      }
      return hash;
    }
  };
  static constexpr std::size_t kMost = 512;  // of some 5 KB

  template <class AnyPlan>
  using Known = std::unordered_map<Key, std::optional<AnyPlan>, Hash>;
  Known<Plan>& of(const Problem&) { return of_codes_; }
  Known<UnquantisedPlan>& of(const UnquantisedProblem&) { return unquantised_; }

  static const Plan& attention_of(const Plan& plan) { return plan; }
  static const Plan& attention_of(const UnquantisedPlan& plan) { return plan.attention(); }

  static Key key_of(const UnquantisedProblem& p, const Device& device, const PlanOptions& options) {
    Key key = key_of(p.attention, device, options);
    key.back() = (p.rotate ? 1 : 0) + (p.smooth ? 2 : 0) +
                 (p.granularity == Granularity::kBlock ? 4 : 0) +
                 (p.precision == Precision::kInt8 ? 8 : 0);
    return key;
  }
  static Key key_of(const Problem& p, const Device& device, const PlanOptions& options) {
    Key key{p.batch,
            p.heads_q,
            p.heads_kv,
            p.seq_q,
            p.seq_kv,
            p.head_dim,
            p.lse != nullptr,
            static_cast<std::int64_t>(p.lse_sum),
            static_cast<std::int64_t>(p.mask),
            static_cast<std::int64_t>(p.descales.granularity),
            options.batch_invariant,
            options.no_workspace,
            static_cast<std::int64_t>(device.backend),
            device.index};
    std::size_t at = 14;
    for (const Tensor* t : {&p.q, &p.k, &p.v, &p.o}) {
      for (const std::int64_t word :
           {static_cast<std::int64_t>(t->dtype), t->stride_batch, t->stride_head, t->stride_seq}) {
        key[at++] = word;
      }
    }
    // Of how many queries a batch has, the magnitude: it differs at every step of a server.
    key[at++] = std::bit_width(static_cast<std::uint64_t>(p.ragged.total_q));
    key[at++] = p.pages.page_size;
    key[at++] = p.ragged.seqused_kv != nullptr;
    return key;
  }

  Known<Plan> of_codes_;
  Known<UnquantisedPlan> unquantised_;
};

/// Plans `problem`, and launches it with a workspace beside `like`.
template <class AnyProblem>
void launch(const Place& place, const TorchTensor& like, const AnyProblem& problem,
            bool batch_invariant) {
  const auto& plan = Plans::of_this_thread().plan_of(problem, place.device(),
                                                     {.batch_invariant = batch_invariant});
  const Workspace workspace(like, plan.workspace_bytes(), plan.kWorkspaceAlignment);
  check(forward(plan, workspace.data(), place.stream()));
}

}  // namespace fp8_sdpa::torch_op
