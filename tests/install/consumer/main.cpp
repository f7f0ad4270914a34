// A project of somebody else's that uses the installed library: quantises floats, plans a problem
// on the host executor and runs it.
#include <algorithm>
#include <cstdint>
#include <cstdio>
#include <fp8_sdpa/plan.hpp>
#include <fp8_sdpa/quantise.hpp>
#include <vector>

namespace {

constexpr int kSeq = 32;
constexpr int kHeadDim = 64;
constexpr std::uint16_t kHalfOne = 0x3C00;  // 1.0 in half

// The API asks for 16-byte alignment.
template <class T>
struct alignas(16) Storage {
  T elements[kSeq * kHeadDim];
};

template <class T>
fp8_sdpa::Tensor tensor_of(Storage<T>& storage, fp8_sdpa::Dtype dtype) {
  return {storage.elements, dtype, kSeq * kHeadDim, kSeq * kHeadDim, kHeadDim, 1};
}

}  // namespace

int main() {
  static Storage<std::uint8_t> q, k, v;
  static Storage<std::uint16_t> o;
  const std::vector<float> ones(kSeq * kHeadDim, 1.0F);
  const auto quantised =
      fp8_sdpa::reference::quantise(ones, 1, kSeq * kHeadDim, fp8_sdpa::Dtype::kE4M3);
  for (auto* storage : {&q, &k, &v}) {
    std::copy(quantised.codes.begin(), quantised.codes.end(), storage->elements);
  }
  const float* descale = quantised.descales.data();
  fp8_sdpa::Problem problem;
  problem.batch = problem.heads_q = problem.heads_kv = 1;
  problem.seq_q = problem.seq_kv = kSeq;
  problem.head_dim = kHeadDim;
  problem.q = tensor_of(q, fp8_sdpa::Dtype::kE4M3);
  problem.k = tensor_of(k, fp8_sdpa::Dtype::kE4M3);
  problem.v = tensor_of(v, fp8_sdpa::Dtype::kE4M3);
  problem.o = tensor_of(o, fp8_sdpa::Dtype::kHalf);
  problem.descales = {descale, descale, descale};
  problem.softmax_scale = 0.125F;

  const auto plan = fp8_sdpa::plan(problem, fp8_sdpa::host_executor());
  if (!plan.ok()) {
    std::fprintf(stderr, "%s\n", plan.status().message().c_str());
    return 1;
  }
  std::vector<std::max_align_t> workspace(plan->workspace_bytes() / sizeof(std::max_align_t) + 1);
  if (const auto status = fp8_sdpa::forward(*plan, workspace.data(), nullptr); !status.ok()) {
    std::fprintf(stderr, "%s\n", status.message().c_str());
    return 1;
  }
  // Every value is 1, so any weighted mean of them is 1.
  for (const std::uint16_t element : o.elements) {
    if (element != kHalfOne) {
      std::fprintf(stderr, "got half 0x%04x, want 0x%04x\n", element, kHalfOne);
      return 1;
    }
  }
  std::printf("planned %s on %s\n", std::string(plan->variant_name()).c_str(),
              plan->device().name.c_str());
}
