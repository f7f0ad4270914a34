// What the quantiser's kernel is given, for both backends, and where its workspace has what.
#pragma once

#include <cstddef>
#include <cstdint>

#include "fp8_sdpa/append.hpp"
#include "fp8_sdpa/quantise.hpp"
#include "gpu/queue.hpp"

namespace fp8_sdpa::quantiser {

inline constexpr int kMinSmVersion = 80;
inline constexpr int kWarps = 8;  ///< of a block
/// Of a lane: two where they are short.
constexpr int rows_of_lane(Dtype from, int head_dim) {
  return head_dim == 64 && from != Dtype::kFloat ? 2 : 1;
}
/// Rows that a block takes at a time.
constexpr int tile_rows(Dtype from, int head_dim) {
  return 8 * rows_of_lane(from, head_dim) * kWarps;
}
inline constexpr int kMaxHeadDim = 256;
/// Smaller descales are 1: what a larger one makes a code of is a normal float, which no device
/// flushes, and so is its reciprocal.
inline constexpr float kLeastDescale = 0x1p-100F;

/// What is done with a tile. All tiles of a head have been through a pass before one of them comes
/// to the next.
enum class Pass : std::uint8_t { kMean, kAmax, kCodes };

/// Strides in elements.
struct Strides {
  std::int64_t batch, head, seq;
};

struct Params {
  const void* from;
  Strides from_strides;
  std::uint8_t* codes;
  Strides codes_strides;
  float* descales;        ///< of each (batch, head), as all below
  float* mean;            ///< head_dim each
  float* tile_sums;       ///< `tiles` times head_dim each
  std::uint32_t* ticket;  ///< the next work, in order; zero at first, as the next two
  /// (passes, all heads): tiles that have been through a pass, and one more once the mean is there.
  std::uint32_t* tiles_done;
  std::uint32_t* amax;        ///< bits of a float
  std::uint32_t* infinities;  ///< or null
  const float* dot_with;      ///< head_dim each of dot_group heads, or null
  float* dots;                ///< seq each
  int dot_group;
  int seq;
  int heads;      ///< of a batch
  int all_heads;  ///< batch * heads
  int tiles;      ///< of a head
  int lag;        ///< heads that a pass is behind the one before it
  Pass passes[3];
  int pass_count;
  bool e5m2;
  bool rotate;
  bool smooth;
  std::uint64_t signs[kMaxHeadDim / 64];  ///< of the rotation: a set bit for -1
};

/// Those of a quantisation that has been checked.
Params make_params(const Quantisation& quantisation, void* workspace);

/// Tickets that blocks take in all, those between whose passes there is no head included.
std::int64_t tickets_of(const Quantisation& quantisation);

/// Bytes of workspace, and how many of its first are zero before the kernel runs.
struct WorkspaceSize {
  std::size_t zeroed;
  std::size_t all;
};
WorkspaceSize workspace_size(const Quantisation& quantisation);

/// Launches the kernel. Instantiated once per backend, in instances.cuh.
template <Backend kBackend>
Status launch(const Quantisation& quantisation, const Device& device, void* workspace,
              const gpu::Queue& queue);

/// Launches an append that has been checked. Likewise.
template <Backend kBackend>
Status append(const Append& append, const gpu::Queue& queue);

/// lse[i] += scale * dots[i]. Likewise.
template <Backend kBackend>
Status add_to_lse(float* lse, const float* dots, float scale, std::int64_t rows,
                  const gpu::Queue& queue);

}  // namespace fp8_sdpa::quantiser
