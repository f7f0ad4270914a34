// The sweep over sequence lengths and heads at constant work: what is measured, and the file.
#pragma once

#include <cstdint>
#include <nlohmann/json_fwd.hpp>
#include <string>
#include <vector>

#include "benchmarks/files/results.hpp"
#include "dispatch/variant.hpp"
#include "fp8_sdpa/status.hpp"
#include "reference/config/config.hpp"

namespace fp8_sdpa::bench {

/// A sweep point: B*H and S are powers of two, and B*H * S^2 = 2^level, so that all sweep points
/// of a level have the same work.
struct SweepPoint {
  int level = 0;
  reference::Shape shape;  ///< named "s<S>_bh<B*H>"
};

inline constexpr int kSmallestSeqBits = 5;  ///< S = 32
inline constexpr int kLargestSeqBits = 16;  ///< S = 65536
inline constexpr int kLargestHeadBits = 7;  ///< B*H = 128
inline constexpr int kFirstLevel = 17;      ///< S = 32, B*H = 128
inline constexpr int kLastLevel = 32;       ///< S = 65536, B*H = 1
inline constexpr int kLevelStep = 3;

/// Every sweep point of the levels first, first + step, ... last, by level and then by S.
std::vector<SweepPoint> sweep_points(int first, int last, int step, int head_dim);

/// The sweep points of part `part` of `parts`: dealt one by one, the most work first, so that all
/// parts have about the same. Every sweep point is in exactly one part. @pre 0 <= part < parts.
std::vector<SweepPoint> points_of_part(std::vector<SweepPoint> places, int part, int parts);

/// One variant at one sweep point, measured.
struct SweepRecord {
  int level = 0;
  reference::Shape shape;
  std::string variant;
  int tile_m = 0;
  int tile_n = 0;
  double steps = 0;               ///< cost_model.hpp
  double events_us = 0;           ///< p50, Method::kEventsWarm
  double graph_us = 0;            ///< p50, Method::kGraphWarm
  std::int64_t device_bytes = 0;  ///< what the device's free memory fell by
};

/// A sweep point that has no record, and why.
struct SweepGap {
  std::string shape;
  std::string variant;
  std::string reason;
};

struct SweepResults {
  std::vector<SweepRecord> records;
  std::vector<SweepGap> left_out;
  bool pass = true;  ///< no gate failed
};

/// Bytes of Q, K, V, O and the descales.
std::int64_t tensor_bytes(const reference::Shape& shape);

/// sweep.json: the records in the order of levels, lengths and variants, whoever measured them, and
/// the cost model of each variant, fitted on its graph times. A variant with too few sweep points
/// has no fit, and null for model and departure.
nlohmann::json sweep_document(const RunInfo& run, const SweepResults& results);

/// The documents of parts as one, which is what sweep_document() makes of all of their records. Its
/// header is the first one's. kInvalidArgument, in one line, for parts of other devices, builds or
/// schema versions, and for a sweep point that is there twice. @pre each is of its schema; not
/// empty.
Result<nlohmann::json> merge_sweeps(const std::vector<nlohmann::json>& parts);

/// A table for people: each variant's model, and the sweep points that depart from it most.
std::string sweep_table(const nlohmann::json& document);

/// What to measure, and how.
struct SweepPlan {
  std::vector<SweepPoint> places;
  std::vector<const Variant*> variants;  ///< empty: the library's own choice for each sweep point
  reference::Config config;              ///< tolerances and launches
  int timed_iters = 0;
};

/// Judges and measures each variant at each sweep point on a CUDA device. A Status means that the
/// sweep cannot go on.
Result<SweepResults> run_sweep(const SweepPlan& plan, const Device& device);

}  // namespace fp8_sdpa::bench
