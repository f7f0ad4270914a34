// The gates that FP8 attention libraries publish in their own tests, as formulas: what would they
// have said of a wrong kernel? Their tests draw unit-normal Q, K and V.
#pragma once

#include <string>
#include <vector>

#include "reference/oracle/case.hpp"

namespace fp8_sdpa::wrong {

struct PeerVerdict {
  std::string peer;
  bool pass = false;
};

/// - FlashAttention-3 (hopper/test_flash_attn.py): max |O - ref| <= 2 max |naive - ref| + atol,
/// where
///   naive is attention with normalised weights rounded to E4M3, and atol is twice what adding and
///   subtracting 0.3 does to the reference in the output's type.
/// - cuDNN frontend (test/python, FP8 SDPA): |O - ref| <= 0.08 + 0.2 |ref| in every element.
/// - FlashInfer (tests of the Hopper FP8 prefill): mean squared error < 1.
/// - Transformer Engine (tests/pytorch, fused attention in FP8): RMSE < 0.13 of the range of the
///   two outputs.
/// SageAttention publishes none. `o` is (batch, heads_q, seq_q, head_dim); the reference is that on
/// dequantised inputs.
std::vector<PeerVerdict> ask_peers(const std::vector<float>& o, const reference::CaseData& data);

}  // namespace fp8_sdpa::wrong
