#include "benchmarks/serving/contest.hpp"

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <functional>
#include <nlohmann/json.hpp>
#include <utility>

#include "benchmarks/measure/timer.hpp"
#include "benchmarks/peers/peer.hpp"
#include "benchmarks/serving/cache.hpp"
#include "fp8_sdpa/plan.hpp"
#include "reference/formats/text.hpp"
#include "reference/oracle/memory.hpp"

namespace fp8_sdpa::bench {
namespace {

constexpr int kSamples = 11;
constexpr double kBytesPerGigabyte = 1e9;
constexpr double kMicrosecondsPerSecond = 1e6;

/// One kernel on a cache: a plan and its workspace.
struct Contestant {
  Plan plan;
  reference::Workspace workspace;

  Status launch(CUstream_st* stream) const { return forward(plan, workspace.data(), stream); }
};

Result<Contestant> contestant(const Cache& cache, const Device& device, const Variant* variant) {
  auto made = plan(cache.problem(), device, variant);
  if (!made.ok()) return made.status();
  auto workspace = reference::Workspace::make(*made);
  if (!workspace.ok()) return workspace.status();
  return Contestant{std::move(*made), std::move(*workspace)};
}

/// Why the output fails, in one line; empty where it does not.
Result<std::string> judge(const Cache& cache, const Contestant& of, const Device& device,
                          double most) {
  if (Status s = cache.poison(); !s.ok()) return s;
  if (Status s = of.launch(nullptr); !s.ok()) return s;
  if (Status s = reference::synchronise(device); !s.ok()) return s;
  const auto errors = cache.errors();
  if (!errors.ok()) return errors.status();
  if (errors->o <= most && errors->lse <= most) return std::string();
  return std::string(of.plan.variant_name()) + " on " + cache.serving_case().name +
         " is not timed: relative error of O " + std::to_string(errors->o) + ", error of the LSE " +
         std::to_string(errors->lse) + ", at most " + std::to_string(most);
}

/// The peers that serve it, and pass; `note`: why one does not.
Result<std::vector<Contestant>> rivals(const Cache& cache, const Device& device,
                                       std::string& note) {
  std::vector<Contestant> passed;
  if (!flash3_source().missing().empty()) return passed;
  for (const Peer& peer : flash3_source().peers) {
    if (const Status s = peer.variant.supports(cache.problem(), device); !s.ok()) {
      note = cache.serving_case().name + ": " + s.message();
      continue;
    }
    auto made = contestant(cache, device, &peer.variant);
    if (made.status().code() == StatusCode::kUnsupported) continue;  // it is never split anyway
    if (!made.ok()) return made.status();
    const auto failure = judge(cache, *made, device, kFp8WeightsError);
    if (!failure.ok()) return failure.status();
    if (failure->empty()) {
      passed.push_back(std::move(*made));
    } else {
      note = *failure;
    }
  }
  return passed;
}

double round_to(double value, double digits) { return std::round(value * digits) / digits; }

/// floors.json's, as the other areas' (benchmarks/compare/house_floors.py).
nlohmann::json floor(const std::string& name, double value, const char* unit, double least,
                     double aim, bool higher) {
  constexpr double kDigits = 1000;
  return {{"name", name}, {"value", round_to(value, kDigits)}, {"unit", unit}, {"floor", least},
          {"aim", aim},   {"higher_is_better", higher}};
}

}  // namespace

Result<ServingRow> serve(const ServingCase& serving_case, const std::vector<std::uint8_t>& codes,
                         std::uint64_t seed, const Device& device) {
  const auto cache = Cache::make(serving_case, codes, seed, device);
  if (!cache.ok()) return cache.status();
  const auto ours = contestant(*cache, device, nullptr);
  if (!ours.ok()) return ours.status();
  ServingRow row;
  row.shape = serving_case;
  row.variant = ours->plan.variant_name();
  const auto found = find_variant(row.variant);
  if (!found.ok()) return found.status();
  auto failure = judge(*cache, *ours, device, most_error(**found));
  if (!failure.ok()) return failure.status();
  row.passed = failure->empty();
  row.note = std::move(*failure);
  if (!row.passed) return row;
  {
    const auto others = rivals(*cache, device, row.note);
    if (!others.ok()) return others.status();
    std::vector<std::function<Status(CUstream_st*)>> launches = {
        [&](CUstream_st* stream) { return ours->launch(stream); }};
    for (const Contestant& other : *others) {
      launches.emplace_back([&](CUstream_st* stream) { return other.launch(stream); });
    }
    const auto medians = time_in_turns(launches, Method::kGraphWarm, 1, kSamples);
    if (!medians.ok()) return medians.status();
    row.us = medians->front();
    if (medians->size() > 1) {
      row.flash3_us = *std::min_element(medians->begin() + 1, medians->end());
    }
  }
  release_peer_plans();
  return row;
}

double speed(const ServingRow& row) { return row.shape.flop() / row.us; }
double rate(const ServingRow& row) { return row.shape.bytes() / row.us; }

nlohmann::json serving_floors(const std::vector<ServingRow>& rows, double read) {
  const auto row = [&](const std::string& name) -> const ServingRow& {
    return *std::ranges::find(rows, name, [](const ServingRow& r) { return r.shape.name; });
  };
  nlohmann::json floors = nlohmann::json::array();
  const auto share = [&](const std::string& name, double least, double aim) {
    floors.push_back(floor(name + ", share of the read rate", rate(row(name)) / read, "ratio",
                           least, aim, true));
  };
  for (const char* page : {"page16", "page64"}) {
    for (const char* keys : {"2k", "8k", "32k"}) {
      share(std::string("d128_b128_") + keys + "_" + page, 0.88, 0.93);
    }
  }
  floors.push_back(
      floor("d128_b1_128k_page64", row("d128_b1_128k_page64").us, "us", 66, 60, false));
  floors.push_back(floor("d128_b1_2k_page64", row("d128_b1_2k_page64").us, "us", 6, 4.5, false));
  floors.push_back(floor("8 queries over 1, d128_b32_8k_page64",
                         row("d128_b32_8k_q8_page64").us / row("d128_b32_8k_page64").us, "ratio",
                         1.15, 1.05, false));
  share("d64_b64_8k_page64", 0.80, 0.90);
  share("d256_b64_8k_page64", 0.80, 0.90);
  floors.push_back(floor("lengths from 100 to 16k over all their mean",
                         row("d128_b128_100_to_16k_page64").us / row("d128_b128_mean_page64").us,
                         "ratio", 1.08, 1.03, false));
  floors.push_back(floor("ragged prefill over dense, equal work",
                         speed(row("d128_b16_prompts_of_256_to_8k")) /
                             speed(row("d128_b16_prompts_of_their_mean_work")),
                         "ratio", 0.95, 0.98, true));
  const ServingRow* least = nullptr;
  for (const ServingRow& of : rows) {
    if (of.flash3_us == 0.0) continue;
    if (least == nullptr || of.flash3_us / of.us < least->flash3_us / least->us) least = &of;
  }
  if (least != nullptr) {
    floors.push_back(floor("FlashAttention-3 over ours, least: " + least->shape.name,
                           least->flash3_us / least->us, "ratio", 1.2, 2, true));
  }
  return floors;
}

nlohmann::json serving_document(const RunInfo& run, const std::vector<ServingRow>& rows,
                                double read) {
  nlohmann::json out = result_header(run);
  out["read_bytes_per_s"] = read * kMicrosecondsPerSecond;
  out["results"] = nlohmann::json::array();
  for (const ServingRow& row : rows) {
    if (!row.passed) continue;
    const ServingCase& shape = row.shape;
    const auto [least, most] = std::ranges::minmax(shape.lengths);
    out["results"].push_back(
        {{"name", shape.name},
         {"batch", shape.batch()},
         {"keys", shape.most_keys()},
         {"queries", shape.seq_q},
         {"heads_q", shape.heads_q},
         {"heads_kv", shape.heads_kv},
         {"head_dim", shape.head_dim},
         {"page_size", shape.page_size},
         {"ragged", least != most},
         {"variant", row.variant},
         {"us", row.us},
         {"bytes_per_s", rate(row) * kMicrosecondsPerSecond},
         {"flash3_us", row.flash3_us > 0.0 ? nlohmann::json(row.flash3_us) : nlohmann::json()}});
  }
  return out;
}

std::string table_head() {
  return "| case | Q / KV heads | kernel | us | TFLOP/s | GB/s | share of the read rate | "
         "FlashAttention-3, us | over ours |\n|---|---|---|---|---|---|---|---|---|\n";
}

std::string table_line(const ServingRow& row, double read) {
  char line[256];
  std::snprintf(line, sizeof line, "| %s | %d / %d | %s | ", row.shape.name.c_str(),
                row.shape.heads_q, row.shape.heads_kv, row.variant.c_str());
  if (!row.passed) return std::string(line) + "wrong | - | - | - | - | - |\n";
  char times[128];
  std::snprintf(times, sizeof times, "%.1f | %.0f | %.0f | %.3f | ", row.us, speed(row) * 1e-6,
                rate(row) * kMicrosecondsPerSecond / kBytesPerGigabyte, rate(row) / read);
  char peer[64] = "- | - |";
  if (row.flash3_us > 0.0) {
    std::snprintf(peer, sizeof peer, "%.1f | %.2f |", row.flash3_us, row.flash3_us / row.us);
  }
  return std::string(line) + times + peer + "\n";
}

}  // namespace fp8_sdpa::bench
