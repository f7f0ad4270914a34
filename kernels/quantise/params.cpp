#include "quantise/params.hpp"

#include <algorithm>

namespace fp8_sdpa::quantiser {
namespace {

/// Steps from the last sums of a head to its mean, which is two reads and two atomics later.
constexpr int kStepsToMean = 3;

/// Words of the workspace, in this order. Of vectors each begins at a multiple of 16 bytes.
struct Words {
  std::size_t tiles_summed, groups_summed, amax;
  std::size_t tile_sums, group_sums, mean;
  std::size_t zeroed;  ///< of the first three
};

/// splitmix64's output for a state (Steele, Lea and Flood, OOPSLA 2014, figure 17).
std::uint64_t splitmix64(std::uint64_t state) {
  state += 0x9e3779b97f4a7c15U;
  state = (state ^ state >> 30) * 0xbf58476d1ce4e5b9U;
  state = (state ^ state >> 27) * 0x94d049bb133111ebU;
  return state ^ state >> 31;
}

std::int64_t tiles_of(const Quantisation& q) {
  const int rows = tile_rows(q.from.dtype, q.head_dim);
  return (q.seq + rows - 1) / rows;
}

std::int64_t groups_of(const Quantisation& q) { return (tiles_of(q) + kGroup - 1) / kGroup; }

Words words_of(const Quantisation& q) {
  const auto heads = static_cast<std::size_t>(q.batch) * static_cast<std::size_t>(q.heads);
  const auto tiles = heads * static_cast<std::size_t>(tiles_of(q));
  const auto groups = heads * static_cast<std::size_t>(groups_of(q));
  const auto dim = static_cast<std::size_t>(q.head_dim);
  Words words{.tiles_summed = q.smooth ? groups : 0,
              .groups_summed = q.smooth ? heads : 0,
              .amax = q.static_descales ? 0 : tiles,
              .tile_sums = q.smooth ? tiles * dim : 0,
              .group_sums = q.smooth ? groups * dim : 0,
              .mean = q.smooth && q.mean == nullptr ? heads * dim : 0,
              .zeroed = 0};
  words.zeroed = (words.tiles_summed + words.groups_summed + words.amax + 3) / 4 * 4;
  return words;
}

/// Steps between the first and the last block that have tiles of one head, at most.
int steps_apart(int tiles, int blocks) {
  if (tiles % blocks == 0 || blocks % tiles == 0) return (tiles - 1) / blocks;
  return (tiles + blocks - 2) / blocks;
}

/// A tile's codes are written so many steps after it was looked at: two more than other blocks need
/// to look at the others of its head, which is what the messengers take, and one to spare where
/// shared memory has room for it.
int lag_of(int apart) {
  const int least = apart + 2;
  return least < kSlots - kAhead ? least + 1 : least;
}

}  // namespace

int blocks_of(const Quantisation& q, int resident) {
  const std::int64_t tiles = tiles_of(q);
  const std::int64_t most = std::min<std::int64_t>(all_tiles(q), resident);
  const std::int64_t steps = (tiles + most - 1) / most;  // of a head
  const std::int64_t whole = steps > 1 ? tiles / steps : most / tiles * tiles;
  const bool is_whole = steps == 1 || tiles % steps == 0;
  return static_cast<int>(is_whole && 8 * whole >= 7 * most ? whole : most);
}

std::int64_t all_tiles(const Quantisation& q) {
  return std::int64_t{q.batch} * q.heads * tiles_of(q);
}

WorkspaceSize workspace_size(const Quantisation& q) {
  const Words words = words_of(q);
  const std::size_t all = words.zeroed + words.tile_sums + words.group_sums + words.mean;
  return {sizeof(std::uint32_t) * words.zeroed, sizeof(float) * std::max<std::size_t>(all, 1)};
}

namespace {

/// What no kernel needs a workspace for.
Params params_of_tensors(const Quantisation& q) {
  const auto strides = [](const Tensor& tensor) {
    return Strides{tensor.stride_batch, tensor.stride_head, tensor.stride_seq};
  };
  Params p{};
  p.from = q.from.data;
  p.from_strides = strides(q.from);
  p.codes = static_cast<std::uint8_t*>(q.codes.data);
  p.codes_strides = strides(q.codes);
  p.descales = q.descales;
  p.mean = q.mean;
  p.infinities = q.infinities;
  p.dot_with = q.dot_with;
  p.dots = q.dots;
  p.dot_group = q.dot_group;
  p.seq = static_cast<int>(q.seq);
  p.heads = attention::divisor(q.heads);
  p.all_heads = q.batch * q.heads;
  p.finds_amax = !q.static_descales;
  p.format = q.codes.dtype;
  p.largest = largest_code(q.codes.dtype);
  p.rotate = q.rotate;
  p.smooth = q.smooth;
  std::uint64_t word = q.seed;
  for (std::uint64_t& signs : p.signs) signs = splitmix64(word++);
  return p;
}

}  // namespace

Params make_params(const Quantisation& q, void* workspace, int blocks) {
  const Words words = words_of(q);
  Params p = params_of_tensors(q);
  p.tiles_summed = static_cast<std::uint32_t*>(workspace);
  p.groups_summed = p.tiles_summed + words.tiles_summed;
  p.amax = p.groups_summed + words.groups_summed;
  p.tile_sums = reinterpret_cast<float*>(p.tiles_summed + words.zeroed);
  p.group_sums = p.tile_sums + words.tile_sums;
  if (p.mean == nullptr) p.mean = p.group_sums + words.group_sums;
  p.tiles = static_cast<int>(tiles_of(q));
  p.groups = static_cast<int>(groups_of(q));
  p.all_tiles = static_cast<int>(all_tiles(q));
  p.steps = (p.all_tiles + blocks - 1) / blocks;
  const int apart = steps_apart(p.tiles, blocks);
  p.lag = p.finds_amax ? lag_of(apart) : 0;
  p.keeps = p.lag <= kSlots - kAhead;
  p.lead = q.smooth ? apart + 2 + kStepsToMean : 0;
  return p;
}

int shares_of(std::int64_t seq) {
  if (seq <= kOwnSumRows) return 0;
  return static_cast<int>(std::min<std::int64_t>((seq + kShareRows - 1) / kShareRows, kMaxShares));
}

SumsParams make_sums_params(const Quantisation& q, float* sums) {
  const int shares = shares_of(q.seq);
  return {params_of_tensors(q), sums, shares, static_cast<int>((q.seq + shares - 1) / shares)};
}

bool has_slabs(const Tensor& from, std::int64_t seq) {
  constexpr std::int64_t kMaxStrideBytes = std::int64_t{1} << 40;
  const auto has = [&](std::int64_t stride) {
    return stride < kMaxStrideBytes / size_of(from.dtype);
  };
  return (seq == 1 || (from.stride_seq > 0 && has(from.stride_seq))) && has(from.stride_head) &&
         has(from.stride_batch);
}

std::int64_t slabs_of(const Quantisation& q) {
  return std::int64_t{q.batch} * q.heads * ((q.seq + kSlabRows - 1) / kSlabRows);
}

std::size_t workspace_of_slabs(const Quantisation& q) {
  std::size_t floats = 1;
  if (q.smooth && shares_of(q.seq) > 0) {
    floats = static_cast<std::size_t>(q.batch) * static_cast<std::size_t>(q.heads) *
             static_cast<std::size_t>(shares_of(q.seq)) * static_cast<std::size_t>(q.head_dim);
  }
  return sizeof(float) * floats;
}

SlabsParams make_slabs_params(std::span<const Quantisation> all, const float* sums, int blocks) {
  SlabsParams params{};
  params.rotates = -1;
  int summed = -1;
  int shares = 0;
  const auto add = [&](const Quantisation& q) {
    Slab& slab = params.of[params.tensors];
    slab.tensor = params_of_tensors(q);
    const std::int64_t rows = q.block_rows != 0 ? q.block_rows : q.seq;
    slab.block_rows =
        static_cast<int>(q.block_rows != 0 ? rows : std::max<std::int64_t>(rows, kSlabRows));
    slab.blocks = static_cast<int>((q.seq + rows - 1) / rows);
    slab.slabs = attention::divisor(static_cast<int>((q.seq + kSlabRows - 1) / kSlabRows));
    slab.all = static_cast<int>(slabs_of(q));
    slab.of_block = slab.all / blocks;
    slab.left_over = slab.all % blocks;
    slab.summed = -1;
    if (q.rotate) params.rotates = params.tensors;
    if (q.smooth) {
      summed = params.tensors;
      shares = shares_of(q.seq);
    }
    ++params.tensors;
  };
  const auto needs_mean = [](const Quantisation& q) {
    return q.smooth || (q.dots != nullptr && q.dot_with == nullptr);
  };
  for (const Quantisation& q : all) {
    if (!needs_mean(q)) add(q);
  }
  const int first = params.tensors;
  for (const Quantisation& q : all) {
    if (needs_mean(q)) add(q);
  }
  for (int i = first; i < params.tensors; ++i) {
    params.of[i].summed = summed;
    params.of[i].shares = shares;
    params.of[i].sums = sums;
  }
  params.behind_sums = shares > 0;
  return params;
}

}  // namespace fp8_sdpa::quantiser
