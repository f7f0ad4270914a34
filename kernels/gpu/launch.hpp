// Launching a kernel on either backend.
//
// A kernel K has: struct Params (trivially copyable), struct Shared (the block's shared memory),
// static constexpr int kThreads and kMinBlocks (__launch_bounds__), and
// GPU_FN static void run(const Params&, Shared&). It may have static constexpr int kMinSmVersion
// (89 for sm_89): code for older architectures, which lack its instructions, is then a trap. It may
// have static constexpr bool kOnlySm90a = true: code for every architecture but sm_90a is a trap.
// K
// must not be a template over a non-type argument of class type: nvcc's host stub does not compile
// then. Use a tag type. static constexpr bool kUsesPdl = true: gpu/dependent_launch.hpp. static
// constexpr bool kCooperative = true: all its blocks run at once, and may wait for each other; its
// grid is at most resident_blocks().
#pragma once

#include <vector_types.h>

#include <cstddef>
#include <cstring>
#include <string>
#include <type_traits>

#include "gpu/backend.hpp"
#include "gpu/queue.hpp"
#include "gpu/types.hpp"
#if GPU_ON_DEVICE
#include "gpu/cuda_check.hpp"
#else
#include "gpu/executor_options.hpp"
#include "gpu/host/executor/runtime.hpp"
#endif

