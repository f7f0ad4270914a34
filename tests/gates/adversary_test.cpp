// The host executor's adversary: whatever the order of threads and the moment at which copies land,
// the output's bits are the same. SDPA_SCHEDULES sets how many seeds each schedule gets.
#include <gtest/gtest.h>

#include <cstdlib>
#include <memory>

#include "gpu/executor_options.hpp"
#include "tests/gates/gate_cases.hpp"

namespace fp8_sdpa::tests {
namespace {

int seeds_per_schedule() {
  constexpr int kDefault = 2;
  const char* text = std::getenv("SDPA_SCHEDULES");
  return text != nullptr ? std::max(1, std::atoi(text)) : kDefault;
}

/// What a loader may take for released differs where work tiles are one KV tile shorter than the
/// ring, as long, and longer. Three work tiles a block, one more than Q has stages.
class AdversaryLengths : public testing::TestWithParam<Kernel> {};

TEST_P(AdversaryLengths, WorkTilesAsLongAsTheRingGiveRightAnswers) {
  const Kernel& kernel = GetParam();
  Device device;
  if (kernel.stages == 0 || !use_backend(Backend::kHost, &device)) return;
  device.executor = std::make_shared<const ExecutorOptions>(
      ExecutorOptions{.schedule = Schedule::kWarpPriority, .asynchrony = Asynchrony::kEager});
  reference::CheckOptions options;
  options.rerun = false;
  options.lse_sum = kernel.lse_sum;
  for (const int more : {-1, 0, 1}) {
    options.transposed_v = more == 0;  // it takes another way through the ring
    const std::int64_t seq_kv = std::int64_t{kernel.tile_n} * (kernel.stages + more) - 8;
    const auto shape = make_shape(1, 12, 20, seq_kv, kernel.head_dim);
    SCOPED_TRACE(shape.name);
    if (!serves_or_known_decline(*kernel.variant, shape, device, options)) continue;
    expect_pass(*kernel.variant, *case_data(shape, 9, kernel.codes()), device, options);
  }
}

/// Runs a variant under every schedule, with several seeds each.
void expect_pass_on_every_schedule(const Variant& variant, const reference::CaseData& data,
                                   Device device) {
  reference::CheckOptions options;
  options.rerun = false;
  for (const Schedule schedule : {Schedule::kFifo, Schedule::kLifo, Schedule::kRandom,
                                  Schedule::kThreadPriority, Schedule::kWarpPriority}) {
    for (const Asynchrony asynchrony : {Asynchrony::kLate, Asynchrony::kEager}) {
      for (int seed = 1; seed <= seeds_per_schedule(); ++seed) {
        SCOPED_TRACE(testing::Message()
                     << "schedule " << static_cast<int>(schedule) << ", asynchrony "
                     << static_cast<int>(asynchrony) << ", seed " << seed);
        device.executor = std::make_shared<const ExecutorOptions>(
            ExecutorOptions{.schedule = schedule,
                            .seed = static_cast<std::uint64_t>(seed),
                            .asynchrony = asynchrony});
        expect_pass(variant, data, device, options);
        if (testing::Test::HasFailure()) return;
      }
    }
  }
}

class Adversary : public testing::TestWithParam<const Variant*> {};

TEST_P(Adversary, EveryScheduleGivesRightAnswers) {
  Device device;
  if (!use_backend(Backend::kHost, &device)) return;
  // Three KV tiles of the ladder, the last one partial; two query tiles, the last one partial.
  const auto shape = make_shape(1, 1, 45, 77);
  if (!serves_or_known_decline(*GetParam(), shape, device)) return;
  expect_pass_on_every_schedule(*GetParam(), *case_data(shape, 7, GetParam()->codes()), device);
}

// Kernels whose blocks stay for several query tiles and whose rings go round: more (batch, head)
// pairs than the executor has blocks, three times as many as Q has stages, with more keys than the
// rings hold, and with so few that warpgroups have none.
TEST_P(Adversary, PersistentBlocksGiveRightAnswersOnEverySchedule) {
  if (GetParam()->family != Family::kSm90) return;
  Device device;
  if (!use_backend(Backend::kHost, &device)) return;
  struct Sizes {
    int heads, seq_kv, head_dim;
  };
  for (const Sizes& sizes :
       {Sizes{10, 15, 64}, Sizes{6, 300, 64}, Sizes{6, 300, 128}, Sizes{6, 150, 256}}) {
    SCOPED_TRACE(sizes.seq_kv);
    const auto shape = make_shape(1, sizes.heads, 20, sizes.seq_kv, sizes.head_dim);
    if (!serves_or_known_decline(*GetParam(), shape, device)) continue;
    expect_pass_on_every_schedule(*GetParam(), *case_data(shape, 9, GetParam()->codes()), device);
  }
}

INSTANTIATE_TEST_SUITE_P(Gates, AdversaryLengths, testing::ValuesIn(all_kernels()),
                         [](const testing::TestParamInfo<Kernel>& info) {
                           return info.param.name;
                         });
INSTANTIATE_TEST_SUITE_P(Gates, Adversary, testing::ValuesIn(all_variants()),
                         [](const testing::TestParamInfo<const Variant*>& info) {
                           return std::string(info.param->name);
                         });

}  // namespace
}  // namespace fp8_sdpa::tests
