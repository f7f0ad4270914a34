#include "benchmarks/compare/fit_costs.hpp"

#include <algorithm>
#include <array>
#include <cmath>
#include <map>
#include <regex>
#include <sstream>

#include "benchmarks/command/text.hpp"
#include "sm90/sm90.hpp"

namespace fp8_sdpa::bench {
namespace {

constexpr int kMultiprocessors = 132;  // of the H200 that records are of
constexpr std::size_t kTerms = 3;
using Terms = std::array<double, kTerms>;

/// What launch_us, tile_us and v_us are multiplied by.
Terms terms_of(const sm90::TileShape& kernel, const Problem& problem) {
  const sm90::Load load = sm90::load_of(kernel, problem, kMultiprocessors, {});
  return {1.0, load.tiles, load.v * 1e-6};
}
double dot(const Terms& a, const Terms& b) { return a[0] * b[0] + a[1] * b[1] + a[2] * b[2]; }

/// Solves by elimination; a term whose column is 0 stays 0.
Terms solve(std::array<std::array<double, kTerms + 1>, kTerms> a) {
  Terms x{};
  std::array<bool, kTerms> used{};
  for (std::size_t c = 0; c < kTerms; ++c) {
    if (std::abs(a[c][c]) < 1e-12) continue;
    used[c] = true;
    for (std::size_t r = 0; r < kTerms; ++r) {
      if (r == c) continue;
      const double factor = a[r][c] / a[c][c];
      for (std::size_t k = 0; k <= kTerms; ++k) a[r][k] -= factor * a[c][k];
    }
  }
  for (std::size_t c = 0; c < kTerms; ++c) x[c] = used[c] ? a[c][kTerms] / a[c][c] : 0.0;
  return x;
}

/// Least squares of weighted errors of us = dot(x, terms).
Terms least_squares(const std::vector<Terms>& terms, const std::vector<double>& us,
                    const std::vector<double>& weights) {
  // Where all of a kernel's shapes are one tile, a launch and a tile cannot be told apart.
  constexpr double kLaunchUs = 4.0;
  constexpr double kFaint = 1e-6;
  std::array<std::array<double, kTerms + 1>, kTerms> a{};
  a[0][0] = kFaint;
  a[0][kTerms] = kFaint * kLaunchUs;
  for (std::size_t i = 0; i < us.size(); ++i) {
    const double w = weights[i] * weights[i];
    for (std::size_t r = 0; r < kTerms; ++r) {
      for (std::size_t c = 0; c < kTerms; ++c) a[r][c] += w * terms[i][r] * terms[i][c];
      a[r][kTerms] += w * terms[i][r] * us[i];
    }
  }
  return solve(a);
}

/// "d128_b1_h2_kv1_q785_k1570", with "_causal" behind it or not.
bool parse_shape(const std::string& name, Problem& problem) {
  static const std::regex kName(
      "d([0-9]{1,4})_b([0-9]{1,6})_h([0-9]{1,6})_kv([0-9]{1,6})_q([0-9]{1,9})_k([0-9]{1,9})"
      "(_causal)?");
  std::smatch match;
  if (!std::regex_match(name, match, kName)) return false;
  problem.head_dim = std::stoi(match[1]);
  problem.batch = std::stoi(match[2]);
  problem.heads_q = std::stoi(match[3]);
  problem.heads_kv = std::stoi(match[4]);
  problem.seq_q = std::stoll(match[5]);
  problem.seq_kv = std::stoll(match[6]);
  problem.q.stride_head = problem.seq_q * problem.head_dim;  // not broadcast: heads may share tiles
  problem.mask = match[7].matched ? Mask::kCausal : Mask::kNone;
  return true;
}

const sm90::TileShape* find_kernel(const std::string& name) {
  const auto* const found =
      std::find_if(std::begin(sm90::kTileShapes), std::end(sm90::kTileShapes),
                   [&](const sm90::TileShape& shape) { return shape.kernel == name; });
  return found == std::end(sm90::kTileShapes) ? nullptr : found;
}

}  // namespace

Result<std::vector<TimedKernel>> read_record(const std::string& text) {
  static const std::regex kLine("([a-z0-9_]+),([a-z0-9_]+),([0-9]+\\.?[0-9]*)");
  std::vector<TimedKernel> record;
  std::istringstream lines(text);
  std::string line;
  std::getline(lines, line);
  if (line != "shape,kernel,us") return invalid_argument("line 1 is not \"shape,kernel,us\"");
  for (int number = 2; std::getline(lines, line); ++number) {
    std::smatch match;
    TimedKernel timed;
    if (std::regex_match(line, match, kLine)) {
      timed.shape = match[1];
      timed.kernel = find_kernel(match[2]);
      timed.us = std::stod(match[3]);
    }
    if (timed.kernel == nullptr || !(timed.us > 0) || !parse_shape(timed.shape, timed.problem) ||
        timed.problem.head_dim != timed.kernel->head_dim) {
      return invalid_argument(
          format("line %d is not a shape, a kernel for it and microseconds", number));
    }
    record.push_back(std::move(timed));
  }
  return record;
}

sm90::Cost fit_cost(const std::vector<TimedKernel>& record, std::size_t index) {
  constexpr double kRelative = 0.75;
  // By how much longer than the fastest a kernel may take to be one that might be chosen.
  constexpr double kInQuestion = 1.25;
  std::map<std::string, double> fastest;
  for (const TimedKernel& timed : record) {
    double& us = fastest.emplace(timed.shape, timed.us).first->second;
    us = std::min(us, timed.us);
  }
  std::vector<Terms> terms;
  std::vector<double> us;
  std::vector<double> weights;
  for (const TimedKernel& timed : record) {
    if (timed.kernel != &sm90::kTileShapes[index]) continue;
    if (timed.us > kInQuestion * fastest[timed.shape]) continue;
    terms.push_back(terms_of(*timed.kernel, timed.problem));
    us.push_back(timed.us);
    weights.push_back(std::pow(timed.us, -kRelative));
  }
  if (us.size() < kTerms) return sm90::kCosts[index];
  // Relative errors, those of long launches somewhat more; above 2 % by their power of 1.5.
  constexpr int kRounds = 50;
  constexpr double kSmall = 0.02;
  Terms x{};
  for (int round = 0; round < kRounds; ++round) {
    x = least_squares(terms, us, weights);
    for (std::size_t i = 0; i < us.size(); ++i) {
      const double error = std::abs(dot(x, terms[i]) - us[i]) / us[i];
      weights[i] = std::pow(us[i], -kRelative) / std::pow(std::max(error, kSmall), 0.25);
    }
    if (x[2] < 0) {
      for (Terms& of_launch : terms) of_launch[2] = 0.0;
    }
  }
  return {x[0], x[1], x[2]};
}

ChoiceLoss choice_loss(const std::vector<TimedKernel>& record,
                       const std::vector<sm90::Cost>& costs) {
  struct Choice {
    double predicted = 0, chosen = 0, fastest = 0;
    int kernels = 0;
  };
  std::map<std::string, Choice> choices;
  for (const TimedKernel& timed : record) {
    const auto index = static_cast<std::size_t>(timed.kernel - sm90::kTileShapes);
    const double predicted =
        sm90::predicted_us(*timed.kernel, costs[index], timed.problem, kMultiprocessors, {});
    Choice& choice = choices[timed.shape];
    if (choice.kernels == 0 || predicted < choice.predicted) {
      choice.predicted = predicted;
      choice.chosen = timed.us;
    }
    choice.fastest = choice.kernels == 0 ? timed.us : std::min(choice.fastest, timed.us);
    ++choice.kernels;
  }
  ChoiceLoss loss;
  double logs = 0;
  for (const auto& [shape, choice] : choices) {
    if (choice.kernels < 2) continue;
    const double ratio = choice.chosen / choice.fastest;
    logs += std::log(ratio);
    ++loss.shapes;
    if (ratio > 1.03) ++loss.above_3_percent;
    if (ratio > loss.worst) {
      loss.worst = ratio;
      loss.worst_shape = shape;
    }
  }
  if (loss.shapes > 0) loss.mean = std::exp(logs / loss.shapes);
  return loss;
}

std::string costs_text(const std::vector<sm90::Cost>& costs) {
  std::string text =
      "// What launches of the sm90 kernels take on an H200: FP8_SDPA_SM90_COST(kernel, launch_us, "
      "tile_us, v_us).\n// predict.cpp has the model. Written by "
      "fp8_sdpa_fit_costs; those of kernels that are not measured are by hand.\n";
  for (std::size_t i = 0; i < costs.size(); ++i) {
    text += format("FP8_SDPA_SM90_COST(%s, %.3f, %.4f, %.3f)\n",
                   std::string(sm90::kTileShapes[i].kernel).c_str(), costs[i].launch_us,
                   costs[i].tile_us, costs[i].v_us);
  }
  return text;
}

}  // namespace fp8_sdpa::bench