namespace gpu {
inline namespace GPU_BACKEND {

/// Whether K may start before the kernel before it has ended.
template <class K>
consteval bool uses_pdl() {
  if constexpr (requires { K::kUsesPdl; }) {
    return K::kUsesPdl;
  } else {
    return false;
  }
}

/// Whether K's blocks wait for each other.
template <class K>
consteval bool is_cooperative() {
  if constexpr (requires { K::kCooperative; }) {
    return K::kCooperative;
  } else {
    return false;
  }
}

/// Whether this is code for sm_90a.
#if defined(__CUDA_ARCH_FEAT_SM90_ALL)
inline constexpr bool kIsSm90a = true;
#else
inline constexpr bool kIsSm90a = false;
#endif

/// The alignment of a block's shared memory: what the widest swizzle atom asks for.
inline constexpr int kSharedAlignment = 1024;

#if GPU_ON_DEVICE

/// The first architecture that has K's instructions, as 10 * major + minor; 0 if K does not say.
template <class K>
consteval int min_sm_version() {
  if constexpr (requires { K::kMinSmVersion; }) {
    return K::kMinSmVersion;
  } else {
    return 0;
  }
}

/// Whether K needs what sm_90a alone has.
template <class K>
consteval bool only_sm_90a() {
  if constexpr (requires { K::kOnlySm90a; }) {
    return K::kOnlySm90a;
  } else {
    return false;
  }
}

template <class K>
__global__ void __launch_bounds__(K::kThreads, K::kMinBlocks)
    kernel_entry(const __grid_constant__ typename K::Params params) {
  extern __shared__ __align__(kSharedAlignment) unsigned char shared_memory[];
#if defined(__CUDA_ARCH__)
  if constexpr (__CUDA_ARCH__ < 10 * min_sm_version<K>() || (only_sm_90a<K>() && !kIsSm90a)) {
    __trap();
  } else {
    K::run(params, *reinterpret_cast<typename K::Shared*>(shared_memory));
  }
#endif
}

/// Whether the code of K that the current device runs knows how to wait for earlier kernels: code
/// for an older architecture, compiled again by the driver, does not. CUDA is asked once a thread
/// and device.
template <class K>
fp8_sdpa::Status can_use_pdl(bool& can) {
  constexpr int kFirstSmVersion = 90;
  can = uses_pdl<K>();
  if constexpr (uses_pdl<K>() && min_sm_version<K>() < kFirstSmVersion) {
    struct Known {
      int device = -1;
      bool can = false;
    };
    thread_local Known known;
    int device = 0;
    FP8_SDPA_RETURN_IF_CUDA_ERROR(cudaGetDevice(&device));
    if (device != known.device) {
      cudaFuncAttributes attributes;
      FP8_SDPA_RETURN_IF_CUDA_ERROR(cudaFuncGetAttributes(&attributes, kernel_entry<K>));
      known = {device, attributes.ptxVersion >= kFirstSmVersion};
    }
    can = known.can;
  }
  return {};
}

/// Lets K have its shared memory on the current device. CUDA is asked once a thread and device, or
/// `anew`: a device that was reset has forgotten.
template <class K>
fp8_sdpa::Status allow_shared_memory(bool anew) {
  constexpr int kBytes = static_cast<int>(sizeof(typename K::Shared));
  constexpr int kBytesWithoutOptIn = 48 * 1024;
  if constexpr (kBytes > kBytesWithoutOptIn) {
    thread_local int allowed_on = -1;
    int device = 0;
    FP8_SDPA_RETURN_IF_CUDA_ERROR(cudaGetDevice(&device));
    if (device == allowed_on && !anew) return {};
    FP8_SDPA_RETURN_IF_CUDA_ERROR(
        cudaFuncSetAttribute(kernel_entry<K>, cudaFuncAttributeMaxDynamicSharedMemorySize, kBytes));
    allowed_on = device;
  }
  return {};
}

#endif

/// Runs K over `grid` with sizeof(K::Shared) bytes of dynamic shared memory. On the device it
/// enqueues and returns (kDeviceError if CUDA refuses), and may be captured in a CUDA graph; on the
/// host executor it returns when the kernel has run (kExecutorError if the kernel made an error).
template <class K>
fp8_sdpa::Status launch(dim3 grid, const typename K::Params& params, const Queue& queue) {
  using Shared = typename K::Shared;
  static_assert(std::is_trivially_copyable_v<typename K::Params>);
  static_assert(std::is_trivially_destructible_v<Shared>);
  static_assert(alignof(Shared) <= kSharedAlignment);
#if GPU_ON_DEVICE
  bool early = false;
  if (fp8_sdpa::Status s = can_use_pdl<K>(early); !s.ok()) return s;
  cudaLaunchAttribute attribute{};
  if (is_cooperative<K>()) {
    static_assert(!(is_cooperative<K>() && uses_pdl<K>()));
    attribute.id = cudaLaunchAttributeCooperative;
    attribute.val.cooperative = 1;
  } else {
    attribute.id = cudaLaunchAttributeProgrammaticStreamSerialization;
    attribute.val.programmaticStreamSerializationAllowed = 1;
  }
  cudaLaunchConfig_t config{};
  config.gridDim = grid;
  config.blockDim = dim3(K::kThreads);
  config.dynamicSmemBytes = sizeof(Shared);
  config.stream = queue.stream;
  config.attrs = &attribute;
  config.numAttrs = early || is_cooperative<K>() ? 1 : 0;
  // By the C function: the template copies the parameters once more.
  void* arguments[] = {const_cast<typename K::Params*>(&params)};
  for (const bool anew : {false, true}) {
    if (fp8_sdpa::Status s = allow_shared_memory<K>(anew); !s.ok()) return s;
    const cudaError_t error =
        cudaLaunchKernelExC(&config, reinterpret_cast<const void*>(kernel_entry<K>), arguments);
    const bool may_have_been_reset = error == cudaErrorInvalidValue && !anew;
    if (!may_have_been_reset) {
      FP8_SDPA_RETURN_IF_CUDA_ERROR(error);
      break;
    }
    static_cast<void>(cudaGetLastError());
  }
  return {};
#else
  const host::Launch request{
      .grid = grid,
      .threads = K::kThreads,
      .min_blocks = K::kMinBlocks,
      .uses_pdl = uses_pdl<K>(),
      .cooperative = is_cooperative<K>(),
      .shared_bytes = sizeof(Shared),
      .shared_alignment = kSharedAlignment,
      .entry =
          [](const void* p, void* s) {
            K::run(*static_cast<const typename K::Params*>(p), *static_cast<Shared*>(s));
          },
      .params = &params,
      .params_bytes = sizeof(params),
  };
  return host::run_grid(request,
                        queue.executor != nullptr ? *queue.executor : fp8_sdpa::ExecutorOptions{});
#endif
}

/// How many blocks of K run at once on the current device, which has `sm_count` multiprocessors; on
/// the host executor as many as K::kMinBlocks says. CUDA is asked once a thread and device.
template <class K>
fp8_sdpa::Status resident_blocks(int sm_count, int& blocks) {
#if GPU_ON_DEVICE
  struct Known {
    int device = -1;
    int of_multiprocessor = 0;
  };
  thread_local Known known;
  int device = 0;
  FP8_SDPA_RETURN_IF_CUDA_ERROR(cudaGetDevice(&device));
  if (device != known.device) {
    if (fp8_sdpa::Status s = allow_shared_memory<K>(/*anew=*/false); !s.ok()) return s;
    int count = 0;
    FP8_SDPA_RETURN_IF_CUDA_ERROR(cudaOccupancyMaxActiveBlocksPerMultiprocessor(
        &count, kernel_entry<K>, K::kThreads, sizeof(typename K::Shared)));
    if (count == 0) {
      return fp8_sdpa::unsupported("this GPU has no room for a block of " +
                                   std::to_string(sizeof(typename K::Shared)) +
                                   " bytes of shared memory");
    }
    known = {device, count};
  }
  blocks = sm_count * known.of_multiprocessor;
#else
  blocks = sm_count * K::kMinBlocks;
#endif
  return {};
}

/// Launches what `earlier(queue)` launches, then K, which starts early. On the host executor that
/// is as early as it can be: the earlier kernels run when K waits for them.
template <class K, class Earlier>
fp8_sdpa::Status launch_after(const Earlier& earlier, dim3 grid, const typename K::Params& params,
                              const Queue& queue) {
  static_assert(uses_pdl<K>());
#if GPU_ON_DEVICE
  if (fp8_sdpa::Status s = earlier(queue); !s.ok()) return s;
  return launch<K>(grid, params, queue);
#else
  fp8_sdpa::Status first;
  fp8_sdpa::ExecutorOptions options =
      queue.executor != nullptr ? *queue.executor : fp8_sdpa::ExecutorOptions{};
  options.earlier_kernels = [&] { first = earlier(queue); };
  const fp8_sdpa::Status second = launch<K>(grid, params, Queue{queue.stream, &options});
  return first.ok() ? second : first;
#endif
}

/// First, then Second.
template <class First, class Second>
fp8_sdpa::Status launch_both(dim3 first_grid, const typename First::Params& first_params,
                             dim3 second_grid, const typename Second::Params& second_params,
                             const Queue& queue) {
  const auto first = [&](const Queue& on) { return launch<First>(first_grid, first_params, on); };
  return launch_after<Second>(first, second_grid, second_params, queue);
}

/// Zeroes memory before what is launched next on the queue; may be captured in a CUDA graph.
inline fp8_sdpa::Status fill_zero(void* memory, std::size_t bytes,
                                  [[maybe_unused]] const Queue& queue) {
#if GPU_ON_DEVICE
  FP8_SDPA_RETURN_IF_CUDA_ERROR(cudaMemsetAsync(memory, 0, bytes, queue.stream));
#else
  std::memset(memory, 0, bytes);
#endif
  return {};
}

}  // namespace GPU_BACKEND
}  // namespace gpu
