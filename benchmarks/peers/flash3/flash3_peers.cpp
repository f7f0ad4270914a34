// FlashAttention-3's attention, and that of FP8 as peers, from a library that is built outside
// (build.sh).
#include "benchmarks/peers/flash3/flash3_peers.hpp"

#include <dlfcn.h>

#include <cstdlib>
#include <limits>
#include <memory>
#include <vector>

#include "benchmarks/peers/peer.hpp"
#include "dispatch/plan_state.hpp"
#include "dispatch/variant_impl.hpp"
#include "reference/formats/text.hpp"

namespace fp8_sdpa::bench {
namespace {

/// Plans that there are: a plan's state is bytes that are copied, so it cannot own one.
using Flash3Owned = std::unique_ptr<Flash3Plan, Flash3Release>;
std::vector<Flash3Owned>& plans() {
  static std::vector<Flash3Owned> all;
  return all;
}

/// Once per process.
const Result<const Flash3Functions*>& library() {
  static const Result<const Flash3Functions*> loaded = load_flash3(std::getenv(kFlash3Variable));
  return loaded;
}

Status status_of(const char* error) {
  if (error == nullptr) return {};
  return {StatusCode::kDeviceError, "FlashAttention-3: " + reference::one_line(error)};
}

bool rows_are_contiguous(const Problem& problem) {
  return problem.q.stride_dim == 1 && problem.k.stride_dim == 1 && problem.v.stride_dim == 1 &&
         problem.o.stride_dim == 1;
}

bool is_all(const Problem& problem, Dtype dtype) {
  return problem.q.dtype == dtype && problem.k.dtype == dtype && problem.v.dtype == dtype;
}

Status supports_sizes(const Problem& problem, const Device& device) {
  constexpr int kHopper = 90;
  constexpr std::int64_t kMost = std::numeric_limits<int>::max();
  if (device.backend != Backend::kDevice || device.sm_version != kHopper) {
    return unsupported("FlashAttention-3's kernels need an sm_90");
  }
  if (problem.head_dim != 64 && problem.head_dim != 128 && problem.head_dim != 256) {
    return unsupported("it is built for head_dim 64, 128 and 256, got " +
                       std::to_string(problem.head_dim));
  }
  if (!rows_are_contiguous(problem)) return unsupported("this peer is given row-major V alone");
  if (problem.ragged.seqused_kv != nullptr && problem.pages.block_table == nullptr) {
    return unsupported("it is built without lengths of dense tensors");
  }
  if (problem.ragged.cu_seqlens_q != nullptr || problem.ragged.cu_seqlens_kv != nullptr) {
    return unsupported("this peer is given no packed sequences");
  }
  if (problem.batch * problem.seq_q > kMost || problem.batch * problem.seq_kv > kMost) {
    return unsupported("its sizes are 32-bit numbers");
  }
  return library().ok() ? Status{} : library().status();
}

Status supports(const Problem& problem, const Device& device) {
  if (Status s = supports_sizes(problem, device); !s.ok()) return s;
  return is_all(problem, Dtype::kE4M3) ? Status() : unsupported("this peer is given E4M3 alone");
}

Flash3Strides strides_of(const Tensor& tensor) {
  return {tensor.stride_batch, tensor.stride_head, tensor.stride_seq};
}

Flash3Problem as_flash3(const Problem& problem, bool never_split) {
  const std::int64_t heads_kv = problem.heads_kv;
  // Of a group of query heads, which have one scale (SampledCase), the first one's.
  const std::int64_t group = problem.heads_q / heads_kv;
  const Pages& pages = problem.pages;
  const std::int64_t seq_kv = pages.block_table == nullptr
                                  ? problem.seq_kv
                                  : std::int64_t{pages.max_pages} * pages.page_size;
  return {problem.batch,
          problem.heads_q,
          problem.heads_kv,
          static_cast<int>(problem.seq_q),
          static_cast<int>(seq_kv),
          problem.head_dim,
          problem.mask == Mask::kCausal ? 1 : 0,
          is_all(problem, Dtype::kBFloat16) ? 1 : 0,
          problem.softmax_scale,
          problem.q.data,
          problem.k.data,
          problem.v.data,
          problem.o.data,
          strides_of(problem.q),
          strides_of(problem.k),
          strides_of(problem.v),
          strides_of(problem.o),
          problem.lse,
          problem.descales.q,
          problem.descales.k,
          problem.descales.v,
          {problem.heads_q, group},
          {heads_kv, 1},
          {heads_kv, 1},
          never_split ? 1 : 0,
          pages.block_table,
          pages.pages,
          pages.page_size,
          pages.max_pages,
          problem.ragged.seqused_kv};
}

Result<Flash3Owned> make_plan(const Problem& problem, bool never_split) {
  const Flash3Functions& flash3 = **library();
  const Flash3Problem asked = as_flash3(problem, never_split);
  Flash3Plan* made = nullptr;
  if (Status s = status_of(flash3.prepare(&asked, &made)); !s.ok()) return s;
  return Flash3Owned(made, flash3.release);
}

template <bool kNeverSplit>
Status prepare(const Problem& problem, const Device& /*device*/, const PlanOptions& /*options*/,
               detail::PlanState& state) {
  auto made = make_plan(problem, /*never_split=*/false);
  if (!made.ok()) return made.status();
  if constexpr (kNeverSplit) {
    if ((*library())->splits(made->get()) == 1) {
      return unsupported("its heuristics do not split this one: it is peer/flash3_fp8");
    }
    made = make_plan(problem, /*never_split=*/true);
    if (!made.ok()) return made.status();
  }
  plans().push_back(std::move(*made));
  detail::put(state, plans().back().get());
  return {};
}

Status launch(const detail::PlanState& state, void* /*workspace*/, const gpu::Queue& queue) {
  return status_of((*library())->launch(detail::get<Flash3Plan*>(state), queue.stream));
}

class Prepared final : public Flash3Attention {
 public:
  explicit Prepared(Flash3Owned plan) : plan_(std::move(plan)) {}
  Status launch(CUstream_st* stream) override {
    return status_of((*library())->launch(plan_.get(), stream));
  }

