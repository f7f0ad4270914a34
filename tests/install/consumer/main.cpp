// A project of somebody else's that uses the installed library: quantises floats, plans a problem
// on the host executor and runs it.
#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <fp8_sdpa/plan.hpp>
#include <fp8_sdpa/quantise.hpp>
#include <iterator>
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

int fail(const fp8_sdpa::Status& status) {
  std::fprintf(stderr, "%s\n", status.message().c_str());
  return 1;
}

}  // namespace

int main() {
  static Storage<std::uint8_t> q, k, v;
  static Storage<std::uint16_t> o;
  static Storage<float> ones;
  std::fill(std::begin(ones.elements), std::end(ones.elements), 1.0F);
  float descales[3] = {};
  int next = 0;
  for (auto* storage : {&q, &k, &v}) {
    fp8_sdpa::Quantisation quantisation;
    quantisation.batch = quantisation.heads = 1;
    quantisation.seq = kSeq;
    quantisation.head_dim = kHeadDim;
    quantisation.from = tensor_of(ones, fp8_sdpa::Dtype::kFloat);
    quantisation.codes = tensor_of(*storage, fp8_sdpa::Dtype::kE4M3);
    quantisation.descales = &descales[next++];
    const auto plan = fp8_sdpa::plan(quantisation, fp8_sdpa::host_executor());
    if (!plan.ok()) return fail(plan.status());
    std::vector<std::max_align_t> workspace(plan->workspace_bytes() / sizeof(std::max_align_t) + 1);
    if (const auto status = fp8_sdpa::quantise(*plan, workspace.data(), nullptr); !status.ok()) {
      return fail(status);
    }
  }
  fp8_sdpa::Problem problem;
  problem.batch = problem.heads_q = problem.heads_kv = 1;
  problem.seq_q = problem.seq_kv = kSeq;
  problem.head_dim = kHeadDim;
  problem.q = tensor_of(q, fp8_sdpa::Dtype::kE4M3);
  problem.k = tensor_of(k, fp8_sdpa::Dtype::kE4M3);
  problem.v = tensor_of(v, fp8_sdpa::Dtype::kE4M3);
  problem.o = tensor_of(o, fp8_sdpa::Dtype::kHalf);
  problem.descales = {&descales[0], &descales[1], &descales[2]};
  problem.softmax_scale = 0.125F;

  const auto plan = fp8_sdpa::plan(problem, fp8_sdpa::host_executor());
  if (!plan.ok()) return fail(plan.status());
  std::vector<std::max_align_t> workspace(plan->workspace_bytes() / sizeof(std::max_align_t) + 1);
  if (const auto status = fp8_sdpa::forward(*plan, workspace.data(), nullptr); !status.ok()) {
    return fail(status);
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
