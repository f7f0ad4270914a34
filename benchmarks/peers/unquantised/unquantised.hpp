// From bf16 to bf16 in one call, the quantisation counted, beside cuDNN's and FlashAttention-3's
// attention: errors against fp64 attention of the bf16 tensors, and times.
#pragma once

#include <cstdint>
#include <functional>
#include <nlohmann/json.hpp>
#include <vector>

#include "benchmarks/run/runner.hpp"
#include "fp8_sdpa/device.hpp"
#include "fp8_sdpa/status.hpp"
#include "reference/inputs/shape.hpp"

namespace fp8_sdpa::bench {

/// What is measured: 2 batches of 16 heads (8 at head_dim 256), 4k, 8k and 16k keys, both masks, of
/// FlashAttention-3's set with outliers (arXiv 2407.08608, section 4.3).
std::vector<reference::Shape> unquantised_shapes();

/// A row for each shape: what plan() chose of the default options ("variant", "granularity");
/// medians of launches in turns, in microseconds, of the whole call ("ours_us"; "ours_plain_us"
/// without options), of its attention kernel, always on codes of blocks ("attention_us"), of the
/// same with descales of heads ("ours_heads_us", ...) and with int8 ("int8_us",
/// "attention_int8_us"), of the peers, whose FP8 is attention alone, on codes that were made before
/// ("cudnn_bf16_us", "flash3_bf16_us", "cudnn_fp8_us", "flash3_fp8_us", or, without "_us", the
/// reason why there is none), and of a copy of as many bytes as quantising K reads and writes
/// ("copy_us"); shares of that copy's rate of the quantiser on K with static descales, without
/// options, rotating, smoothing and both, with descales of heads and of blocks ("share_...",
/// "share_blocks_..."); and RMSE over some rows, of ours without options and with each ("rmse_...",
/// "rmse_blocks_..."), of fp64 attention on what both of them quantise to ("exact_both",
/// "exact_blocks_both"), where no kernel can be better, and of the peers.
/// `keep` gets the rows so far after each shape, so that a run that is ended early leaves them.
Status measure_unquantised(const std::vector<reference::Shape>& shapes, std::uint64_t seed,
                           const Device& device, const Output& output,
                           const std::function<Status(const nlohmann::json& rows)>& keep);

}  // namespace fp8_sdpa::bench
