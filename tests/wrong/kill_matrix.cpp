#include "tests/wrong/kill_matrix.hpp"

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <fstream>
#include <map>
#include <nlohmann/json.hpp>
#include <set>

namespace fp8_sdpa::wrong {
namespace {

using Json = nlohmann::ordered_json;

Json to_json(const Finding& finding) {
  return {{"trial", finding.trial}, {"gate", finding.gate},
          {"value", finding.value}, {"threshold", finding.threshold},
          {"pass", finding.pass},   {"detail", finding.pass ? "" : finding.detail.substr(0, 300)}};
}

/// null stands for what JSON has no number for.
double number(const Json& value) { return value.is_null() ? INFINITY : value.get<double>(); }

/// Four digits are enough for a margin, and keep the file small.
double rounded(double value) {
  constexpr int kSize = 32;
  char text[kSize];
  std::snprintf(text, sizeof text, "%.4g", value);
  return std::strtod(text, nullptr);
}

std::string margin_text(const Finding& finding) {
  const double times = margin(finding);
  if (!std::isfinite(times)) return "outright";
  constexpr int kSize = 32;
  char text[kSize];
  std::snprintf(text, sizeof text, times < 100.0 ? "%.1f x" : "%.0f x", times);
  return text;
}

std::set<std::string> killing_gates(const Outcome& outcome) {
  std::set<std::string> gates;
  for (const Finding& finding : outcome.findings) {
    if (!finding.pass) gates.insert(finding.gate);
  }
  return gates;
}

std::set<std::string> killing_trials(const Outcome& outcome) {
  std::set<std::string> trials;
  for (const Finding& finding : outcome.findings) {
    if (!finding.pass) trials.insert(finding.trial);
  }
  return trials;
}

std::string joined(const std::set<std::string>& words) {
  std::string text;
  for (const std::string& word : words) text += (text.empty() ? "" : ", ") + word;
  return text;
}

int peers_that_pass(const Row& row) {
  return static_cast<int>(std::count_if(row.outcome.peers.begin(), row.outcome.peers.end(),
                                        [](const PeerVerdict& peer) { return peer.pass; }));
}

std::string peer_names(const Row& row) {
  std::set<std::string> names;
  for (const PeerVerdict& peer : row.outcome.peers) {
    if (peer.pass) names.insert(peer.peer);
  }
  return joined(names);
}

std::string summary(const std::vector<Row>& rows) {
  std::size_t killed = 0;
  std::size_t edits = 0;
  std::size_t judged = 0;
  std::size_t through_one = 0;
  std::map<std::string, int> by_peer;
  for (const Row& row : rows) {
    killed += row.outcome.killed() ? 1 : 0;
    edits += row.kind == "model" ? 0 : 1;
    judged += row.outcome.peers.empty() ? 0 : 1;
    through_one += peers_that_pass(row) > 0 ? 1 : 0;
    for (const PeerVerdict& peer : row.outcome.peers) by_peer[peer.peer] += peer.pass ? 1 : 0;
  }
  std::string text = "**" + std::to_string(killed) + " of " + std::to_string(rows.size()) +
                     " wrong kernels killed**; " + std::to_string(edits) +
                     " are edits of shipped kernel sources, " +
                     std::to_string(rows.size() - edits) +
                     " are faults of the rounding model.\n\n" +
                     "On unit-normal inputs, as the peers' own tests draw them, published gates "
                     "would have let " +
                     std::to_string(through_one) + " of " + std::to_string(judged) +
                     " through at least one of them:";
  for (const auto& [peer, count] : by_peer) {
    text += " " + peer + " " + std::to_string(count) + ";";
  }
  text.back() = '.';
  return text + "\n";
}

}  // namespace

std::string encode_row(const Row& row) {
  Json findings = Json::array();
  for (const Finding& finding : row.outcome.findings) findings.push_back(to_json(finding));
  Json peers = Json::object();
  for (const PeerVerdict& peer : row.outcome.peers) peers[peer.peer] = peer.pass;
  return Json{{"name", row.name},   {"what", row.what},       {"kind", row.kind},
              {"place", row.place}, {"variant", row.variant}, {"killed", row.outcome.killed()},
              {"peers", peers},     {"findings", findings}}
      .dump();
}

Row decode_row(const std::string& text) {
  const Json root = Json::parse(text);
  Row row{root.at("name"),  root.at("what"),    root.at("kind"),
          root.at("place"), root.at("variant"), {}};
  for (const Json& entry : root.at("findings")) {
    row.outcome.findings.push_back({entry.at("trial"), entry.at("gate"), number(entry.at("value")),
                                    number(entry.at("threshold")), entry.at("pass"),
                                    entry.at("detail")});
  }
  for (const auto& [peer, pass] : root.at("peers").items()) {
    row.outcome.peers.push_back({peer, pass});
  }
  return row;
}

bool write_matrix(const std::vector<Row>& rows, const std::filesystem::path& folder) {
  Json faults = Json::array();
  std::string table =
      "| fault | what is wrong | where | killed by | in trials | strongest | peers' gates that "
      "pass "
      "it |\n|---|---|---|---|---|---|---|\n";
  bool all = !rows.empty();
  for (const Row& row : rows) {
    const Finding* strongest = row.outcome.strongest();
    all = all && strongest != nullptr;
    Json failed = Json::object();
    for (const Finding& finding : row.outcome.findings) {
      if (!finding.pass) failed[finding.trial][finding.gate] = rounded(margin(finding));
    }
    Json peers = Json::object();
    for (const PeerVerdict& peer : row.outcome.peers) peers[peer.peer] = peer.pass;
    faults.push_back({{"name", row.name},
                      {"what", row.what},
                      {"kind", row.kind},
                      {"place", row.place},
                      {"variant", row.variant},
                      {"killed", strongest != nullptr},
                      {"strongest_gate", strongest != nullptr ? strongest->gate : ""},
                      {"strongest_trial", strongest != nullptr ? strongest->trial : ""},
                      {"peers_pass", peers},
                      {"margins", std::move(failed)}});
    table += "| `" + row.name + "` | " + row.what + " | " + row.place + " | " +
             (strongest != nullptr ? joined(killing_gates(row.outcome)) : "**nobody**") + " | " +
             std::to_string(killing_trials(row.outcome).size()) + " | " +
             (strongest != nullptr
                  ? strongest->gate + " " + margin_text(*strongest) + " (" + strongest->trial + ")"
                  : "") +
             " | " + peer_names(row) + " |\n";
  }
  std::filesystem::create_directories(folder);
  std::ofstream document(folder / "kill_matrix.json");
  document << "{\"schema_version\": 1, \"all_killed\": " << (all ? "true" : "false")
           << ", \"faults\": [\n";
  for (std::size_t i = 0; i < faults.size(); ++i) {  // a line per fault, for people who compare
    document << faults[i].dump() << (i + 1 < faults.size() ? ",\n" : "\n");
  }
  document << "]}\n";
  std::ofstream(folder / "kill_matrix.md")
      << "# Kill matrix\n\nEvery wrong kernel of `tests/wrong`, put through the gates on the host "
         "executor, without a GPU. `./sdpa test`\nruns it; "
         "`build/release/tests/wrong/wrong_kernels --out results --races "
         "build/tsan/tests/wrong/faults` writes this file and\n`kill_matrix.json`, which has the "
         "margin of every "
         "gate "
         "that failed in every trial: its value over its threshold, null\nwhere there is no number "
         "(NaN, a deadlock). \"Strongest\" is the largest margin. Published gates are implemented "
         "in `tests/wrong/peers.cpp`.\nRandom mutants of the same sources, which nobody wrote "
         "down: `mutation_score.md`.\n\n"
      << summary(rows) << "\n"
      << table;
  return all;
}

}  // namespace fp8_sdpa::wrong
