#include "tests/wrong/quantise_trials.hpp"

#include <algorithm>
#include <array>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <initializer_list>
#include <limits>
#include <memory>
#include <string>
#include <vector>

#include "fp8_sdpa/device.hpp"
#include "gpu/executor_options.hpp"
#include "quantise/params.hpp"

namespace fp8_sdpa::wrong {
namespace {

using reference::QuantiserCase;

struct KernelOfQuantiser {
  std::string_view name;
  Dtype from;
  int head_dim;
};
constexpr std::array<KernelOfQuantiser, 3> kKernels = {
    {{"quantise_bf16_d64", Dtype::kBFloat16, 64},
     {"quantise_half_d256", Dtype::kHalf, 256},
     {"quantise_float_d128", Dtype::kFloat, 128}}};

const KernelOfQuantiser* kernel_of(std::string_view name) {
  const auto* const found = std::find_if(kKernels.begin(), kKernels.end(),
                                         [&](const auto& kernel) { return kernel.name == name; });
  return found == kKernels.end() ? nullptr : found;
}

struct QuantiserTrial {
  std::string name;
  QuantiserCase request;
  ExecutorOptions executor = {};
  int sm_count = 3;  ///< fewer blocks than tiles: each takes several
  int sm_version = 90;
  bool non_finite = false;
  bool one_hot = false;  ///< an element other than 0 in each row
};

std::vector<QuantiserTrial> trials_of(const KernelOfQuantiser& kernel) {
  std::vector<QuantiserTrial> trials;
  const auto add = [&](const std::string& name, const QuantiserCase& request) -> QuantiserTrial& {
    QuantiserTrial trial{name, request};
    trial.request.from = kernel.from;
    trial.request.head_dim = kernel.head_dim;
#if defined(FP8_SDPA_TSAN)
    trial.executor.os_threads = 2;
#endif
    trials.push_back(std::move(trial));
    return trials.back();
  };
  const QuantiserCase plain{};
  QuantiserCase all = plain;
  all.rotate = all.smooth = true;
#if defined(FP8_SDPA_TSAN)
  all.batch = 1;
  all.seq = 150;
  const std::initializer_list<Schedule> schedules = {Schedule::kFifo, Schedule::kRandom};
#else
  const std::initializer_list<Schedule> schedules = {Schedule::kFifo, Schedule::kLifo,
                                                     Schedule::kRandom, Schedule::kThreadPriority,
                                                     Schedule::kWarpPriority};
#endif
  for (const Schedule schedule : schedules) {
    add("rotate_and_smooth", all).executor.schedule = schedule;
    // One head: its passes follow each other without a head between.
    QuantiserCase lone{.batch = 1, .heads = 1, .seq = 300};
    add("lone_head", lone).executor.schedule = schedule;
    lone.smooth = true;
    add("lone_head_smooth", lone).executor.schedule = schedule;
    QuantiserCase blocks = all;
    blocks.block_rows = kQueriesOfBlock;
    add("blocks_rotate_and_smooth", blocks).executor.schedule = schedule;
  }
  QuantiserCase slabs{.batch = 1, .heads = 9, .seq = 300};  // of which each team has many
  slabs.rotate = slabs.smooth = true;
  slabs.block_rows = kKeysOfBlock;
  add("many_slabs", slabs).sm_count = 1;
  QuantiserCase groups{.batch = 1, .heads = 1};  // a tile more than are added up at once
  groups.seq = (quantiser::kGroup + 1) * quantiser::tile_rows(kernel.from, kernel.head_dim);
  groups.smooth = true;
  add("sums_of_groups", groups);
  QuantiserCase shares{.batch = 1, .heads = 1, .seq = quantiser::kOwnSumRows + 1};
  shares.smooth = true;
  shares.block_rows = kKeysOfBlock;
  add("sums_of_shares", shares);
#if !defined(FP8_SDPA_TSAN)
  add("plain", plain);
  QuantiserCase other = plain;
  other.to = Dtype::kE5M2;
  other.seq = 77;
  other.sequence_major = true;
  other.counts = false;
  add("e5m2_77", other);
  other.rotate = true;
  other.seed = 11;
  add("rotate_e5m2_77", other);
  other.to = Dtype::kE4M3;
  other.rotate = false;
  other.smooth = true;
  other.keeps_mean = false;
  add("smooth_77", other);
  other.offset = 100.0;  // rows of 0 would be the largest
  add("smooth_offset_77", other);
  QuantiserCase many = plain;
  many.batch = 4;
  many.heads = 16;
  many.seq = 140;
  add("many_heads", many);
  QuantiserCase one = all;
  one.seq = 1;
  add("one_row", one);
  QuantiserCase fixed = plain;
  fixed.static_descales = {0x1p-100F, 1e-3F, 0.01F, 0.1F, 3.0F, 1e30F};
  add("static_descales", fixed);
  add("static_descales_sm80", fixed).sm_version = 80;
  fixed.smooth = true;
  add("static_descales_smooth", fixed);
  add("static_descales_smooth_sm80", fixed).sm_version = 80;
  QuantiserCase broadcast = plain;
  broadcast.broadcast = true;
  add("broadcast", broadcast);
  QuantiserCase rotated = plain;
  rotated.rotate = true;
  add("one_hot_rotate", rotated).one_hot = true;
  rotated.heads = 4;
  rotated.dot_group = 2;
  rotated.smooth = true;  // which dots know nothing of
  add("dots_rotate_and_smooth", rotated);
  for (const int block_rows : {kQueriesOfBlock, kKeysOfBlock}) {
    const std::string name = "blocks_of_" + std::to_string(block_rows);
    QuantiserCase blocks = plain;
    blocks.block_rows = block_rows;
    add(name + "_non_finite", blocks).non_finite = true;
    blocks.seq = 77;
    blocks.smooth = true;
    blocks.offset = 100.0;  // rows of 0 would be the largest
    add(name + "_offset", blocks);
    blocks.offset = plain.offset;
    blocks.seq = block_rows + 270;
    blocks.heads = 4;
    blocks.dot_group = 2;
    blocks.rotate = blocks.smooth = true;
    add(name, blocks);
    blocks.seq = 200;
    add(name + "_200", blocks);
    blocks.heads = 1;
    blocks.dot_group = 1;
    blocks.seq = 1100;
    add(name + "_1100", blocks);
  }
  QuantiserCase int8 = plain;
  int8.to = Dtype::kInt8;
  add("int8", int8);
  add("int8_non_finite", int8).non_finite = true;
  int8.static_descales = fixed.static_descales;
  add("int8_static_descales", int8);
  add("int8_static_descales_sm80", int8).sm_version = 80;
  int8 = all;
  int8.to = Dtype::kInt8;
  add("int8_rotate_and_smooth", int8);
  add("non_finite", plain).non_finite = true;
  add("non_finite_rotate_and_smooth", all).non_finite = true;
#endif
  return trials;
}

std::vector<float> values_of(const QuantiserTrial& trial) {
  const QuantiserCase& request = trial.request;
  std::vector<float> values = quantiser_values(request);
  const std::size_t per_head = values.size() / request.all_heads();
  const auto dim = static_cast<std::size_t>(request.head_dim);
  if (request.broadcast) {
    for (std::size_t i = per_head; i < values.size(); ++i) values[i] = values[i - per_head];
  }
  for (std::size_t i = 0; trial.one_hot && i < values.size(); ++i) {
    if (i % dim != i / dim % dim) values[i] = 0.0F;
  }
  if (trial.non_finite) {
    constexpr float kInfinity = std::numeric_limits<float>::infinity();
    // The least payload that there is, which cutting off bits would make an infinity.
    const std::uint32_t nan = request.from == Dtype::kFloat ? 0x7f800001 : 0x7fc00000;
    std::memcpy(&values[130 * dim + 3], &nan, sizeof nan);
    values[per_head + 11] = kInfinity;
    values[2 * per_head - 1] = -kInfinity;
    // Two in a row that rotation subtracts from each other; a head without a finite value but 0.
    values[2 * per_head] = kInfinity;
    values[2 * per_head + 1] = -kInfinity;
    std::fill_n(values.begin() + static_cast<std::ptrdiff_t>(3 * per_head), per_head, 0.0F);
    // A head whose descale is too small.
    for (std::size_t i = 4 * per_head; i < 5 * per_head && request.from != Dtype::kHalf; ++i) {
      values[i] *= 0x1p-120F;
    }
  }
  return values;
}

}  // namespace

bool is_quantiser(std::string_view kernel) { return kernel_of(kernel) != nullptr; }

void try_quantiser(std::string_view kernel, const reference::Quantiser& quantiser, Extent extent,
                   Outcome& outcome) {
  for (const QuantiserTrial& trial : trials_of(*kernel_of(kernel))) {
    if (extent == Extent::kFirstFailure && outcome.killed()) return;
    Device device = host_executor();
    device.sm_count = trial.sm_count;
    device.sm_version = trial.sm_version;
    device.executor = std::make_shared<const ExecutorOptions>(trial.executor);
    const std::vector<float> values = values_of(trial);
    std::vector<reference::GateResult> gates;
    const auto quantised =
        reference::run_quantiser(trial.request, values, device, gates, quantiser);
    if (!quantised.ok()) {
      outcome.findings.push_back(
          {trial.name, "executor", 1.0, 0.0, false, quantised.status().message()});
      continue;
    }
    for (const auto& gate : judge_quantised(trial.request, values, *quantised)) {
      gates.push_back(gate);
    }
    for (const auto& gate : gates) {
      outcome.findings.push_back(
          {trial.name, gate.name, gate.value, gate.threshold, gate.pass, gate.detail});
    }
  }
}

}  // namespace fp8_sdpa::wrong
