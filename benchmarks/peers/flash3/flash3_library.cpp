// FlashAttention-3 behind flash3_abi.h. Fills the parameters as its mha_fwd does for tensors of one
// length; built by build.sh with FlashAttention's own headers, never with this project.
#include <cuda_runtime_api.h>
#include <cutlass/numeric_types.h>

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <memory>
#include <string>

#include "benchmarks/peers/flash3/flash3_abi.h"
#include "flash.h"
#include "heuristics.h"
#include "tile_size.h"

#ifndef FLASH3_SOURCE
#define FLASH3_SOURCE "unknown sources"
#endif

namespace {

constexpr int kMostSplits = 128;

std::string& last_error() {
  static thread_local std::string text;
  return text;
}

const char* fail(const std::string& text) {
  last_error() = text;
  return last_error().c_str();
}

const char* check(cudaError_t error, const char* what) {
  return error == cudaSuccess ? nullptr
                              : fail(std::string(what) + ": " + cudaGetErrorString(error));
}

struct Tile {
  int rows, keys;
};

/// Pages that TMA does not fetch.
bool gathers_pages(const Flash_fwd_params& params) {
  return params.page_table != nullptr && !params.pagedkv_tma;
}

Tile tile_of(const Flash_fwd_params& params) {
  const auto tile = tile_size_fwd_sm90(params.d_rounded, params.dv_rounded, params.is_causal,
                                       /*is_local=*/false, /*element_size=*/params.is_bf16 ? 2 : 1,
                                       /*v_colmajor=*/false, gathers_pages(params));
  return {std::get<0>(tile), std::get<1>(tile)};
}

int tiles(int size, int tile) { return (size + tile - 1) / tile; }

/// As get_num_splits(): its heuristics, asked with the rows of a group of query heads together.
int splits_of(const Flash_fwd_params& params) {
  const Tile tile = tile_of(params);
  const int row_tiles = tiles(params.seqlen_q * (params.h / params.h_k), tile.rows);
  const int kv_head_bytes = params.seqlen_k * (params.d + params.dv);
  // Of sequences of lengths of their own it asks for the most that one may need.
  const int sequences = params.seqused_k != nullptr ? 1 : params.b;
  return num_splits_heuristic(sequences * params.h_k * row_tiles, params.num_sm,
                              tiles(params.seqlen_k, tile.keys), row_tiles, kv_head_bytes,
                              params.is_causal, kMostSplits);
}

/// As get_pagedkv_tma().
bool fetches_pages(const Flash_fwd_params& params) {
  if (params.page_table == nullptr) return false;
  const Tile tile = tile_of(params);
  return params.page_size % tile.keys == 0 && params.seqlen_q * (params.h / params.h_k) > tile.rows;
}

/// As get_pack_gqa().
bool packs_gqa(const Flash_fwd_params& params) {
  if (params.num_splits > 1 || gathers_pages(params)) return true;
  if (params.h == params.h_k) return false;
  return should_pack_gqa(/*varlen_q=*/false, params.seqlen_q, params.h / params.h_k,
                         tile_of(params).rows);
}

template <int kDim>
void run_forward(Flash_fwd_params& params, cudaStream_t stream) {
  if (params.is_bf16) {
    run_mha_fwd_<90, cutlass::bfloat16_t, kDim, kDim, false, false, false, false>(params, stream);
    return;
  }
  using Element = cutlass::float_e4m3_t;
  if (gathers_pages(params)) {
    if (params.num_splits > 1) {
      run_mha_fwd_<90, Element, kDim, kDim, true, true, false, true>(params, stream);
    } else {
      run_mha_fwd_<90, Element, kDim, kDim, false, true, false, true>(params, stream);
    }
  } else if (params.num_splits > 1) {
    run_mha_fwd_<90, Element, kDim, kDim, true, false, false, true>(params, stream);
  } else if (params.pack_gqa) {
    run_mha_fwd_<90, Element, kDim, kDim, false, false, false, true>(params, stream);
  } else {
    run_mha_fwd_<90, Element, kDim, kDim, false, false, false, false>(params, stream);
  }
}

void run_combine(Flash_fwd_params& params, cudaStream_t stream) {
  if (params.dv <= 64) {
    run_mha_fwd_combine_<cutlass::bfloat16_t, float, 64>(params, stream, /*enable_pdl=*/true);
  } else {
    run_mha_fwd_combine_<cutlass::bfloat16_t, float, 128>(params, stream, /*enable_pdl=*/true);
  }
}

void set_tensors(const Flash3Problem& problem, Flash_fwd_params& params) {
  params.q_ptr = const_cast<void*>(problem.q);
  params.k_ptr = const_cast<void*>(problem.k);
  params.v_ptr = const_cast<void*>(problem.v);
  params.o_ptr = problem.o;
  params.q_batch_stride = problem.q_strides.batch;
  params.q_head_stride = problem.q_strides.head;
  params.q_row_stride = problem.q_strides.row;
  params.k_batch_stride = problem.k_strides.batch;
  params.k_head_stride = problem.k_strides.head;
  params.k_row_stride = problem.k_strides.row;
  params.v_batch_stride = problem.v_strides.batch;
  params.v_head_stride = problem.v_strides.head;
  params.v_row_stride = problem.v_strides.row;
  params.v_dim_stride = 1;
  params.o_batch_stride = problem.o_strides.batch;
  params.o_head_stride = problem.o_strides.head;
  params.o_row_stride = problem.o_strides.row;
  params.q_descale_ptr = const_cast<float*>(problem.q_descale);
  params.k_descale_ptr = const_cast<float*>(problem.k_descale);
  params.v_descale_ptr = const_cast<float*>(problem.v_descale);
  params.q_descale_batch_stride = problem.q_descale_strides[0];
  params.q_descale_head_stride = problem.q_descale_strides[1];
  params.k_descale_batch_stride = problem.k_descale_strides[0];
  params.k_descale_head_stride = problem.k_descale_strides[1];
  params.v_descale_batch_stride = problem.v_descale_strides[0];
  params.v_descale_head_stride = problem.v_descale_strides[1];
}

void set_sizes(const Flash3Problem& problem, Flash_fwd_params& params) {
  constexpr int kRound = 128;
  const bool is_paged = problem.block_table != nullptr;
  params.b = params.b_k = problem.batch;
  params.h = problem.heads_q;
  params.h_k = problem.heads_kv;
  params.seqlen_q = problem.seq_q;
  params.seqlen_k = problem.seq_kv;
  params.seqlen_q_rounded = tiles(problem.seq_q, kRound) * kRound;
  params.seqlen_k_rounded = tiles(problem.seq_kv, kRound) * kRound;
  params.total_q = problem.batch * problem.seq_q;
  params.total_k = problem.batch * problem.seq_kv;
  params.d = params.d_rounded = params.dv = params.dv_rounded = problem.head_dim;
  params.page_table = const_cast<int*>(problem.block_table);
  params.page_table_batch_stride = problem.max_pages;
  params.page_size = is_paged ? problem.page_size : 1;
  params.num_pages = is_paged ? problem.pages : 0;
  params.seqused_k = const_cast<int*>(problem.seqused_kv);
  params.scale_softmax = problem.softmax_scale;
  params.p_dropout = params.rp_dropout = 1;
  params.p_dropout_in_uint8_t = 255;
  params.is_e4m3 = problem.is_bf16 == 0;
  params.is_bf16 = !params.is_e4m3;
  // One row sees every key under either mask; paged, its tile of head_dim 128 is the causal one.
  const bool is_causal_tile = problem.seq_q > 1 || (is_paged && problem.head_dim == 128);
  params.is_causal = problem.causal != 0 && is_causal_tile;
  params.window_size_left = problem.seq_kv - 1;
  params.window_size_right = params.is_causal ? 0 : problem.seq_q - 1;
  params.varlen_sort_batches = true;
  params.head_swizzle = params.is_causal;
}

}  // namespace

