// Random right problems through every gate: none may raise an alarm.
//   random_problems [--count N] [--seed S] [--only INDEX] [--backend host|device] [--out FILE]
// Exit code 0 if every problem passed, 1 if not, 2 for bad usage, 77 where the backend is missing.
#include <algorithm>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <fstream>
#include <map>
#include <memory>
#include <string>

#include "reference/judge/harness.hpp"
#include "tests/gates/gate_cases.hpp"
#include "tests/gates/random/problem.hpp"

namespace fp8_sdpa::tests {
namespace {

constexpr int kFailed = 1;
constexpr int kBadUsage = 2;
constexpr int kSkipped = 77;
constexpr std::int64_t kHostScores = 200'000;
constexpr std::int64_t kDeviceScores = 20'000'000;

struct Request {
  std::uint64_t count = 200;
  std::uint64_t seed = 1;
  std::int64_t only = -1;
  Backend backend = Backend::kHost;
  std::string out;
};

/// How near right kernels come to a gate's threshold.
struct GateUse {
  std::uint64_t judged = 0;
  double largest = 0.0;  ///< value / threshold
  std::string where;
};

struct Tally {
  std::uint64_t run = 0;
  std::uint64_t alarms = 0;
  std::uint64_t declined = 0;
  std::uint64_t caches = 0;  ///< ragged batches, in pages among them
  std::map<std::string, GateUse> gates;
};

bool parse(int argc, char** argv, Request& request) {
  for (int i = 1; i + 1 < argc; i += 2) {
    const std::string key = argv[i];
    const std::string value = argv[i + 1];
    if (key == "--count") {
      request.count = std::strtoull(value.c_str(), nullptr, 10);
    } else if (key == "--seed") {
      request.seed = std::strtoull(value.c_str(), nullptr, 10);
    } else if (key == "--only") {
      request.only = std::strtoll(value.c_str(), nullptr, 10);
    } else if (key == "--backend" && (value == "host" || value == "device")) {
      request.backend = value == "host" ? Backend::kHost : Backend::kDevice;
    } else if (key == "--out") {
      request.out = value;
    } else {
      return false;
    }
  }
  return argc % 2 == 1 && request.count > 0;
}

/// Prints the one line that runs this problem again.
void alarm(const Request& request, std::uint64_t index, const RandomProblem& problem,
           const std::string& why) {
  std::printf("FAILED random_problems --seed %llu --only %llu --backend %s: %s: %s\n",
              static_cast<unsigned long long>(request.seed), static_cast<unsigned long long>(index),
              name_of(request.backend), problem.describe().c_str(), why.c_str());
}

/// Why an output fails, in one line; empty: it passes, and its gates are counted.
std::string judge(const RandomProblem& problem, const reference::CaseResult& result, Tally& tally) {
  if (result.gates.empty()) return "no gate judged it";
  if (!std::ranges::all_of(result.gates, &reference::GateResult::pass)) return result.failure();
  for (const reference::GateResult& gate : result.gates) {
    GateUse& use = tally.gates[gate.name];
    ++use.judged;
    const double ratio = gate.threshold > 0.0 ? gate.value / gate.threshold : gate.value;
    if (ratio > use.largest) use = {use.judged, ratio, problem.describe()};
  }
  return {};
}

/// Each sequence of a ragged batch beside the oracle of it alone.
std::string check_cache(const RandomProblem& problem, const reference::CaseData& data,
                        const Device& device, Tally& tally) {
  const auto cache = Cache::make(data, device, *problem.cache);
  const auto output = cache->run(*problem.variant);
  if (!output.ok()) return output.status().message();
  for (int b = 0; b < data.shape.batch; ++b) {
    const auto nth = static_cast<std::size_t>(b);
    const std::int32_t keys = problem.cache->lengths[nth];
    const bool packed = !problem.cache->queries.empty();
    const std::int64_t queries = packed ? problem.cache->queries[nth] : data.shape.seq_q;
    const reference::RunOutput part = cache->of_sequence(*output, b);
    if (keys == 0) {
      const auto zero = [](std::uint16_t bits) { return bits == 0; };
      const auto none = [](float lse) { return lse == -INFINITY; };
      if (std::ranges::all_of(part.o, zero) && std::ranges::all_of(part.lse, none)) continue;
      return "rows of sequence " + std::to_string(b) + " see no key and are not 0";
    }
    if (queries == 0) continue;
    const auto alone = reference::from_codes(sequence_of(data, b, queries, keys));
    const reference::CheckOptions options{
        .output = problem.options.output, .budgets_only = true, .lse = problem.options.lse};
    const std::string failure = judge(
        problem, reference::judge_run(*problem.variant, *alone, part, config().tolerances, options),
        tally);
    if (!failure.empty()) return "sequence " + std::to_string(b) + ": " + failure;
  }
  if (cache->written_elsewhere(*output) != 0) return "rows that no sequence has are written";
  if (cache->fault() != 0) return "a fault where there is none";
  // What the cache expects of its memory, outside of a test.
  const bool failed = testing::UnitTest::GetInstance()->ad_hoc_test_result().Failed();
  return failed ? "see above" : "";
}

std::string check(const RandomProblem& problem, const reference::CaseData& data,
                  const Device& device, Tally& tally) {
  if (problem.cache) return check_cache(problem, data, device, tally);
  const auto result =
      reference::check(*problem.variant, data, device, config().tolerances, problem.options);
  return result.ok() ? judge(problem, *result, tally) : result.status().message();
}

void run_one(const Request& request, std::uint64_t index, Device device, Tally& tally) {
  const std::int64_t most = request.backend == Backend::kHost ? kHostScores : kDeviceScores;
  const RandomProblem problem = random_problem(request.seed, index, device, most);
  device.executor = std::make_shared<const ExecutorOptions>(problem.executor);
  ++tally.run;
  tally.declined += problem.declined.empty() ? 0 : 1;
  tally.caches += problem.cache ? 1 : 0;
  const std::string failure = check(problem, *data_of(problem), device, tally);
  if (failure.empty()) return;
  ++tally.alarms;
  alarm(request, index, problem, failure);
}

std::string table_of(const Request& request, const Tally& tally) {
  std::string text =
      "# Random problems\n\n" + std::to_string(tally.run) + " right problems, " +
      std::to_string(tally.caches) + " of them ragged batches, " + std::to_string(tally.alarms) +
      " false alarms, on the " + name_of(request.backend) + " backend; of " +
      std::to_string(tally.declined) +
      " the variant declined the mask, grouping, format or head size that was drawn, by a "
      "known reason, and was given\nanother.\n\nMade by `random_problems --count " +
      std::to_string(request.count) + " --seed " + std::to_string(request.seed) + " --backend " +
      name_of(request.backend) +
      "`.\n\n| gate | judged | largest value / threshold | where |\n|---|---|---|---|\n";
  for (const auto& [name, use] : tally.gates) {
    constexpr int kSize = 32;
    char ratio[kSize];
    std::snprintf(ratio, sizeof ratio, "%.3f", use.largest);
    text += "| " + name + " | " + std::to_string(use.judged) + " | " + ratio + " | " + use.where +
            " |\n";
  }
  return text;
}

int run(int argc, char** argv) {
  Request request;
  if (!parse(argc, argv, request)) {
    std::fprintf(stderr,
                 "usage: random_problems [--count N] [--seed S] [--only INDEX] [--backend "
                 "host|device] [--out FILE]\n");
    return kBadUsage;
  }
  const Result<Device> device = device_of(request.backend);
  if (!device.ok()) {
    std::printf("random_problems: Skipped\n%s\n", device.status().message().c_str());
    return kSkipped;
  }
  Tally tally;
  if (request.only >= 0) {
    run_one(request, static_cast<std::uint64_t>(request.only), *device, tally);
  } else {
    for (std::uint64_t i = 0; i < request.count; ++i) run_one(request, i, *device, tally);
  }
  const std::string table = table_of(request, tally);
  std::printf("%s", table.c_str());
  if (!request.out.empty()) std::ofstream(request.out) << table;
  return tally.alarms == 0 ? 0 : kFailed;
}

}  // namespace
}  // namespace fp8_sdpa::tests

int main(int argc, char** argv) { return fp8_sdpa::tests::run(argc, argv); }
