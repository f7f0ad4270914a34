// What the quantiser's kernel is given, for both backends, and where its workspace has what.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "attention/divisor.hpp"
#include "fp8_sdpa/append.hpp"
#include "fp8_sdpa/quantise.hpp"
#include "gpu/queue.hpp"
#include "gpu/tensor_map.hpp"

namespace fp8_sdpa::quantiser {

inline constexpr int kMinSmVersion = 80;
/// Of a lane: two where they are short.
constexpr int rows_of_lane(Dtype from, int head_dim) {
  return head_dim == 64 && from != Dtype::kFloat ? 2 : 1;
}
/// Warps of a block that compute: a tile of theirs is 16 KB.
constexpr int compute_warps(Dtype from, int head_dim) {
  const int bytes_of_warp =
      8 * rows_of_lane(from, head_dim) * head_dim * (from == Dtype::kFloat ? 4 : 2);
  return 16 * 1024 / bytes_of_warp;
}
/// Rows that a block takes at a time.
constexpr int tile_rows(Dtype from, int head_dim) {
  return 8 * rows_of_lane(from, head_dim) * compute_warps(from, head_dim);
}
/// Tiles that a block has room for: two blocks of an sm_90, or one of an sm_89.
inline constexpr int kSlots = 5;
/// Steps between a tile's being asked for and its first use.
inline constexpr int kAhead = 2;
/// Tiles whose sums are added up together.
inline constexpr int kGroup = 16;
inline constexpr int kMaxHeadDim = 256;
/// The largest finite code of a format.
constexpr float largest_code(Dtype codes) {
  return codes == Dtype::kE4M3 ? 448.0F : codes == Dtype::kE5M2 ? 57344.0F : 127.0F;
}
/// Smaller descales are 1: what a larger one makes a code of is a normal float, which no device
/// flushes, and so is its reciprocal.
inline constexpr float kLeastDescale = 0x1p-100F;

/// Strides in elements.
struct Strides {
  std::int64_t batch, head, seq;
};

struct Params {
  const void* from;
  Strides from_strides;
  std::uint8_t* codes;
  Strides codes_strides;
  float* descales;    ///< of each (batch, head), as all below
  float* mean;        ///< head_dim each
  float* tile_sums;   ///< `tiles` times head_dim each
  float* group_sums;  ///< `groups` times head_dim each
  /// Zero at first, as the next two: of each group, tiles that are in tile_sums.
  std::uint32_t* tiles_summed;
  std::uint32_t* groups_summed;  ///< groups that are in group_sums, and one more for the mean
  std::uint32_t* amax;           ///< of each tile: 0, or the bits of a float and the sign bit
  std::uint32_t* infinities;     ///< or null
  const float* dot_with;         ///< head_dim each of dot_group heads, or null
  float* dots;                   ///< seq each
  int dot_group;
  int seq;
  attention::Divisor heads;  ///< of a batch
  int all_heads;             ///< batch * heads
  int tiles;                 ///< of a head
  int groups;                ///< of kGroup tiles of a head
  int all_tiles;             ///< of all heads
  int steps;                 ///< of a block that has the most tiles
  int lead;                  ///< steps that sums are ahead of largest magnitudes, or of codes
  int lag;                   ///< steps that codes are behind largest magnitudes
  bool keeps;                ///< a tile stays in shared memory for so long
  bool finds_amax;
  Dtype format;   ///< of the codes
  float largest;  ///< of them
  bool rotate;
  bool smooth;
  std::uint64_t signs[kMaxHeadDim / 64];  ///< of the rotation: a set bit for -1
};

/// One of up to three tensors of a launch of slabs.cuh.
struct Slab {
  gpu::TensorMap map;         ///< of `tensor.from`, in bytes: (batch, heads, seq, head_dim)
  int head_step, batch_step;  ///< of the map's coordinates; 0 where all heads or batches are one
  Params tensor;              ///< descales: of each block of rows
  int block_rows;             ///< at least a slab's where a descale is of a head, and given
  int blocks;                 ///< of a head
  attention::Divisor slabs;   ///< of a head
  int all;                    ///< slabs of all heads
  int of_block, left_over;    ///< of `all`, each thread block's, and one more of so many blocks
  /// The tensor of the launch whose mean is needed, -1 if none is: `tensor`, where the mean is
  /// subtracted, or that whose heads the dots are with.
  int summed;
  int shares;         ///< of a head of it; 0: a team adds the head up
  const float* sums;  ///< of columns, of each share head_dim
};
inline constexpr int kSlabRows = 128;
inline constexpr int kMaxTensors = 3;
struct SlabsParams {
  Slab of[kMaxTensors];  ///< those that need sums behind the others
  int tensors;
  int rotates;  ///< one that is rotated, as all that are; -1: none is
  bool behind_sums;
};
/// Sums of columns of a tensor: a thread block a share.
struct SumsParams {
  Params tensor;
  float* sums;
  int shares, share_rows;
};
/// Rows whose columns are added up together, at least, and shares of a head, at most: each slab
/// adds all shares of its head up.
inline constexpr int kShareRows = 256;
inline constexpr int kMaxShares = 16;
/// Rows of a head, at most, that each of its slabs adds up itself: read so often, they take less
/// time than another launch.
inline constexpr int kOwnSumRows = 256;
int shares_of(std::int64_t seq);
/// Whether TMA reads the rows of such a tensor, as slabs.cuh does.
bool has_slabs(const Tensor& from, std::int64_t seq);
/// Bytes that the sums of its shares take, if it is smoothed and has any; else one float's.
std::size_t workspace_of_slabs(const Quantisation& quantisation);
SumsParams make_sums_params(const Quantisation& quantisation, float* sums);
/// For so many thread blocks.
SlabsParams make_slabs_params(std::span<const Quantisation> quantisations, const float* sums,
                              int blocks);
/// Slabs of all heads.
std::int64_t slabs_of(const Quantisation& quantisation);

/// How many of the blocks that run at once are launched: all, or, where that is nearly all, so many
/// that heads begin where steps do, and nobody waits for a head's last tile a step longer.
int blocks_of(const Quantisation& quantisation, int resident);

/// Those of a quantisation that has been checked, for so many blocks at once.
Params make_params(const Quantisation& quantisation, void* workspace, int blocks);

/// Tiles of all heads.
std::int64_t all_tiles(const Quantisation& quantisation);

/// Bytes of workspace, and how many of its first are zero before the kernel runs.
struct WorkspaceSize {
  std::size_t zeroed;
  std::size_t all;
};
WorkspaceSize workspace_size(const Quantisation& quantisation);

/// Quantisations of one head_dim and one source format that have been checked and have slabs, with
/// descales of blocks of rows, or given; those that rotate have one seed. A tensor with dots and
/// without dot_with has them with the mean of the one that smooths. Likewise.
template <Backend kBackend>
Status launch_slabs(std::span<const Quantisation> quantisations, const Device& device,
                    void* workspace, const gpu::Queue& queue);

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