struct Flash3Plan {
  Flash_fwd_params params{};
  char* memory = nullptr;

  ~Flash3Plan() { static_cast<void>(cudaFree(memory)); }

  /// One allocation: the semaphore of the tile scheduler, what is counted of each sequence (as
  /// mha_fwd's scheduler_metadata), partial results of splits, an LSE where the caller wants none.
  const char* allocate(const Flash3Problem& problem) {
    constexpr std::size_t kAlignment = 256;
    const std::size_t rows = std::size_t{1} * problem.batch * problem.heads_q * problem.seq_q;
    const std::size_t parts = params.num_splits > 1 ? params.num_splits : 0;
    const auto up = [](std::size_t bytes) {
      return (bytes + kAlignment - 1) / kAlignment * kAlignment;
    };
    constexpr int kBatchRound = 4;
    constexpr int kCounts = 4;
    const int batch = tiles(params.b, kBatchRound) * kBatchRound;
    const std::size_t lse = kAlignment + up(std::size_t{kCounts} * batch * sizeof(int));
    const std::size_t lse_parts = lse + (problem.lse == nullptr ? up(rows * sizeof(float)) : 0);
    const std::size_t o_parts = lse_parts + up(parts * rows * sizeof(float));
    const std::size_t end = o_parts + parts * rows * problem.head_dim * sizeof(float);
    void* allocated = nullptr;
    if (const char* error = check(cudaMalloc(&allocated, end), "its workspace")) return error;
    memory = static_cast<char*>(allocated);
    params.softmax_lse_ptr =
        problem.lse != nullptr ? static_cast<void*>(problem.lse) : memory + lse;
    if (params.seqused_k != nullptr || (params.is_causal && params.num_splits == 1)) {
      params.tile_count_semaphore = reinterpret_cast<int*>(memory);
    }
    if (params.seqused_k != nullptr) {
      params.num_splits_dynamic_ptr = reinterpret_cast<int*>(memory + kAlignment);
      params.num_m_blocks_ptr = params.num_splits_dynamic_ptr + batch;
      params.varlen_batch_idx_ptr = params.num_m_blocks_ptr + batch;
      params.num_nheads_in_l2_ptr =
          params.head_swizzle ? params.varlen_batch_idx_ptr + batch : nullptr;
    }
    if (parts == 0) return nullptr;
    params.softmax_lseaccum_ptr = memory + lse_parts;
    params.oaccum_ptr = memory + o_parts;
    params.lseaccum_head_stride = problem.seq_q;
    params.lseaccum_batch_stride = params.lseaccum_head_stride * problem.heads_q;
    params.lseaccum_split_stride = params.lseaccum_batch_stride * problem.batch;
    params.oaccum_row_stride = problem.head_dim;
    params.oaccum_head_stride = params.lseaccum_head_stride * problem.head_dim;
    params.oaccum_batch_stride = params.lseaccum_batch_stride * problem.head_dim;
    params.oaccum_split_stride = params.lseaccum_split_stride * problem.head_dim;
    return nullptr;
  }
};

