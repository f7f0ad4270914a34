// Partial results become one: of the key groups of a block, through shared memory, and of the
// splits of a sequence, through the workspace, by the block that arrives last.
//
//   m <- max_j m_j;  a_j <- exp2(m_j - m);  l <- sum_j a_j l_j;  O <- sum_j a_j O_j
//   O <- O * descale_v / l;  LSE <- (m + log2 l) ln 2
//
// j goes up: bits do not depend on who came when. Parts lie as accumulators do, each lane's four
// values together: no two lanes ever want the same bank, and nothing is turned round on the way.
#pragma once

#include <cstdint>

#include "attention/output.hpp"
#include "attention/register_softmax.hpp"
#include "attention/tagged_count.hpp"
#include "decode/params.hpp"

namespace fp8_sdpa::decode {

/// Where row h's head begins among a tile's dims, in units of 16: of two heads, row g is of the
/// first and row g + 8 of the second. What a row has of the other head's dims is nobody's.
template <class S>
GPU_FN constexpr int first_sixteen(int h) {
  return S::kHeads > 1 ? h * (S::kHeadDim / 16) : 0;
}

/// Whether any of rows 8 to 15 of a warp exists.
template <class S>
GPU_FN bool has_upper_rows(const Work& work, int row_group) {
  return S::kHeads > 1 || row_group * kWarpRows + kWarpRows / 2 < work.rows;
}

/// What a lane has of its warp's 16 rows, g and g + 8 (h): m in units of log2(e), l of the whole
/// row, and O, tiles 2 b and 2 b + 1 with the even and the odd dims of 16 b .. 16 b + 15.
template <class S>
struct RowsOfLane {
  attention::RowState state[2];
  float o[S::kTileDim / 8][4];