 private:
  Flash3Owned plan_;
};

double output_scale(const Plan& /*plan*/) { return 1.0; }

constexpr detail::VariantImpl kImpl{.supports = supports,
                                    .device = {nullptr, prepare<false>, launch},
                                    .host = {},
                                    .serves_caches = true};
constexpr detail::VariantImpl kNoSplitImpl{.supports = supports,
                                           .device = {nullptr, prepare<true>, launch},
                                           .host = {},
                                           .serves_caches = true};
constexpr Formats kFormats{reference::Weights::kE4M3, Dtype::kBFloat16};

constexpr Peer kPeers[] = {
    {{"peer/flash3_fp8",
      "FlashAttention-3's FP8 attention, splits by its heuristics",
      Family::kPeer,
      {},
      {},
      &kImpl,
      Dtype::kE4M3},
     kFormats,
     true,
     output_scale},
    {{"peer/flash3_fp8_no_split",
      "FlashAttention-3's FP8 attention, never split",
      Family::kPeer,
      {},
      {},
      &kNoSplitImpl,
      Dtype::kE4M3},
     kFormats,
     true,
     output_scale},
};

std::string missing() {
  return library().ok() ? "" : "peer flash3_fp8 is left out: " + library().status().message();
}

}  // namespace

Result<const Flash3Functions*> load_flash3(const char* path) {
  const auto refuse = [](const std::string& reason) {
    return unsupported(reason +
                       "; build it with benchmarks/peers/flash3/build.sh FLASH_ATTENTION_DIR "
                       "CUTLASS_INCLUDE OUT.so and set " +
                       kFlash3Variable + "=OUT.so");
  };
  if (path == nullptr || *path == '\0') return refuse(std::string(kFlash3Variable) + " is not set");
  void* handle = dlopen(path, RTLD_NOW | RTLD_LOCAL);
  if (handle == nullptr) return refuse(reference::one_line(dlerror()));
  const auto* functions = static_cast<const Flash3Functions*>(dlsym(handle, "flash3_functions"));
  if (functions == nullptr || functions->abi != kFlash3Abi) {
    dlclose(handle);
    return refuse(reference::one_line(path) + " is not of this version of build.sh");
  }
  return functions;
}

Result<std::unique_ptr<Flash3Attention>> Flash3Attention::make(const Problem& problem,
                                                               const Device& device) {
  if (Status s = supports_sizes(problem, device); !s.ok()) return s;
  auto made = make_plan(problem, /*never_split=*/false);
  if (!made.ok()) return made.status();
  return Result<std::unique_ptr<Flash3Attention>>(std::make_unique<Prepared>(std::move(*made)));
}

const PeerSource& flash3_source() {
  static constexpr PeerSource kSource{kPeers, missing, [] { plans().clear(); }};
  return kSource;
}

}  // namespace fp8_sdpa::bench
