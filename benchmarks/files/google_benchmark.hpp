// Google Benchmark's form of result files: what its own tools read.
#pragma once

#include <nlohmann/json_fwd.hpp>
#include <string>
#include <utility>
#include <vector>

#include "benchmarks/files/device_info.hpp"
#include "benchmarks/files/results.hpp"

namespace fp8_sdpa::bench {

/// What the context of such a file says of the run: device, clocks, commit, toggles, compilers.
/// `info` is null on the host backend.
std::vector<std::pair<std::string, std::string>> benchmark_context(const Device& device,
                                                                   const DeviceInfo* info);

/// "forward/<who>/<shape>", with the method's suffix behind it. The same for ours and for
/// peers: "peer/cudnn_fp8" is "cudnn_fp8".
std::string series_name(const std::string& variant, const std::string& shape, Method method);

/// Times that were interleaved, as Google Benchmark would have written them: one entry for each
/// repetition, with the counters of fp8_sdpa_bench. Of a peer that failed its gates the label says
/// so. `automatic`: our variants are the library's own choice, called "auto"; their name is the
/// label, and an event-timed entry has the graph's median as graph_us.
nlohmann::json benchmark_document(const RunInfo& run, const Device& device,
                                  const std::vector<PerfRecord>& records,
                                  const std::vector<CorrectnessRecord>& judged, bool automatic);

}  // namespace fp8_sdpa::bench
