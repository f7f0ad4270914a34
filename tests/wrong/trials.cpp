#include "tests/wrong/trials.hpp"

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <functional>
#include <limits>
#include <memory>
#include <string>
#include <tuple>
#include <utility>

#include "gpu/executor_options.hpp"
#include "reference/formats/half.hpp"
#include "reference/inputs/inputs.hpp"
#include "reference/judge/budget.hpp"
#include "reference/judge/gates.hpp"
#include "tests/host/reference/tolerances.hpp"
#include "tests/wrong/make_trial.hpp"

namespace fp8_sdpa::wrong {
namespace {

using reference::CaseData;
using reference::CheckOptions;
using reference::GateResult;
using reference::kTolerances;
using reference::Shape;

/// Masks, shared KV heads, head sizes and a transposed V, over several tiles, and with more query
/// tiles than the host executor has blocks: what the sm90 family alone serves.
void add_hopper_trials(std::vector<Trial>& trials) {
  CheckOptions padded;
  padded.padded = true;
  CheckOptions transposed = padded;
  transposed.transposed_v = true;
  const Sizes grouped{2, 4, 2, 70, 300};
  trials.push_back(
      trial_of("causal_gqa_70x300", shape_of("normal", grouped, Mask::kCausal), padded));
  trials.push_back(
      trial_of("causal_150x150", shape_of("normal", {1, 2, 1, 150, 150}, Mask::kCausal), padded));
  trials.push_back(
      trial_of("causal_70x20", shape_of("uniform", {1, 2, 1, 70, 20}, Mask::kCausal), padded));
  trials.push_back(
      trial_of("transposed_v_70x300", shape_of("normal", {1, 2, 2, 70, 300}), transposed));
  // Edited inputs count as a user's, for which fixed tolerances are stated; a causal row with few
  // keys of weight is a matter of budgets.
  CheckOptions budgets = padded;
  budgets.budgets_only = true;
  trials.push_back(edited("scales_gqa_70x300",
                          trial_of("", shape_of("normal", grouped, Mask::kCausal), budgets),
                          vary_descales));
  // NaN in V where a tile of 64, 96 or 128 keys begins and the rows of a warpgroup that see it do.
  constexpr std::ptrdiff_t kBorder = 384;
  trials.push_back(
      edited("nan_in_v_at_a_border_448",
             trial_of("", shape_of("normal", {1, 1, 1, 448, 448}, Mask::kCausal), budgets),
             [](CaseData& data) { data.v.codes[kBorder * kHeadDim + 13] = kNanCode; }));
  for (const int head_dim : {128, 256}) {
    Shape shape = shape_of("normal", {1, 2, 1, 70, 400}, Mask::kCausal);
    shape.head_dim = head_dim;
    trials.push_back(trial_of("causal_70x400_d" + std::to_string(head_dim), shape, padded));
  }
  // Three work tiles a block, as many as Q has stages and one more; with one stage, two.
  trials.push_back(
      trial_of("work_tiles_10x20x15", shape_of("uniform", {1, 10, 10, 20, 15}), padded));
  trials.push_back(
      trial_of("work_tiles_10x20x150", shape_of("uniform", {1, 10, 10, 20, 150}), padded));
  // Several tiles of rows that blocks share, and the same from the last block to the first; heads
  // in passes of different lengths.
  trials.push_back(trial_of("shared_3x40x470", shape_of("normal", {1, 3, 3, 40, 470}), padded));
  trials.push_back(
      trial_of("shared_backwards_3x40x470", shape_of("normal", {1, 3, 3, 40, 470}), padded));
  trials.back().schedule = Schedule::kLifo;
  // A tile of rows that blocks share, some of whose rows see no key of the last share.
  trials.push_back(trial_of("shared_causal_200x260",
                            shape_of("normal", {1, 1, 1, 200, 260}, Mask::kCausal), padded));
  trials.push_back(
      trial_of("passes_5x300x130", shape_of("normal", {1, 5, 5, 300, 130}, Mask::kCausal), padded));
  Shape wide = shape_of("normal", {1, 6, 6, 20, 150});
  wide.head_dim = 256;
  trials.push_back(trial_of("work_tiles_6x20x150_d256", wide, padded));
  for (const int head_dim : {128, 256}) {
    const std::string suffix = "_d" + std::to_string(head_dim);
    Shape shape = shape_of("normal", {1, 3, 3, 40, 470});
    shape.head_dim = head_dim;
    trials.push_back(trial_of("shared_backwards_3x40x470" + suffix, shape, padded));
    trials.back().schedule = Schedule::kLifo;
    shape = shape_of("normal", {2, 2, 2, 150, 300});
    shape.head_dim = head_dim;
    trials.push_back(trial_of("eager_2x2x150x300" + suffix, shape, padded));
    trials.back().asynchrony = Asynchrony::kEager;
  }
  CheckOptions of_blocks = budgets;
  of_blocks.edit = [](Problem& problem) { problem.descales.granularity = Granularity::kBlock; };
  for (const int head_dim : {64, 128, 256}) {
    for (const Sizes& sizes : {Sizes{1, 2, 1, 200, 520}, Sizes{1, 3, 3, 40, 1100}}) {
      Shape shape = shape_of("normal", sizes, sizes.seq_q == 40 ? Mask::kNone : Mask::kCausal);
      shape.head_dim = head_dim;
      trials.push_back(edited("scales_of_blocks_" + std::to_string(sizes.seq_q) + "x" +
                                  std::to_string(sizes.seq_kv) + "_d" + std::to_string(head_dim),
                              trial_of("", shape, of_blocks), vary_block_descales));
    }
  }
  // A head that one block alone transposes, behind one that others have: at this schedule a loader
  // comes to a tile between its two units.
  Shape behind = shape_of("normal", {1, 4, 4, 280, 470});
  behind.head_dim = 256;
  trials.push_back(trial_of("heads_behind_4x280x470_d256", behind, padded));
  trials.back().schedule = Schedule::kWarpPriority;
  // Rows of V that follow each other without a gap, an even and an odd number of them.
  trials.push_back(trial_of("contiguous_5x70x300", shape_of("normal", {1, 5, 5, 70, 300}), {}));
  trials.push_back(trial_of("contiguous_2x45x301", shape_of("normal", {1, 2, 2, 45, 301}), {}));
  // Copies that land at once, in rings that go round: what is not waited for is overwritten.
  trials.push_back(trial_of("eager_6x20x300", shape_of("uniform", {1, 6, 6, 20, 300}), padded));
  trials.back().asynchrony = Asynchrony::kEager;
  // A KV tile less than the ring has stages, four work tiles a block.
  trials.push_back(
      trial_of("work_tiles_16x20x280", shape_of("uniform", {1, 16, 16, 20, 280}), padded));
  trials.back().asynchrony = Asynchrony::kEager;
  trials.back().schedule = Schedule::kWarpPriority;
}

/// Q and K of signed bytes: masks, shared KV heads, work tiles that blocks share, rings that go
/// round, descales of any sign, and one so large that a step of a score is.
void add_int8_trials(std::vector<Trial>& trials) {
  CheckOptions padded;
  padded.padded = true;
  padded.budgets_only = true;
  const auto add = [&](const std::string& name, const Shape& shape, Asynchrony asynchrony) {
    trials.push_back(trial_of("int8_" + name, shape, padded, Dtype::kInt8));
    trials.back().asynchrony = asynchrony;
  };
  for (const int head_dim : {64, 128, 256}) {
    const std::string suffix = "_d" + std::to_string(head_dim);
    for (const auto& [name, sizes, mask, asynchrony] :
         {std::tuple{"gqa_70x400", Sizes{1, 2, 1, 70, 400}, Mask::kCausal, Asynchrony::kLate},
          {"shared_3x40x470", Sizes{1, 3, 3, 40, 470}, Mask::kNone, Asynchrony::kEager},
          {"6x20x150", Sizes{1, 6, 6, 20, 150}, Mask::kNone, Asynchrony::kLate}}) {
      Shape shape = shape_of("normal", sizes, mask);
      shape.head_dim = head_dim;
      add(name + suffix, shape, asynchrony);
    }
    Shape shape = shape_of("zero_k", {1, 2, 2, 40, 200});
    shape.head_dim = head_dim;
    add("zero_k_40x200" + suffix, shape, Asynchrony::kLate);
    shape = shape_of("normal", {2, 2, 2, 37, 190});
    shape.head_dim = head_dim;
    trials.push_back(edited("int8_scales_37x190" + suffix,
                            trial_of("", shape, padded, Dtype::kInt8), vary_descales));
    shape = shape_of("normal", {1, 3, 3, 40, 470});
    shape.head_dim = head_dim;
    trials.push_back(edited("int8_scales_shared_40x470" + suffix,
                            trial_of("", shape, padded, Dtype::kInt8), vary_descales));
  }
}

/// E4M3 out of whole rows, of work tiles that blocks share, and of rows that few keys are left of.
void add_fp8_output_trials(std::vector<Trial>& trials) {
  CheckOptions fp8;
  fp8.output = Dtype::kE4M3;
  fp8.padded = true;
  fp8.budgets_only = true;
  for (const int head_dim : {64, 128, 256}) {
    for (const Sizes& sizes : {Sizes{2, 2, 2, 45, 190}, Sizes{1, 3, 3, 40, 470}}) {
      Shape shape = shape_of("normal", sizes);
      shape.head_dim = head_dim;
      trials.push_back(trial_of("fp8_output_" + std::to_string(sizes.seq_q) + "x" +
                                    std::to_string(sizes.seq_kv) + "_d" + std::to_string(head_dim),
                                shape, fp8));
    }
  }
}

std::vector<Trial> make_kernel_trials() {
  CheckOptions bf16;
  bf16.output = Dtype::kBFloat16;
  bf16.padded = true;
  CheckOptions padded;
  padded.padded = true;
  CheckOptions sequence_major = bf16;
  sequence_major.sequence_major = true;
  std::vector<Trial> trials;
  for (const auto& family : reference::input_families()) {
    trials.push_back(trial_of(std::string(family.name) + "_40x200",
                              shape_of(std::string(family.name), {1, 2, 2, 40, 200}), padded));
  }
  trials.push_back(
      trial_of("long_tail_32x4097", shape_of("long_tail", {1, 2, 2, 32, 4097}), padded));
  trials.push_back(trial_of("uniform_45x77", shape_of("uniform", {2, 2, 2, 45, 77}), padded));
  trials.push_back(trial_of("uniform_70x20", shape_of("uniform", {1, 2, 2, 70, 20}), padded));
  trials.push_back(trial_of("normal_20x129", shape_of("normal", {1, 2, 2, 20, 129}), padded));
  trials.push_back(trial_of("uniform_3x17", shape_of("uniform", {1, 3, 3, 3, 17}), padded));
  trials.push_back(
      trial_of("normal_33x1025", shape_of("normal", {1, 1, 1, 33, 1025}), sequence_major));
  trials.push_back(
      trial_of("normal_e5m2_40x77", shape_of("normal", {1, 2, 2, 40, 77}), bf16, Dtype::kE5M2));
  trials.push_back(trial_of("normal_64x512", shape_of("normal", {1, 2, 2, 64, 512})));
  trials.back().for_peers = true;
  trials.push_back(trial_of("normal_113x203", shape_of("normal", {1, 2, 2, 113, 203})));
  trials.back().for_peers = true;
  const Trial plain = trial_of("", shape_of("normal", {2, 2, 2, 37, 90}), sequence_major);
  trials.push_back(edited("scales_37x90", plain, vary_descales));
  trials.push_back(edited("zero_scale_37x90", plain, [](CaseData& data) {
    data.q.descales[1] = 0.0F;
    data.k.descales[2] = 0.0F;
  }));
  trials.push_back(edited("zero_scale_37x190",
                          trial_of("", shape_of("normal", {2, 2, 2, 37, 190}), sequence_major),
                          [](CaseData& data) { data.q.descales[1] = 0.0F; }));
  const auto element = static_cast<std::ptrdiff_t>((90 + 70) * kHeadDim + 13);  // of head 1
  trials.push_back(
      edited("nan_in_k_37x90", plain, [&](CaseData& data) { data.k.codes[element] = kNanCode; }));
  trials.push_back(
      edited("nan_in_v_37x90", plain, [&](CaseData& data) { data.v.codes[element] = kNanCode; }));
  add_hopper_trials(trials);
  add_edge_trials(trials);
  add_int8_trials(trials);
  add_fp8_output_trials(trials);
  return trials;
}

std::vector<Trial> make_model_trials() {
  std::vector<Trial> trials;
  const Sizes grouped{1, 4, 2, 34, 130};
  for (const auto& family : reference::input_families()) {
    for (const Mask mask : {Mask::kNone, Mask::kCausal}) {
      const std::string name = std::string(family.name) + "_" + name_of(mask) + "_gqa_34x130";
      trials.push_back(trial_of(name, shape_of(std::string(family.name), grouped, mask)));
    }
  }
  trials.push_back(
      trial_of("uniform_causal_70x20", shape_of("uniform", {1, 2, 1, 70, 20}, Mask::kCausal)));
  trials.push_back(trial_of("uniform_2048", shape_of("uniform", {1, 1, 1, 16, 2048})));
  trials.push_back(trial_of("needle_2048", shape_of("needle", {1, 1, 1, 16, 2048})));
  trials.push_back(trial_of("v_bias_16384", shape_of("v_bias", {1, 1, 1, 2, 16384})));
  trials.push_back(trial_of("normal_64x512", shape_of("normal", {1, 2, 2, 64, 512})));
  trials.back().for_peers = true;
  trials.push_back(trial_of("normal_113x203", shape_of("normal", {1, 2, 2, 113, 203})));
  trials.back().for_peers = true;
  const Trial plain = trial_of("", shape_of("normal", {2, 4, 2, 37, 90}));
  trials.push_back(edited("scales_gqa_37x90", plain, vary_descales));
  trials.push_back(edited("nan_in_k_gqa_37x90", plain, [](CaseData& data) {
    data.k.codes[(90 + 70) * kHeadDim + 13] = kNanCode;
  }));
  return trials;
}

void add(Outcome& outcome, const Trial& trial, const std::vector<GateResult>& gates) {
  for (const GateResult& gate : gates) {
    outcome.findings.push_back(
        {trial.name, gate.name, gate.value, gate.threshold, gate.pass, gate.detail});
  }
}

}  // namespace

const std::vector<Trial>& kernel_trials() {
  static const std::vector<Trial> trials = make_kernel_trials();
  return trials;
}

const std::vector<Trial>& model_trials() {
  static const std::vector<Trial> trials = make_model_trials();
  return trials;
}

void make_budgets(const std::vector<Trial>& trials) {
  for (const Trial& trial : trials) {
    const bool int8 = trial.data->dtype == Dtype::kInt8;
    for (const Dtype weights : {Dtype::kHalf, int8 ? Dtype::kBFloat16 : Dtype::kE4M3}) {
      budget_of(*trial.data, reference::model_of(weights, trial.options.output));
    }
  }
}

double margin(const Finding& finding) {
  const double ratio = finding.threshold > 0.0 ? finding.value / finding.threshold : finding.value;
  return finding.gate == "executor" || !std::isfinite(ratio)
             ? std::numeric_limits<double>::infinity()
             : ratio;
}

void Outcome::ask(const std::vector<float>& o, const CaseData& data) {
  const std::vector<PeerVerdict> now = ask_peers(o, data);
  if (peers.empty()) peers = now;
  for (std::size_t i = 0; i < peers.size() && i < now.size(); ++i) {
    peers[i].pass = peers[i].pass && now[i].pass;
  }
}

bool Outcome::killed() const { return strongest() != nullptr; }

const Finding* Outcome::strongest() const {
  const Finding* best = nullptr;
  for (const Finding& finding : findings) {
    if (!finding.pass && (best == nullptr || margin(finding) > margin(*best))) best = &finding;
  }
  return best;
}

namespace {

void try_variant(const Variant& variant, const Trial& trial, Outcome& outcome) {
  Device device = host_executor();
  const CaseData& data = *trial.data;
  device.executor =
      std::make_shared<const ExecutorOptions>(ExecutorOptions{.schedule = trial.schedule,
                                                              .seed = trial.seed,
                                                              .asynchrony = trial.asynchrony,
                                                              .os_threads = trial.os_threads});
  if (!reference::serves(variant, data.shape, data.dtype, device, trial.options).ok()) return;
  const auto result = reference::check(variant, data, device, kTolerances, trial.options);
  if (!result.ok()) {
    outcome.findings.push_back(
        {trial.name, "executor", 1.0, 0.0, false, result.status().message()});
    return;
  }
  add(outcome, trial, result->gates);
  if (!trial.for_peers) return;
  std::vector<float> o;
  for (const std::uint16_t bits : result->output) {
    o.push_back(reference::decode_16(bits, trial.options.output));
  }
  outcome.ask(o, data);
}

}  // namespace

Outcome try_variants(const std::vector<Variant>& variants, const std::vector<Trial>& trials,
                     Extent extent) {
  Outcome outcome;
  for (const Trial& trial : trials) {
    for (const Variant& variant : variants) {
      if (extent == Extent::kFirstFailure && outcome.killed()) return outcome;
      try_variant(variant, trial, outcome);
    }
  }
  return outcome;
}

Outcome try_function(const std::function<Attended(const CaseData&)>& function, bool fp8_p,
                     const std::vector<Trial>& trials) {
  Outcome outcome;
  for (const Trial& trial : trials) {
    const CaseData& data = *trial.data;
    const Attended got = function(data);
    const auto& want = data.reference_kernel;
    const reference::JudgeContext context{data.dtype, fp8_p, data.max_abs_v, data.score_bound,
                                          data.drawn};
    add(outcome, trial,
        judge(compare(got.o, data.reference_quantised.o, data.shape, kTolerances.bad_threshold),
              compare(got.o, want.o, data.shape, kTolerances.bad_threshold), data.shape,
              kTolerances, context));
    const auto budget = budget_of(data, reference::model_of(fp8_p, Dtype::kHalf));
    add(outcome, trial, judge_budget(got.o, want.o, data.shape, *budget));
    add(outcome, trial,
        {judge_lse(compare_lse(got.lse, want.lse, data.shape), data.shape, context)});
    if (fp8_p) add(outcome, trial, judge_lse_budget(got.lse, want.lse, data.shape, *budget));
    if (trial.for_peers) outcome.ask(got.o, data);
  }
  return outcome;
}

}  // namespace fp8_sdpa::wrong