namespace {

/// As get_scheduler_metadata(): a server asks once a step, for all layers.
const char* count_work(Flash_fwd_params& params) {
  if (params.seqused_k == nullptr) return nullptr;
  const Tile tile = tile_of(params);
  prepare_varlen_num_blocks(params, /*stream=*/nullptr, params.pack_gqa, tile.rows, tile.keys,
                            /*enable_pdl=*/false);
  params.skip_scheduler_metadata_computation = true;
  return check(cudaDeviceSynchronize(), "its scheduler");
}

const char* prepare(const Flash3Problem* problem, Flash3Plan** out) {
  const int dim = problem->head_dim;
  if (dim != 64 && dim != 128 && dim != 256)
    return fail("it is built for head_dim 64, 128 and 256");
  int device = 0;
  cudaDeviceProp properties{};
  if (const char* error = check(cudaGetDevice(&device), "the device")) return error;
  if (const char* error = check(cudaGetDeviceProperties(&properties, device), "the device")) {
    return error;
  }
  if (properties.major != 9) return fail("its kernels are for sm_90");
  if (problem->is_bf16 != 0 &&
      (problem->block_table != nullptr || problem->heads_q != problem->heads_kv)) {
    return fail("in bf16 it is built for dense K and V of as many heads as Q");
  }
  auto plan = std::make_unique<Flash3Plan>();
  Flash_fwd_params& params = plan->params;
  set_tensors(*problem, params);
  set_sizes(*problem, params);
  params.arch = properties.major * 10 + properties.minor;
  params.num_sm = properties.multiProcessorCount;
  params.pagedkv_tma = fetches_pages(params);
  params.num_splits = problem->never_split != 0 || params.is_bf16 ? 1 : splits_of(params);
  params.pack_gqa = packs_gqa(params);
  if (const char* error = plan->allocate(*problem)) return error;
  if (const char* error = count_work(params)) return error;
  *out = plan.release();
  return nullptr;
}

const char* launch(const Flash3Plan* plan, void* on) {
  auto* stream = static_cast<cudaStream_t>(on);
  Flash_fwd_params params = plan->params;
  if (params.tile_count_semaphore != nullptr) {
    const auto error = cudaMemsetAsync(params.tile_count_semaphore, 0, sizeof(int), stream);
    if (error != cudaSuccess) return check(error, "its semaphore");
  }
  switch (params.d) {
    case 64: run_forward<64>(params, stream); break;
    case 128: run_forward<128>(params, stream); break;
    default: run_forward<256>(params, stream);
  }
  if (params.num_splits > 1) {
    params.is_bf16 = true;  // of the output
    run_combine(params, stream);
  }
  return check(cudaGetLastError(), "its launch");
}

void release(Flash3Plan* plan) { delete plan; }

int splits(const Flash3Plan* plan) { return plan->params.num_splits; }

}  // namespace

extern "C" __attribute__((visibility("default"))) const Flash3Functions flash3_functions = {
    kFlash3Abi, FLASH3_SOURCE, prepare, launch, release, splits};
