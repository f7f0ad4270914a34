#include "tests/gates/serving/caches.hpp"

#include <string>

#include "dispatch/variant_impl.hpp"

namespace fp8_sdpa::tests {

reference::Shape cache_shape(int batch, int heads_q, int heads_kv, std::int64_t seq_q,
                             std::int64_t seq_kv, int head_dim) {
  reference::Shape shape = make_shape(batch, heads_q, seq_q, seq_kv, head_dim);
  shape.heads_kv = heads_kv;
  shape.mask = Mask::kCausal;
  return shape;
}

std::vector<const Variant*> serving_variants() {
  std::vector<const Variant*> chosen;
  for (const Variant* variant : all_variants()) {
    if (variant->impl->serves_caches) chosen.push_back(variant);
  }
  return chosen;
}

bool Caches::serves(const Cache& cache) const {
  const Status status = variant().supports(cache.problem, device_);
  if (status.ok()) return true;
  EXPECT_NE(status.message().find(" serves pages of 8 keys or more that 128 is a multiple of"),
            std::string::npos)
      << status.message();
  return false;
}

reference::RunOutput Caches::run(Cache& cache, const PlanOptions& options) const {
  const auto output = cache.run(variant(), options);
  EXPECT_TRUE(output.ok()) << output.status().message();
  return output.ok() ? *output : reference::RunOutput{};
}

reference::RunOutput Caches::alone(const reference::CaseData& data, int b, std::int64_t queries,
                                   std::int64_t keys) const {
  // Room for as many keys as the batch has: few in all are for other kernels.
  const auto cache = Cache::make(sequence_of(data, b, queries, data.shape.seq_kv), device_,
                                 {.lengths = {static_cast<std::int32_t>(keys)}});
  reference::RunOutput output = run(*cache, kInvariant);
  const auto one = reference::from_codes(sequence_of(data, b, queries, keys));
  const reference::CaseResult result =
      reference::judge_run(variant(), *one, output, config().tolerances, {.budgets_only = true});
  for (const reference::GateResult& gate : result.gates) {
    EXPECT_TRUE(gate.pass) << variant().name << ", sequence " << b << " of " << queries << " on "
                           << keys << ": " << gate.name << " " << gate.value << " > "
                           << gate.threshold << " " << gate.detail;
  }
  return output;
}

}  // namespace fp8_sdpa::tests
