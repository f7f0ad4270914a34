// The sections of a report behind its times.
#include <algorithm>
#include <cmath>
#include <set>

#include "benchmarks/command/text.hpp"
#include "benchmarks/files/build_info.hpp"
#include "benchmarks/report/page.hpp"
#include "benchmarks/report/resources.hpp"
#include "reference/formats/text.hpp"

namespace fp8_sdpa::bench {
namespace {

using nlohmann::json;
using reference::one_line;
using Kind = Column::Kind;

/// Text of a member, other values as JSON has them, "unknown" for null or none.
std::string shown(const json& object, const char* pointer) {
  const json value = object.value(json::json_pointer(pointer), json());
  if (value.is_string()) return one_line(value.get<std::string>());
  return value.is_null() ? "unknown" : one_line(value.dump());
}

// --- resources -----------------------------------------------------------------------------------

std::vector<ResourceUse> uses_of(const json& build_meta) {
  std::vector<ResourceUse> uses;
  for (const json& kernel : build_meta.at("/build/ptxas"_json_pointer)) {
    ResourceUse use{.kernel = kernel.at("kernel"),
                    .variant = kernel.at("variant"),
                    .arch = kernel.at("arch"),
                    .threads = 0,
                    .registers = kernel.at("registers"),
                    .shared_bytes = kernel.at("smem_bytes"),
                    .spill_bytes = kernel.at("spill_stores").get<std::size_t>() +
                                   kernel.at("spill_loads").get<std::size_t>()};
    // Kernels that are no variant's (the reference, conversions) have no launch to judge by.
    const auto variant = find_variant(use.variant);
    if (variant.ok()) use.threads = (*variant)->resources.threads;
    if (!use.variant.empty()) uses.push_back(std::move(use));
  }
  return uses;
}

/// Of each variant and architecture the kernel with the most registers.
std::vector<ResourceUse> largest_of(const std::vector<ResourceUse>& uses) {
  std::vector<ResourceUse> largest;
  for (const ResourceUse& use : uses) {
    const auto same = std::find_if(largest.begin(), largest.end(), [&](const ResourceUse& other) {
      return other.variant == use.variant && other.arch == use.arch;
    });
    if (same == largest.end()) {
      largest.push_back(use);
    } else if (use.registers > same->registers) {
      *same = use;
    }
  }
  return largest;
}

Table resources_on(const std::string& arch, const std::vector<ResourceUse>& uses) {
  Table table{{{"kernel on " + arch, Kind::kCode},
               {"threads", Kind::kNumber},
               {"registers", Kind::kNumber},
               {"shared bytes", Kind::kNumber},
               {"spilled bytes", Kind::kNumber},
               {"blocks / SM", Kind::kNumber},
               {"occupancy", Kind::kNumber},
               {"limited by", Kind::kText}}};
  for (const ResourceUse& use : uses) {
    if (use.arch != arch) continue;
    std::vector<Cell> row = {use.variant, use.threads > 0 ? std::to_string(use.threads) : "-",
                             std::to_string(use.registers), std::to_string(use.shared_bytes),
                             std::to_string(use.spill_bytes)};
    const auto fits = occupancy(use);
    if (fits.ok() && fits->blocks > 0) {
      row.insert(row.end(),
                 {std::to_string(fits->blocks),
                  format("%.1f %%", 100.0 * fits->warps / fits->max_warps), fits->limit});
    } else {
      row.insert(row.end(), {"-", "-", "-"});
    }
    table.rows.push_back(std::move(row));
  }
  return table;
}

// --- kill matrix ---------------------------------------------------------------------------------

/// The names of the peers whose published gates were asked.
std::set<std::string> gates_of_peers(const json& faults) {
  std::set<std::string> names;
  for (const json& fault : faults) {
    const json passes = fault.value("peers_pass", json::object());
    for (const auto& peer : passes.items()) names.insert(peer.key());
  }
  return names;
}

/// Which of the named gates let a fault through, in one cell.
std::string passed_by(const json& fault) {
  std::string out;
  const json passes = fault.value("peers_pass", json::object());
  for (const auto& peer : passes.items()) {
    if (peer.value().get<bool>()) out += (out.empty() ? "" : ", ") + one_line(peer.key());
  }
  return out.empty() ? "-" : out;
}

Table gates_table(const json& faults) {
  Table table{
      {{"gate", Kind::kText}, {"wrong kernels let through", Kind::kNumber}, {"of", Kind::kNumber}}};
  const auto survivors = std::count_if(faults.begin(), faults.end(),
                                       [](const json& f) { return !f.at("killed").get<bool>(); });
  table.rows.push_back({Cell("this suite", true), Cell(std::to_string(survivors), true),
                        std::to_string(faults.size())});
  for (const std::string& peer : gates_of_peers(faults)) {
    int asked = 0;
    int through = 0;
    for (const json& fault : faults) {
      const json passes = fault.value("peers_pass", json::object()).value(peer, json());
      asked += passes.is_boolean() ? 1 : 0;
      through += passes == true ? 1 : 0;
    }
    table.rows.push_back(
        {one_line(peer) + ", published", std::to_string(through), std::to_string(asked)});
  }
  return table;
}

Table faults_table(const json& faults) {
  Table table{{{"fault", Kind::kCode},
               {"what is wrong", Kind::kText},
               {"where", Kind::kCode},
               {"killed", Kind::kText},
               {"strongest gate", Kind::kCode},
               {"in trial", Kind::kCode},
               {"let through by", Kind::kText}}};
  for (const json& fault : faults) {
    table.rows.push_back({shown(fault, "/name"), shown(fault, "/what"), shown(fault, "/place"),
                          fault.at("killed").get<bool>() ? "yes" : "NO",
                          shown(fault, "/strongest_gate"), shown(fault, "/strongest_trial"),
                          passed_by(fault)});
  }
  table.fold = "All " + std::to_string(faults.size()) + " wrong kernels";
  return table;
}

// --- environment ---------------------------------------------------------------------------------

/// What a run says of itself, a title and a text each; the same titles for every run.
std::vector<std::pair<std::string, std::string>> environment_of(const json& meta) {
  const auto of = [&](const char* pointer) { return shown(meta, pointer); };
  const bool dirty = meta.at("/git/dirty"_json_pointer).get<bool>();
  const bool device = meta.value("device", json()).is_object();
  const std::string clocks = "SM " + of("/device/clocks/sm_mhz") + " of " +
                             of("/device/clocks/sm_max_mhz") + " MHz, memory " +
                             of("/device/clocks/memory_mhz") + " of " +
                             of("/device/clocks/memory_max_mhz") + " MHz";
  return {
      {"measured", of("/timestamp")},
      {"commit", of("/git/sha") + " on " + of("/git/branch") + (dirty ? " (dirty)" : "")},
      {"device", device ? of("/device/name") + ", " + of("/device/sm_count") + " multiprocessors"
                        : "none: the host executor"},
      {"clocks as it began", device ? clocks : "-"},
      {"power limit", device ? of("/device/power_limit_watts") + " W" : "-"},
      {"driver",
       device ? of("/device/driver_version") + ", CUDA " + of("/device/cuda_version") : "-"},
      {"compilers",
       of("/build/compiler") + ", " + of("/build/cuda_compiler") + ", " + of("/build/build_type")},
      {"architectures", of("/build/arch")},
      {"flags", of("/build/flags")},
      {"CUDA flags", of("/build/cuda_flags")},
  };
}

}  // namespace

void append_resources(const ReportData& data, Document& page) {
  // The run with the most kernels: runs of one build say the same of those that they share.
  std::vector<ResourceUse> uses;
  std::string build;
  for (const ReportRun& run : data.runs) {
    if (run.build_meta.is_null()) continue;
    std::vector<ResourceUse> these = largest_of(uses_of(run.build_meta));
    if (these.size() <= uses.size()) continue;
    uses = std::move(these);
    build = "the build of " + as_code(run.folder);
  }
  std::set<std::string> timed;
  for (const ReportRun& run : data.runs) {
    for (const PerfSeries& series : run.series) timed.insert(series.variant);
  }
  std::string note;
  if (uses.empty()) {
    // A machine that measures need not have compiled.
    const auto report = load_ptxas_report();
    if (report.ok()) uses = largest_of(resource_uses(*report, variants()));
    note = report.ok() ? report->note : report.status().message();
    build = "the build that made this page, of commit " + as_code(this_build().git_sha);
  }
  if (!timed.empty()) {
    std::erase_if(uses, [&](const ResourceUse& use) { return !timed.contains(use.variant); });
    if (uses.empty() && note.empty()) note = "of none that was timed";
  }
  page.blocks.push_back(Heading{2, "Resources"});
  page.blocks.push_back(
      Paragraph{uses.empty() ? "Not known: " + as_code(note) + "."
                             : "What the compiler reports for each kernel that was timed, and the "
                               "theoretical occupancy, by " +
                                   build +
                                   ". A kernel with several instances (formats, head dims) is "
                                   "shown by the one with the most registers."});
  std::set<std::string> archs;
  for (const ResourceUse& use : uses) archs.insert(use.arch);
  for (const std::string& arch : archs) page.blocks.push_back(resources_on(arch, uses));
}

void append_profiles(const ReportData& data, Document& page) {
  if (data.profiles.empty()) return;
  page.blocks.push_back(Heading{2, "Profiles"});
  page.blocks.push_back(Paragraph{"Verdicts on Nsight Compute's counters."});
  Table table{{{"kernel", Kind::kCode},
               {"shape", Kind::kCode},
               {"verdict", Kind::kText},
               {"because", Kind::kText},
               {"next", Kind::kText}}};
  for (const json& profile : data.profiles) {
    table.rows.push_back({shown(profile, "/variant"), shown(profile, "/shape"),
                          Cell(shown(profile, "/verdict"), true), shown(profile, "/because"),
                          shown(profile, "/next_step")});
  }
  page.blocks.push_back(std::move(table));
}

void append_kill_matrix(const ReportData& data, Document& page) {
  if (data.kill_matrix.is_null()) return;
  const json& faults = data.kill_matrix.at("faults");
  page.blocks.push_back(Heading{2, "Kill matrix"});
  page.blocks.push_back(
      Paragraph{"Wrong kernels, put through the gates. Published gates are asked on unit-normal "
                "inputs, as their own tests draw them, of the faults that leave an output."});
  page.blocks.push_back(gates_table(faults));
  page.blocks.push_back(faults_table(faults));
}

void append_limits(const ReportData& data, Document& page) {
  if (data.ceilings.empty()) return;
  page.blocks.push_back(Heading{2, "Device limits"});
  page.blocks.push_back(Paragraph{"What the chip reached at most, measured."});
  Table table{{{"ceiling", Kind::kCode},
               {"value", Kind::kNumber},
               {"unit", Kind::kText},
               {"what was run", Kind::kText},
               {"device", Kind::kText}}};
  for (const json& chip : data.ceilings) {
    for (const json& limit : chip.at("results")) {
      table.rows.push_back({shown(limit, "/name"), format("%.4g", limit.at("value").get<double>()),
                            shown(limit, "/unit"), shown(limit, "/what"), device_of(chip)});
    }
  }
  page.blocks.push_back(std::move(table));
}

void append_scaling(const ReportData& data, Document& page) {
  if (data.sweeps.empty()) return;
  page.blocks.push_back(Heading{2, "Scaling"});
  page.blocks.push_back(Paragraph{
      "Launches in a CUDA graph over lengths and heads, and the cost model fitted to them: "
      "launch + waves x key tiles x time of a tile. Memory is what the device's free "
      "memory fell by, at the least and at the most."});
  Table table{{{"kernel", Kind::kCode},
               {"launch µs", Kind::kNumber},
               {"µs per tile", Kind::kNumber},
               {"places", Kind::kNumber},
               {"rms departure", Kind::kNumber},
               {"departs most at", Kind::kCode},
               {"by", Kind::kNumber},
               {"memory MiB", Kind::kNumber},
               {"device", Kind::kText}}};
  for (const json& sweep : data.sweeps) {
    for (const json& fit : sweep.at("fits")) {
      std::string shape = "-";
      double most = 0;
      std::vector<double> bytes;
      for (const json& place : sweep.at("results")) {
        if (place.at("variant") != fit.at("variant")) continue;
        bytes.push_back(place.at("device_bytes"));
        const json& departure = place.at("departure");
        if (departure.is_null() || std::abs(departure.get<double>()) <= std::abs(most)) continue;
        most = departure;
        shape = place.at("shape");
      }
      constexpr double kMebi = 1024.0 * 1024.0;
      const auto [least_memory, most_memory] = std::minmax_element(bytes.begin(), bytes.end());
      table.rows.push_back(
          {shown(fit, "/variant"), format("%.2f", fit.at("launch_us").get<double>()),
           format("%.4f", fit.at("per_step_us").get<double>()), shown(fit, "/places"),
           format("%.1f %%", 100 * fit.at("rms_departure").get<double>()), shape,
           format("%+.1f %%", 100 * most),
           bytes.empty() ? std::string("-")
                         : format("%.1f to %.1f", *least_memory / kMebi, *most_memory / kMebi),
           device_of(sweep)});
    }
  }
  page.blocks.push_back(std::move(table));
}

void append_environment(const ReportData& data, Document& page) {
  Table table{{{"run", Kind::kText}}};
  for (const ReportRun& run : data.runs) {
    if (run.build_meta.is_null()) continue;
    table.columns.push_back({one_line(run.folder), Kind::kText});
    std::size_t line = 0;
    for (const auto& [title, text] : environment_of(run.build_meta)) {
      if (line == table.rows.size()) table.rows.push_back({title});
      table.rows[line++].emplace_back(text);
    }
  }
  if (table.rows.empty()) return;
  page.blocks.push_back(Heading{2, "Environment"});
  page.blocks.push_back(std::move(table));
}

}  // namespace fp8_sdpa::bench
