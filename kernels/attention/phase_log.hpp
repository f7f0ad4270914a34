// When each warp enters each phase of a kernel, for a timeline. A kernel marks its phases whether
// it is logged or not: PhaseLog<false> is empty, and its marks compile to nothing.
#pragma once

#include <cstdint>

#include "attention/forward_params.hpp"
#include "gpu/gpu.hpp"

namespace fp8_sdpa::attention {

/// What a warp does from this mark to its next. kNone: no mark was written here.
enum class Phase : std::uint16_t {
  kNone,
  kQLoad,
  kKvPrefetch,
  kDequant,
  kQk,
  kSoftmax,
  kPv,
  kStoreO,
  kWait,  ///< for copies or other warps
  kEnd,
};

constexpr const char* name_of(Phase phase) {
  switch (phase) {
    case Phase::kNone: return "none";
    case Phase::kQLoad: return "Q_load";
    case Phase::kKvPrefetch: return "KV_prefetch";
    case Phase::kDequant: return "dequant";
    case Phase::kQk: return "QK";
    case Phase::kSoftmax: return "softmax";
    case Phase::kPv: return "PV";
    case Phase::kStoreO: return "store_O";
    case Phase::kWait: return "wait";
    case Phase::kEnd: return "end";
  }
  return "unknown";
}

struct alignas(16) PhaseMark {
  std::uint64_t clock;  ///< gpu::clock()
  Phase phase;
  std::uint16_t multiprocessor;
  std::uint32_t tile;  ///< of keys
};

/// Where marks go: `per_warp` of them, zeros before the launch, for each warp of each block, block
/// by block.
struct PhaseSink {
  PhaseMark* marks = nullptr;
  int per_warp = 0;
};

/// Kernel arguments with or without a sink.
template <bool kLogged>
struct LoggedParams : ForwardParams {
  PhaseSink sink;
};
template <bool kLogged>
using ParamsOf = std::conditional_t<kLogged, LoggedParams<kLogged>, ForwardParams>;

/// Whether a variant's tag asks for a log: Traced<Tag> does.
template <class Tag>
concept Logged = requires {
  requires Tag::kLogged;
};

template <class Tag>
struct Traced : Tag {
  static constexpr bool kLogged = true;
};

/// The marks of this thread's warp, of kWarps in its block. Every thread of the warp calls mark().
template <bool kLogged, int kWarps>
class PhaseLog {
 public:
  GPU_FN explicit PhaseLog(const ForwardParams& /*p*/) {}
  GPU_FN void mark(Phase /*phase*/, int /*tile*/ = 0) const {}
};

template <int kWarps>
class PhaseLog<true, kWarps> {
 public:
  GPU_FN explicit PhaseLog(const LoggedParams<true>& p) : left_(p.sink.per_warp) {
    const std::int64_t warp =
        static_cast<std::int64_t>(gpu::block_idx().x) * kWarps + gpu::warp_idx();
    next_ = p.sink.marks + warp * p.sink.per_warp;
  }

  GPU_FN void mark(Phase phase, int tile = 0) {
    if (left_ == 0) return;
    if (gpu::lane_idx() == 0) {
      *next_ = {gpu::clock(), phase, static_cast<std::uint16_t>(gpu::multiprocessor_idx()),
                static_cast<std::uint32_t>(tile)};
    }
    ++next_;
    --left_;
  }

 private:
  PhaseMark* next_;
  int left_;
};

}  // namespace fp8_sdpa::attention
