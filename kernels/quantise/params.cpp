#include "quantise/params.hpp"

#include <algorithm>

namespace fp8_sdpa::quantiser {
namespace {

/// Tiles that lie between two passes: more than blocks that a GPU runs at a time, so that nobody
/// waits long, and few enough that its L2 cache has them still (6 MB of bf16 at head_dim 128).
constexpr std::int64_t kTilesBetweenPasses = 384;

/// Words of the workspace, in this order.
struct Words {
  std::size_t ticket, tiles_done, amax;
  std::size_t tile_sums, mean;
};

/// splitmix64's output for a state (Steele, Lea and Flood, OOPSLA 2014, figure 17).
std::uint64_t splitmix64(std::uint64_t state) {
  state += 0x9e3779b97f4a7c15U;
  state = (state ^ state >> 30) * 0xbf58476d1ce4e5b9U;
  state = (state ^ state >> 27) * 0x94d049bb133111ebU;
  return state ^ state >> 31;
}

int pass_count(const Quantisation& q) {
  return 1 + static_cast<int>(q.smooth) + static_cast<int>(!q.static_descales);
}
std::int64_t tiles_of(const Quantisation& q) {
  const int rows = tile_rows(q.from.dtype, q.head_dim);
  return (q.seq + rows - 1) / rows;
}

Words words_of(const Quantisation& q) {
  const auto heads = static_cast<std::size_t>(q.batch) * static_cast<std::size_t>(q.heads);
  const auto tiles = heads * static_cast<std::size_t>(tiles_of(q));
  const auto dim = static_cast<std::size_t>(q.head_dim);
  return {.ticket = 1,
          .tiles_done = static_cast<std::size_t>(pass_count(q)) * heads,
          .amax = heads,
          .tile_sums = q.smooth ? tiles * dim : 0,
          .mean = q.smooth && q.mean == nullptr ? heads * dim : 0};
}

int lag_of(const Quantisation& q) {
  const std::int64_t tiles = tiles_of(q);
  const std::int64_t heads = std::int64_t{q.batch} * q.heads;
  return static_cast<int>(std::min(heads, (kTilesBetweenPasses + tiles - 1) / tiles));
}

}  // namespace

std::int64_t tickets_of(const Quantisation& q) {
  const std::int64_t passes = pass_count(q);
  const std::int64_t heads = std::int64_t{q.batch} * q.heads;
  return (heads + (passes - 1) * lag_of(q)) * passes * tiles_of(q);
}

WorkspaceSize workspace_size(const Quantisation& q) {
  const Words words = words_of(q);
  const std::size_t zeroed = words.ticket + words.tiles_done + words.amax;
  const std::size_t all = zeroed + words.tile_sums + words.mean;
  return {sizeof(std::uint32_t) * zeroed, sizeof(float) * all};
}

Params make_params(const Quantisation& q, void* workspace) {
  const Words words = words_of(q);
  const auto strides = [](const Tensor& tensor) {
    return Strides{tensor.stride_batch, tensor.stride_head, tensor.stride_seq};
  };
  Params p{};
  p.from = q.from.data;
  p.from_strides = strides(q.from);
  p.codes = static_cast<std::uint8_t*>(q.codes.data);
  p.codes_strides = strides(q.codes);
  p.descales = q.descales;
  p.ticket = static_cast<std::uint32_t*>(workspace);
  p.tiles_done = p.ticket + words.ticket;
  p.amax = p.tiles_done + words.tiles_done;
  p.tile_sums = reinterpret_cast<float*>(p.amax + words.amax);
  p.mean = q.mean != nullptr ? q.mean : p.tile_sums + words.tile_sums;
  p.infinities = q.infinities;
  p.dot_with = q.dot_with;
  p.dots = q.dots;
  p.dot_group = q.dot_group;
  p.seq = static_cast<int>(q.seq);
  p.heads = q.heads;
  p.all_heads = q.batch * q.heads;
  p.tiles = static_cast<int>(tiles_of(q));
  p.lag = lag_of(q);
  if (q.smooth) p.passes[p.pass_count++] = Pass::kMean;
  if (!q.static_descales) p.passes[p.pass_count++] = Pass::kAmax;
  p.passes[p.pass_count++] = Pass::kCodes;
  p.e5m2 = q.codes.dtype == Dtype::kE5M2;
  p.rotate = q.rotate;
  p.smooth = q.smooth;
  std::uint64_t word = q.seed;
  for (std::uint64_t& signs : p.signs) signs = splitmix64(word++);
  return p;
}

}  // namespace fp8_sdpa::quantiser
