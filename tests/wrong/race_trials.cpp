#include <cstdint>
#include <string>
#include <vector>

#include "tests/wrong/trials.hpp"

namespace fp8_sdpa::wrong {
namespace {

Trial trial_of(int heads_q, int heads_kv, std::int64_t seq_q, std::int64_t seq_kv,
               Dtype dtype = Dtype::kE4M3) {
  constexpr int kHeadDim = 64;
  constexpr std::uint64_t kSeed = 51;
  reference::Shape shape;
  shape.batch = 1;
  shape.heads_q = heads_q;
  shape.heads_kv = heads_kv;
  shape.seq_q = seq_q;
  shape.seq_kv = seq_kv;
  shape.head_dim = kHeadDim;
  shape.inputs.family = "uniform";
  Trial trial;
  trial.name = "uniform_" + std::to_string(seq_q) + "x" + std::to_string(seq_kv);
  trial.data = reference::make_case(shape, kSeed, dtype);
  trial.options.rerun = false;
  trial.os_threads = 2;  // ThreadSanitizer is to see blocks side by side
  return trial;
}

std::vector<Trial> make_race_trials() {
  std::vector<Trial> trials = {trial_of(1, 1, 32, 32), trial_of(2, 2, 96, 96)};
  // Three KV tiles of the ladder, the last one partial; two query tiles, the last one partial.
  const Trial partial = trial_of(1, 1, 45, 77);
  for (const Schedule schedule : {Schedule::kFifo, Schedule::kLifo, Schedule::kRandom,
                                  Schedule::kThreadPriority, Schedule::kWarpPriority}) {
    for (const Asynchrony asynchrony : {Asynchrony::kLate, Asynchrony::kEager}) {
      for (const std::uint64_t seed : {1, 2}) {
        trials.push_back(partial);
        trials.back().name += "_schedule_" + std::to_string(static_cast<int>(schedule)) +
                              (asynchrony == Asynchrony::kLate ? "_late_" : "_eager_") +
                              std::to_string(seed);
        trials.back().schedule = schedule;
        trials.back().asynchrony = asynchrony;
        trials.back().seed = seed;
      }
    }
  }
  // For sm90: work tiles of more than one KV tile, some of which blocks share.
  trials.push_back(trial_of(3, 3, 300, 300));
  for (const Asynchrony asynchrony : {Asynchrony::kLate, Asynchrony::kEager}) {
    trials.push_back(trial_of(3, 3, 300, 500, Dtype::kInt8));
    trials.back().name += "_int8";
    trials.back().asynchrony = asynchrony;
  }
  // For decode: rows of one warp, and keys of two splits; from the last block to the first, too.
  trials.push_back(trial_of(8, 2, 2, 300));
  trials.push_back(trials.back());
  trials.back().name += "_backwards";
  trials.back().schedule = Schedule::kLifo;
  return trials;
}

}  // namespace

const std::vector<Trial>& race_trials() {
  static const std::vector<Trial> trials = make_race_trials();
  return trials;
}

}  // namespace fp8_sdpa::wrong
