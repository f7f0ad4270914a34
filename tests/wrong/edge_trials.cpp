#include <algorithm>
#include <cstddef>
#include <vector>

#include "gpu/executor_options.hpp"
#include "tests/wrong/make_trial.hpp"

namespace fp8_sdpa::wrong {
namespace {

using reference::CaseData;
using reference::CheckOptions;
using reference::Shape;

/// What decode is for: each KV head has more query heads than one, and keys in several splits. The
/// oracle's LSE beside them, from the first block to the last and back.
void add_few_rows(std::vector<Trial>& trials) {
  CheckOptions budgets;
  budgets.padded = true;
  budgets.budgets_only = true;
  for (const Schedule schedule : {Schedule::kFifo, Schedule::kLifo}) {
    const char* const way = schedule == Schedule::kLifo ? "_backwards" : "";
    for (const auto& [name, sizes] : {std::pair{"few_rows_5x898", Sizes{2, 8, 2, 5, 898}},
                                      {"few_rows_3x900", Sizes{2, 6, 2, 3, 900}}}) {
      trials.push_back(edited(std::string(name) + way,
                              trial_of("", shape_of("normal", sizes, Mask::kCausal), budgets),
                              vary_descales));
      trials.back().schedule = schedule;
    }
  }
}

}  // namespace

void add_edge_trials(std::vector<Trial>& trials) {
  add_few_rows(trials);
  CheckOptions budgets;
  budgets.padded = true;
  budgets.budgets_only = true;
  // Rows of four heads in three tiles, which blocks share; of three heads, in strips of one, and
  // in strips that have room for a fourth; of twelve, in three strips of four.
  for (const auto& [name, sizes] : {std::pair{"grouped_4x160x470", Sizes{1, 4, 1, 160, 470}},
                                    {"grouped_3x150x470", {1, 3, 1, 150, 470}},
                                    {"grouped_3x20x470", {2, 3, 1, 20, 470}},
                                    {"grouped_12x20x470", {1, 12, 1, 20, 470}}}) {
    trials.push_back(edited(name, trial_of("", shape_of("normal", sizes, Mask::kCausal), budgets),
                            vary_descales));
  }
  CheckOptions unused = budgets;
  unused.edit = [](Problem& p) { p.k.stride_seq = p.v.stride_seq = 7; };  // of one key
  trials.push_back(trial_of("unused_strides_20x1", shape_of("uniform", {1, 2, 2, 20, 1}), unused));
  // Heads of K and batches of V: each tensor is walked in steps of its own.
  CheckOptions broadcast = budgets;
  broadcast.edit = [](Problem& p) { p.k.stride_head = p.v.stride_batch = 0; };
  trials.push_back(edited("broadcast_2x2x20x150",
                          trial_of("", shape_of("normal", {2, 2, 2, 20, 150}), broadcast),
                          [](CaseData& data) {
                            for (auto* tensor : {&data.k, &data.v}) {
                              const std::size_t head = tensor->codes.size() / 4;
                              for (std::size_t i = head; i < 4 * head; ++i) {
                                tensor->codes[i] = tensor->codes[i - head];
                              }
                            }
                          }));
  const auto constant = [](reference::QuantisedTensor& tensor, std::uint8_t code, float descale) {
    std::fill(tensor.codes.begin(), tensor.codes.end(), code);
    std::fill(tensor.descales.begin(), tensor.descales.end(), descale);
  };
  // The smallest scores that there are.
  for (const int head_dim : {64, 256}) {
    Shape shape = shape_of("normal", {1, 1, 1, 20, 150});
    shape.head_dim = head_dim;
    trials.push_back(edited("smallest_scores_20x150_d" + std::to_string(head_dim),
                            trial_of("", shape, budgets), [&](CaseData& data) {
                              constant(data.q, 0x7E, 0x1p-13F);
                              constant(data.k, 0xFE, 1.0F);
                            }));
  }
  // Sums of weights by far smaller than 1, if anything else were in them.
  trials.push_back(edited("zero_scale_small_v_37x190",
                          trial_of("", shape_of("normal", {2, 2, 2, 37, 190}), budgets),
                          [&](CaseData& data) {
                            data.q.descales[1] = 0.0F;
                            constant(data.v, 0x01, 1.0F);
                          }));
  trials.push_back(edited(
      "nan_v_70x20", trial_of("", shape_of("uniform", {1, 2, 1, 70, 20}, Mask::kCausal), budgets),
      [&](CaseData& data) { constant(data.v, kNanCode, 1.0F); }));
  trials.push_back(
      edited("nan_v_200x150",
             trial_of("", shape_of("uniform", {1, 2, 1, 200, 150}, Mask::kCausal), budgets),
             [&](CaseData& data) { constant(data.v, kNanCode, 1.0F); }));
}

}  // namespace fp8_sdpa::wrong
