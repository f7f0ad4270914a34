// All planted bugs, and what finds each.
#pragma once

#include <functional>
#include <ostream>
#include <string_view>
#include <vector>

#include "tests/gpu_model/planted/planted_arrivals.hpp"
#include "tests/gpu_model/planted/planted_bugs.hpp"
#include "tests/gpu_model/planted/planted_hopper.hpp"

namespace planted {

struct Entry {
  std::string_view name;
  bool right;              ///< no bug
  bool executor;           ///< whether the executor alone finds it, under some adversary
  bool address_sanitizer;  ///< whether AddressSanitizer finds it, with late copies
  bool thread_sanitizer;   ///< whether ThreadSanitizer finds it, in round robin
  /// Whether the kernel runs without an error and gives the right output.
  std::function<bool(const fp8_sdpa::ExecutorOptions&)> passes;
};

inline void PrintTo(const Entry& entry, std::ostream* out) { *out << entry.name; }

template <HopperBug kBug>
Entry hopper_entry(std::string_view name, bool address_sanitizer, bool thread_sanitizer,
                   bool executor = kBug != HopperBug::kNone) {
  return {name,
          kBug == HopperBug::kNone,
          executor,
          address_sanitizer,
          thread_sanitizer,
          hopper_passes<kBug>};
}

inline const std::vector<Entry>& catalogue() {
  static const std::vector<Entry> kAll = [] {
    std::vector<Entry> all;
    for (const Planted& planted : all_planted()) {
      all.push_back({planted.name, planted.bug == Bug::kNone, planted.executor,
                     planted.address_sanitizer, planted.thread_sanitizer,
                     [&planted](const fp8_sdpa::ExecutorOptions& options) {
                       return Experiment(planted).passes(options);
                     }});
    }
    using A = ArrivalBug;
    all.push_back({"arrivals_none", true, false, false, false, arrivals_passes<A::kNone>});
    all.push_back(
        {"arrivals_too_early", false, true, false, true, arrivals_passes<A::kArrivesTooEarly>});
    all.push_back(
        {"arrivals_read_too_early", false, false, false, true, arrivals_passes<A::kReadsTooEarly>});
    using B = HopperBug;
    const std::vector<Entry> hopper = {
        hopper_entry<B::kNone>("hopper_none", false, false),
        hopper_entry<B::kNoInitFence>("hopper_no_init_fence", false, false),
        hopper_entry<B::kNoInitBarrier>("hopper_no_init_barrier", false, true),
        hopper_entry<B::kNoFullWait>("hopper_no_full_wait", true, true),
        hopper_entry<B::kWrongFullParity>("hopper_wrong_full_parity", true, true),
        hopper_entry<B::kNoEmptyWait>("hopper_no_empty_wait", false, false),
        hopper_entry<B::kNoEmptyArrive>("hopper_no_empty_arrive", false, false),
        hopper_entry<B::kArrivesTooOften>("hopper_arrives_too_often", false, false),
        hopper_entry<B::kReleasesTooEarly>("hopper_releases_too_early", false, true),
        hopper_entry<B::kNoSyncWarp>("hopper_no_sync_warp", false, true, false),
        hopper_entry<B::kExpectsTooFew>("hopper_expects_too_few", false, false),
        hopper_entry<B::kExpectsTooMany>("hopper_expects_too_many", false, false),
        hopper_entry<B::kNoWgmmaFence>("hopper_no_wgmma_fence", false, false),
        hopper_entry<B::kReadsTooEarly>("hopper_reads_too_early", false, false),
        hopper_entry<B::kOverwritesA>("hopper_overwrites_a", false, false),
        hopper_entry<B::kNoCommit>("hopper_no_commit", false, false),
        hopper_entry<B::kNoProxyFence>("hopper_no_proxy_fence", false, false),
        hopper_entry<B::kNoBarrierToStore>("hopper_no_barrier_to_store", false, true),
        hopper_entry<B::kReusesSource>("hopper_reuses_source", false, true),
    };
    all.insert(all.end(), hopper.begin(), hopper.end());
    return all;
  }();
  return kAll;
}

}  // namespace planted
