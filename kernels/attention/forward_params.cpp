#include "attention/forward_params.hpp"

#include "attention/online_softmax.hpp"

namespace fp8_sdpa::attention {
namespace {

const std::uint8_t* codes_of(const Tensor& tensor) {
  return static_cast<const std::uint8_t*>(tensor.data);
}

int tiles_of(const Problem& problem, int tile_m) {
  return static_cast<int>((problem.seq_q + tile_m - 1) / tile_m);
}

}  // namespace

ForwardParams forward_params(const Problem& problem, int tile_m) {
  ForwardParams p{};
  p.q = codes_of(problem.q);
  p.k = codes_of(problem.k);
  p.v = codes_of(problem.v);
  p.o = problem.o.data;
  p.lse = problem.lse;
  p.descale_q = problem.descales.q;
  p.descale_k = problem.descales.k;
  p.descale_v = problem.descales.v;
  p.q_strides = strides_of(problem.q, problem.batch, problem.heads_q, problem.seq_q);
  p.k_strides = strides_of(problem.k, problem.batch, problem.heads_kv, problem.seq_kv);
  p.v_strides = strides_of(problem.v, problem.batch, problem.heads_kv, problem.seq_kv);
  p.o_strides = strides_of(problem.o, problem.batch, problem.heads_q, problem.seq_q);
  p.heads = problem.heads_q;
  p.seq_q = static_cast<int>(problem.seq_q);
  p.seq_kv = static_cast<int>(problem.seq_kv);
  p.tiles_m = tiles_of(problem, tile_m);
  p.softmax_scale_log2 = problem.softmax_scale * kLog2E;
  p.input = problem.q.dtype;
  p.output = problem.o.dtype;
  return p;
}

unsigned forward_blocks(const Problem& problem, int tile_m) {
  return static_cast<unsigned>(tiles_of(problem, tile_m)) * static_cast<unsigned>(problem.batch) *
         static_cast<unsigned>(problem.heads_q);
}

}  // namespace fp8_sdpa::attention
