// plan()'s choices of variant, remembered: PyTorch's callers come with new tensors of the same
// shapes at every call, and to predict the time of every variant takes ten times as long as to plan
// one.
#pragma once

#include <array>
#include <bit>
#include <cstddef>
#include <cstdint>
#include <unordered_map>

#include "fp8_sdpa/plan.hpp"
#include "fp8_sdpa/unquantised.hpp"

namespace fp8_sdpa::torch_op {

/// Of one thread. All that the choice depends on but for addresses.
class Choices {
 public:
  /// As plan() without a variant.
  template <class AnyProblem>
  auto plan_of(const AnyProblem& problem, const Device& device, const PlanOptions& options) {
    if (known_.size() >= kMost) known_.clear();
    const Variant*& known = known_[key_of(attention_of(problem), device, options)];
    if (known != nullptr) {
      auto again = plan(problem, device, known, options);
      if (again.ok()) return again;  // an address may be one that the variant does not serve
    }
    auto made = plan(problem, device, nullptr, options);
    if (made.ok()) known = &attention_of(*made).variant();
    return made;
  }

  static Choices& of_this_thread() {
    static thread_local Choices choices;
    return choices;
  }

 private:
  using Key = std::array<std::int64_t, 32>;
  struct Hash {
    std::size_t operator()(const Key& key) const {  // FNV-1a, a word at a time
      std::uint64_t hash = 0xcbf29ce484222325;
      for (const std::int64_t word : key) {
        hash = (hash ^ static_cast<std::uint64_t>(word)) * 0x100000001b3;
      }
      return hash;
    }
  };
  static constexpr std::size_t kMost = 4096;

  static const Problem& attention_of(const Problem& problem) { return problem; }
  static const Problem& attention_of(const UnquantisedProblem& problem) {
    return problem.attention;
  }
  static const Plan& attention_of(const Plan& plan) { return plan; }
  static const Plan& attention_of(const UnquantisedPlan& plan) { return plan.attention(); }

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
            options.batch_invariant,
            options.no_workspace,
            static_cast<std::int64_t>(device.backend),
            device.index};
    std::size_t at = 13;
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

  std::unordered_map<Key, const Variant*, Hash> known_;
};

}  // namespace fp8_sdpa::torch_op
