#include <climits>
#include <string>

#include "attention/head_view.hpp"
#include "attention/query_codes.hpp"
#include "decode/cost_model.hpp"
#include "decode/decode.hpp"
#include "dispatch/compiled_archs.hpp"

namespace fp8_sdpa::decode {
namespace {

const std::string kName = "decode_split_kv";

Status check_formats(const Problem& p) {
  if (p.k.dtype != p.q.dtype || p.v.dtype != p.q.dtype) {
    return unsupported(kName + " serves one FP8 format for q, k and v, not " + name_of(p.q.dtype) +
                       ", " + name_of(p.k.dtype) + " and " + name_of(p.v.dtype));
  }
  if (p.v.stride_dim != 1) {
    return unsupported(kName + " serves a row-major v (stride_dim 1), not stride_dim " +
                       std::to_string(p.v.stride_dim));
  }
  return {};
}

}  // namespace

Status supports(const Problem& p, const Device& device) {
  if (Status s = detail::check_has_code(kName, kMinSmVersion, device); !s.ok()) return s;
  if (p.head_dim != 64 && p.head_dim != 128 && p.head_dim != 256) {
    return unsupported(kName + " serves head_dim 64, 128 and 256, not " +
                       std::to_string(p.head_dim));
  }
  if (Status s = check_formats(p); !s.ok()) return s;
  const std::int64_t group = p.heads_q / p.heads_kv;
  if (p.seq_q > kMaxRows / group && !attention::is_ragged_or_paged(p)) {
    return unsupported(kName + " serves at most " + std::to_string(kMaxRows) +
                       " query rows of a KV head of whole tensors, not " + std::to_string(p.seq_q) +
                       " * " + std::to_string(group) + " (seq_q * heads_q / heads_kv)");
  }
  constexpr std::int64_t kMaxRowsOfHead = INT_MAX / 2;
  if (p.seq_q > kMaxRowsOfHead / group) {
    return unsupported(kName + " serves at most " + std::to_string(kMaxRowsOfHead) +
                       " query rows of a KV head, not " + std::to_string(p.seq_q) + " * " +
                       std::to_string(group) + " (seq_q * heads_q / heads_kv)");
  }
  constexpr std::int64_t kMaxKeys = INT_MAX / 2;
  if (p.seq_kv > kMaxKeys) {
    return unsupported(kName + " serves sequences up to " + std::to_string(kMaxKeys) + ", not " +
                       std::to_string(p.seq_kv));
  }
  constexpr std::int64_t kMaxReach = std::int64_t{1} << 36;  // RowChunks
  const attention::RowsOf kv = attention::rows_of_kv(p);
  for (const Tensor* tensor : {&p.k, &p.v}) {
    const attention::Strides strides = attention::strides_of(*tensor, kv.batch, p.heads_kv, kv.seq);
    const std::int64_t last = (kv.batch - 1) * strides.batch + (p.heads_kv - 1) * strides.head +
                              (kv.seq - 1) * strides.seq;
    if (last <= kMaxReach - p.head_dim) continue;
    return unsupported(kName + " serves k and v of up to 64 GiB, not of " +
                       std::to_string(last + p.head_dim) + " bytes");
  }
  // Splits are shared out so that there are few more blocks than that.
  constexpr std::int64_t kMaxTiles = 1 << 28;
  const std::int64_t heads = std::int64_t{p.batch} * p.heads_kv;
  if (row_tiles(p) > kMaxTiles / heads) {
    return unsupported(kName + " serves at most " + std::to_string(kMaxTiles) + " tiles of " +
                       std::to_string(kMaxRows) + " rows of all KV heads, not " +
                       std::to_string(heads) + " * " + std::to_string(row_tiles(p)));
  }
  return {};
}

}  // namespace fp8_sdpa::decode