  /// Dims 16 b + 4 t to + 3 of row h, in its head.
  GPU_FN float4 four(int b, int h) const {
    const float(&even)[4] = o[2 * (first_sixteen<S>(h) + b)];
    const float(&odd)[4] = o[2 * (first_sixteen<S>(h) + b) + 1];
    return make_float4(even[2 * h], odd[2 * h], even[2 * h + 1], odd[2 * h + 1]);
  }
  GPU_FN void set_four(int b, int h, const float4& four) {
    float(&even)[4] = o[2 * (first_sixteen<S>(h) + b)];
    float(&odd)[4] = o[2 * (first_sixteen<S>(h) + b) + 1];
    even[2 * h] = four.x;
    odd[2 * h] = four.y;
    even[2 * h + 1] = four.z;
    odd[2 * h + 1] = four.w;
  }
};

/// Adds parts of a row to what is there. Those that do not exist are {} and zero.
template <int kParts>
GPU_FN void merge(attention::RowState& state, float4& o, const attention::RowState (&part)[kParts],
                  const float4 (&part_o)[kParts]) {
  float max = state.max;
#pragma unroll
  for (int j = 0; j < kParts; ++j) max = gpu::max_nan(max, part[j].max);
  const float a = attention::rescale_factor(state.max, max);
  state = {max, state.sum * a};
  o = make_float4(o.x * a, o.y * a, o.z * a, o.w * a);
#pragma unroll
  for (int j = 0; j < kParts; ++j) {
    const float b = attention::rescale_factor(part[j].max, max);
    state.sum = gpu::fma(part[j].sum, b, state.sum);
    o = make_float4(gpu::fma(part_o[j].x, b, o.x), gpu::fma(part_o[j].y, b, o.y),
                    gpu::fma(part_o[j].z, b, o.z), gpu::fma(part_o[j].w, b, o.w));
  }
}

/// Of the key groups but the first: (key group - 1, row group, b, h, lane), and (.., row).
template <class S>
struct GroupParts {
  float4 o[S::kKeyGroups - 1][S::kRowGroups][S::kHeadDim / 16][2][gpu::kWarpSize];
  attention::RowState rows[S::kKeyGroups - 1][S::kRows];
};

template <class S>
GPU_FN void write_part(GroupParts<S>& to, const Work& work, int group, int row_group,
                       const RowsOfLane<S>& part) {
#pragma unroll
  for (int h = 0; h < 2; ++h) {
    if (S::kRowGroups == 1 && h == 1 && !has_upper_rows<S>(work, row_group)) break;
#pragma unroll
    for (int b = 0; b < S::kHeadDim / 16; ++b) {
      to.o[group][row_group][b][h][gpu::lane_idx()] = part.four(b, h);
    }
    const int row = row_group * kWarpRows + gpu::lane_idx() / 4 + 8 * h;
    if (gpu::lane_idx() % 4 == 0) to.rows[group][row] = part.state[h];
  }
}

/// The other key groups' parts of this warp's rows, added to its own.
template <class S>
GPU_FN void add_parts(const GroupParts<S>& from, const Work& work, int row_group,
                      RowsOfLane<S>& rows) {
#pragma unroll
  for (int h = 0; h < 2; ++h) {
    if (S::kRowGroups == 1 && h == 1 && !has_upper_rows<S>(work, row_group)) break;
    const int row = row_group * kWarpRows + gpu::lane_idx() / 4 + 8 * h;
    attention::RowState part[S::kKeyGroups - 1];
#pragma unroll
    for (int group = 0; group < S::kKeyGroups - 1; ++group) part[group] = from.rows[group][row];
    attention::RowState state;
#pragma unroll
    for (int b = 0; b < S::kHeadDim / 16; ++b) {
      state = rows.state[h];
      float4 sum = rows.four(b, h);
      float4 part_o[S::kKeyGroups - 1];
#pragma unroll
      for (int group = 0; group < S::kKeyGroups - 1; ++group) {
        part_o[group] = from.o[group][row_group][b][h][gpu::lane_idx()];
      }
      merge(state, sum, part, part_o);
      rows.set_four(b, h, sum);
    }
    rows.state[h] = state;
  }
}

/// A merge asks for it before it reads the splits, for memory answers late.
GPU_FN float v_descale_of(const Params& p, const Work& work, int kv_head) {
  return p.descale_v[static_cast<std::int64_t>(work.batch) * p.heads_kv + kv_head];
}

/// The lane's four of 16 dims of a row of O, and with the first of all the row's LSE.
GPU_FN void store(const Params& p, const Work& work, const Row& row, int sixteen, float v_descale,
                  const attention::RowState& state, const float4& sum) {
  const int dim = gpu::lane_idx() % 4 * 4;
  float scale = attention::output_scale(state, v_descale);
  if (p.output == Dtype::kE4M3) scale /= *p.o_scale;
  std::uint16_t* const out =
      attention::row_pointer(static_cast<std::uint16_t*>(p.o), p.o_strides, work.batch, row.head,
                             work.sequence.first_query + row.query);
  attention::store_four(out + dim / attention::elements_of_word(p.output), 16 * sixteen,
                        make_float4(sum.x * scale, sum.y * scale, sum.z * scale, sum.w * scale),
                        p.output);
  if (p.lse == nullptr || sixteen != 0 || dim != 0) return;
  const int heads = p.heads_kv * p.group.value;
  p.lse[attention::first_lse(p.sequences, work.sequence, heads, work.batch, row.head) + row.query] =
      attention::log_sum_exp(state);
}

/// This warp's rows of the whole sequence.
template <class S>
GPU_FN void store_rows(const Params& p, const Work& work, int row_group,
                       const RowsOfLane<S>& rows) {
#pragma unroll
  for (int h = 0; h < 2; ++h) {
    const Row row = row_of(p, work, row_group * kWarpRows + gpu::lane_idx() / 4 + 8 * h);
    if (!row.exists) continue;
    const float v_descale = v_descale_of(p, work, row.kv_head);
#pragma unroll
    for (int b = 0; b < S::kHeadDim / 16; ++b) {
      store(p, work, row, b, v_descale, rows.state[h], rows.four(b, h));
    }
  }
}

/// Where lane's four of (split, row group, b, h) are in Splits::o.
template <class S>
GPU_FN std::int64_t place_of(std::int64_t index, int row_group, int b, int h) {
  return (((index * S::kRowGroups + row_group) * (S::kHeadDim / 16) + b) * 2 + h) * gpu::kWarpSize +
         gpu::lane_idx();
}

/// This warp's rows of the block's split.
template <class S>
GPU_FN void write_split(const Params& p, const Work& work, int row_group,
                        const RowsOfLane<S>& rows) {
  const std::int64_t index = static_cast<std::int64_t>(work.unit) * p.splits.value + work.split;
#pragma unroll
  for (int h = 0; h < 2; ++h) {
    const int row = row_group * kWarpRows + gpu::lane_idx() / 4 + 8 * h;
    if (!row_of(p, work, row).exists) continue;
#pragma unroll
    for (int b = 0; b < S::kHeadDim / 16; ++b) {
      p.to.o[place_of<S>(index, row_group, b, h)] = rows.four(b, h);
    }
    if (gpu::lane_idx() % 4 == 0) p.to.rows[index * S::kRows + row] = rows.state[h];
  }
}

/// Counts this block in at its tile of rows, by one thread; whether it is the last of the splits.
/// The last leaves the count at none, for the next launch.
GPU_FN bool arrives_last(const Params& p, const Work& work) {
  std::uint64_t* const word = p.to.arrived + work.unit;
  const std::uint64_t none = attention::no_count(p.tag);
  const bool last = attention::count_up(word, none) == static_cast<std::uint64_t>(work.splits) - 1;
  if (last) *word = none;
  return last;
}

/// All splits of the sequence, in their order, by all warps of the last block: so many at a time,
/// and so many dims of a row, that the latency of reading one is not paid for each.
template <class S>
GPU_FN void merge_splits(const Params& p, const Work& work) {
  constexpr int kAtOnce = 16;
  constexpr int kTogether = 2;  // sixteens of dims
  constexpr int kOfRow = S::kHeadDim / 16 / kTogether;
  const std::int64_t first = static_cast<std::int64_t>(work.unit) * p.splits.value;
#pragma unroll 1
  for (int i = gpu::warp_idx(); i < S::kRowGroups * 2 * kOfRow; i += S::kWarps) {
    const int row_group = i / (kOfRow * 2);
    const int h = i / kOfRow % 2;  // rows 8 to 15 may be none: each warp has of rows 0 to 7 then
    const int b = i % kOfRow * kTogether;
    const int in_tile = row_group * kWarpRows + gpu::lane_idx() / 4 + 8 * h;
    const Row row = row_of(p, work, in_tile);
    if (!row.exists) continue;
    const float v_descale = v_descale_of(p, work, row.kv_head);
    attention::RowState state;
    float4 sum[kTogether] = {};
#pragma unroll 1
    for (int split = 0; split < work.splits; split += kAtOnce) {
      attention::RowState part[kAtOnce];
      float4 part_o[kTogether][kAtOnce] = {};
#pragma unroll
      for (int j = 0; j < kAtOnce; ++j) {
        if (split + j >= work.splits) continue;
        const std::int64_t index = first + split + j;
        part[j] = p.to.rows[index * S::kRows + in_tile];
#pragma unroll
        for (int k = 0; k < kTogether; ++k) {
          part_o[k][j] = p.to.o[place_of<S>(index, row_group, b + k, h)];
        }
      }
      const attention::RowState before = state;
#pragma unroll
      for (int k = 0; k < kTogether; ++k) {
        state = before;
        merge(state, sum[k], part, part_o[k]);
      }
    }
#pragma unroll
    for (int k = 0; k < kTogether; ++k) {
      store(p, work, row, b + k, v_descale, state, sum[k]);
    }
  }
}

}  // namespace fp8_sdpa::decode
