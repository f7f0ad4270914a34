#include <climits>
#include <string>
#include <utility>

#include "attention/few_keys.hpp"
#include "attention/sequences.hpp"
#include "attention/tagged_count.hpp"
#include "sm90/sm90.hpp"
#include "sm90/work/schedule.hpp"

namespace fp8_sdpa::sm90 {
namespace {

std::string number(std::int64_t x) { return std::to_string(x); }

Status check_formats(const std::string& name, const Problem& p, const Config& config) {
  if (config.int8()) {
    const Dtype v = config.formats == Formats::kInt8Half ? Dtype::kHalf : Dtype::kBFloat16;
    if (p.q.dtype == Dtype::kInt8 && p.v.dtype == v) return {};
    return unsupported(name + " serves int8 q and k and " + name_of(v) + " v, not " +
                       name_of(p.q.dtype) + " and " + name_of(p.v.dtype));
  }
  if (p.k.dtype != p.q.dtype || p.v.dtype != p.q.dtype) {
    return unsupported(name + " serves one FP8 format for q, k and v, not " + name_of(p.q.dtype) +
                       ", " + name_of(p.k.dtype) + " and " + name_of(p.v.dtype));
  }
  if (p.q.dtype != Dtype::kE4M3) {
    return unsupported(name + " serves e4m3, not " + name_of(p.q.dtype));
  }
  return {};
}

/// TMA walks in strides below 2^40 bytes; a broadcast sequence would be one of equal rows. The
/// stride of an axis of size 1 is not looked at.
Status check_map(const std::string& name, const char* tensor, const Tensor& t, bool transposed,
                 const Problem& p, int heads, const attention::RowsOf& of) {
  constexpr std::int64_t kMaxStride = std::int64_t{1} << 40;
  const std::int64_t rows = transposed ? p.head_dim : of.seq;
  const std::int64_t row_stride = transposed ? t.stride_dim : t.stride_seq;
  for (const auto& [size, stride] :
       {std::pair<std::int64_t, std::int64_t>{of.batch, t.stride_batch},
        {heads, t.stride_head},
        {rows, row_stride}}) {
    if (size > 1 && stride >= kMaxStride / size_of(t.dtype)) {
      return unsupported(name + " serves strides below 2^40 bytes, not " +
                         number(stride * size_of(t.dtype)) + " in " + tensor);
    }
  }
  if (rows > 1 && row_stride == 0) {
    return unsupported(name + " serves no broadcast rows (stride 0) in " + tensor);
  }
  return {};
}

Status check_sizes(const std::string& name, const Problem& p, const Config& config) {
  constexpr std::int64_t kMaxSeq = INT_MAX / 2;
  if (p.seq_q > kMaxSeq || p.seq_kv > kMaxSeq) {
    return unsupported(name + " serves sequences up to " + number(kMaxSeq) + ", not " +
                       number(p.seq_q) + " and " + number(p.seq_kv));
  }
  const std::int64_t tiles = (p.seq_q + config.tile_m() - 1) / config.tile_m();
  if (p.batch > kMaxWorkTiles / p.heads_q || tiles > kMaxWorkTiles / (p.batch * p.heads_q)) {
    return unsupported(name + " serves at most " + number(kMaxWorkTiles) + " tiles of " +
                       number(config.tile_m()) + " query rows");
  }
  const std::int64_t kv_tiles = (p.seq_kv + config.tile_n - 1) / config.tile_n;
  constexpr int kMaxSplits = 2;  // of a tile, a block each
  if (config.v_in_workspace() &&
      kv_tiles * kMaxSplits > kMaxWorkTiles / (std::int64_t{p.batch} * p.heads_kv)) {
    return unsupported(name + " serves at most " + number(kMaxWorkTiles) + " tiles of " +
                       number(config.tile_n) + " keys");
  }
  // Tile ranges are as many as work tiles and a few a block.
  constexpr std::int64_t kMaxUnits = (1 << attention::kCountBits) - (1 << 16);
  const std::int64_t units = kv_tiles * p.batch * p.heads_kv * (p.head_dim / unit_dims(p.head_dim));
  if (config.transposes_once() && units + tiles * p.batch * p.heads_q > kMaxUnits) {
    return unsupported(name + " serves at most " + number(kMaxUnits) + " units of V (" +
                       number(config.tile_n) + " keys) and tiles of query rows together");
  }
  return {};
}

std::string served_head_dims(const TileShape& asked) {
  std::string text;
  for (const TileShape& shape : kTileShapes) {
    const bool first =
        shape.head_dim != 0 && text.find(number(shape.head_dim)) == std::string::npos;
    if (shape.variant == asked.variant && first)
      text += (text.empty() ? "" : ", ") + number(shape.head_dim);
  }
  return text;
}

/// What the device alone knows: work/ragged.cuh.
Status check_ragged(const std::string& name, const Problem& p, const Config& config) {
  if (p.v.stride_dim != 1) {
    return unsupported(name + " serves a row-major v (stride_dim 1), not stride_dim " +
                       number(p.v.stride_dim));
  }
  if (p.pages.block_table == nullptr) return {};
  constexpr int kSwizzleRows = 8;  // a box lies where its swizzle begins
  const int page = p.pages.page_size;
  const bool whole = page % config.tile_n == 0 || config.tile_n % page == 0;
  if (page >= kSwizzleRows && whole) return {};
  return unsupported(name + " serves pages of " + number(kSwizzleRows) + " keys or more that " +
                     number(config.tile_n) +
                     " is a multiple of, or that are multiples of it, not of " + number(page));
}

Status check_keys(const std::string& name, const TileShape& shape, const Problem& p) {
  if (shape.config.int8()) return {};
  const bool few = p.seq_kv <= attention::kMaxKeysOfTwoTerms;
  if (few == shape.config.two_terms) return {};
  return unsupported(name + " serves " + (few ? "more than " : "at most ") +
                     number(attention::kMaxKeysOfTwoTerms) + " keys, not " + number(p.seq_kv));
}

}  // namespace

Status supports(const TileShape& shape, const Problem& p, const Device& device) {
  const std::string name(shape.variant);
  if (shape.head_dim != p.head_dim) {
    return unsupported(name + " serves head_dim " + served_head_dims(shape) + ", not " +
                       number(p.head_dim));
  }
  // Only sm_90 itself: sm_90a code runs nowhere else.
  if (device.backend == Backend::kDevice && device.sm_version != kMinSmVersion) {
    return unsupported(name + " needs sm_90; " + device.name + " is sm_" +
                       number(device.sm_version));
  }
  if (Status s = check_formats(name, p, shape.config); !s.ok()) return s;
  if (Status s = check_keys(name, shape, p); !s.ok()) return s;
  if (shape.sums == Sums::rounded && p.lse != nullptr && p.lse_sum == LseSum::kExact) {
    return unsupported(name + " gives no LSE of exact sums at head_dim " + number(p.head_dim) +
                       ": its row sums are of rounded weights");
  }
  const bool transposed = p.v.stride_dim != 1;
  if (transposed && shape.config.int8()) {
    return unsupported(name + " serves a row-major v (stride_dim 1), not stride_dim " +
                       number(p.v.stride_dim));
  }
  const attention::RowsOf q = attention::rows_of_q(p);
  const attention::RowsOf kv = attention::rows_of_kv(p);
  if (Status s = check_map(name, "q", p.q, false, p, p.heads_q, q); !s.ok()) return s;
  if (Status s = check_map(name, "k", p.k, false, p, p.heads_kv, kv); !s.ok()) return s;
  if (Status s = check_map(name, "v", p.v, transposed, p, p.heads_kv, kv); !s.ok()) return s;
  if (Status s = check_sizes(name, p, shape.config); !s.ok()) return s;
  return shape.config.ragged ? check_ragged(name, p, shape.config) : Status{};
}

}  // namespace fp8_sdpa::sm90
