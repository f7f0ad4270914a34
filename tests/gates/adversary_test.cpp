// The host executor's adversary: whatever the order of threads and the moment at which copies land,
// the output's bits are the same. SDPA_SCHEDULES sets how many seeds each schedule gets.
#include <gtest/gtest.h>

#include <cstdlib>

#include "tests/gates/gate_cases.hpp"

namespace fp8_sdpa::tests {
namespace {

int seeds_per_schedule() {
  constexpr int kDefault = 2;
  const char* text = std::getenv("SDPA_SCHEDULES");
  return text != nullptr ? std::max(1, std::atoi(text)) : kDefault;
}

class Adversary : public testing::TestWithParam<const Variant*> {};

TEST_P(Adversary, EveryScheduleGivesRightAnswers) {
  Device device;
  if (!use_backend(Backend::kHost, &device)) return;
  // Three KV tiles, the last one partial; two query tiles, the last one partial.
  const auto data = case_data(make_shape(1, 1, 45, 77), 7);
  reference::CheckOptions options;
  options.rerun = false;
  for (const Schedule schedule : {Schedule::kFifo, Schedule::kLifo, Schedule::kRandom,
                                  Schedule::kThreadPriority, Schedule::kWarpPriority}) {
    for (const Asynchrony asynchrony : {Asynchrony::kLate, Asynchrony::kEager}) {
      for (int seed = 1; seed <= seeds_per_schedule(); ++seed) {
        SCOPED_TRACE(testing::Message()
                     << "schedule " << static_cast<int>(schedule) << ", asynchrony "
                     << static_cast<int>(asynchrony) << ", seed " << seed);
        device.executor.schedule = schedule;
        device.executor.asynchrony = asynchrony;
        device.executor.seed = static_cast<std::uint64_t>(seed);
        expect_pass(*GetParam(), *data, device, options);
        if (HasFatalFailure() || HasNonfatalFailure()) return;
      }
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Gates, Adversary, testing::ValuesIn(all_variants()),
                         [](const testing::TestParamInfo<const Variant*>& info) {
                           return std::string(info.param->name);
                         });

}  // namespace
}  // namespace fp8_sdpa::tests
