// The table of kernel variants. Tests, benchmarks, documents and command lines all enumerate this
// one table.
#pragma once

#include <cstddef>
#include <span>
#include <string>
#include <string_view>

#include "fp8_sdpa/device.hpp"
#include "fp8_sdpa/plan.hpp"
#include "fp8_sdpa/problem.hpp"
#include "fp8_sdpa/status.hpp"

namespace fp8_sdpa {

/// The ladder's switches: which idea a Stage C variant uses. Other families leave them all off.
struct Toggles {
  bool kv_lut = false;       ///< USE_KV_LUT: dequantise K and V through a 256-entry lookup table
  bool cp_async = false;     ///< USE_CP_ASYNC: double-buffered cp.async for the K/V tiles
  bool vec_pv = false;       ///< USE_VEC_PV: vectorised P V (half2 loads, float2 accumulation)
  bool wmma_pv = false;      ///< USE_WMMA_PV: tensor-core P V
  bool warp_spec = false;    ///< USE_WARP_SPEC: producer and consumer warps
  bool xor_swizzle = false;  ///< USE_XOR_SWIZZLE: XOR-swizzled shared memory

  constexpr bool operator==(const Toggles&) const = default;
};

/// Why a combination of toggles is illegal, or success.
Status check_toggles(const Toggles& toggles);

/// The Stage C variant name of a legal combination:
/// stage_c[_lut][_cp_async][_vec_pv|_wmma_pv][_warp_spec][_swizzle].
std::string stage_c_name(const Toggles& toggles);

enum class Family {
  kStageC,  ///< WMMA on dequantised halves, S, P and U in shared memory (kernels/stage_c)
  kSm80,    ///< half mma.sync, S, P and O in registers (kernels/sm80)
  kSm89,    ///< FP8 mma.sync, S, P and O in registers (kernels/sm89)
  kSm90,    ///< FP8 wgmma, TMA, specialised warpgroups (kernels/sm90)
  kDecode,  ///< few query rows, keys split over blocks, caches in pages (kernels/decode)
  kPeer,    ///< not in the table: somebody else's kernel behind this interface (benchmarks/peers)
};

/// What one block of a variant asks of a multiprocessor, as the launch asks for it; of kernels for
/// several head dims, the one with the most shared memory.
struct Resources {
  int threads = 0;               ///< of a block
  std::size_t shared_bytes = 0;  ///< dynamic shared memory: sizeof the kernel's Shared struct
  int tile_m = 0;                ///< query rows per block
  int tile_n = 0;                ///< keys per step
};

namespace detail {
struct VariantImpl;
}

/// One kernel, compiled for every backend of this build.
struct Variant {
  std::string_view name;     ///< the stem: letters, digits, underscores
  std::string_view summary;  ///< one line for people
  Family family;
  Toggles toggles;
  Resources resources;
  const detail::VariantImpl* impl;
  Dtype weights = Dtype::kHalf;  ///< what P is rounded to: its own error is judged by that
  /// It takes Q and K as signed bytes, and V in the format of `weights`; else all three in FP8.
  bool int8 = false;

  bool fp8_p() const { return is_fp8(weights); }
  /// The formats of Q and K, and of V, that every variant of its kind takes.
  Dtype codes() const { return int8 ? Dtype::kInt8 : Dtype::kE4M3; }
  Dtype values() const { return int8 ? weights : Dtype::kE4M3; }

  /// Whether this variant can compute `problem` on `device`; if not, why: kInvalidArgument for a
  /// problem that contradicts itself, kUnsupported for a valid one. Pure host code: touches no
  /// memory behind the problem's pointers and calls no CUDA function.
  Status supports(const Problem& problem, const Device& device) const;

  /// Whether problems that ask for LseSum::kExact have a kernel of their own at `head_dim`: who
  /// judges the variant must look at both.
  bool has_kernel_of_exact_sums(int head_dim) const;
};

/// Every variant of this build.
std::span<const Variant> variants();

/// The combination that this build was configured with (the CMake cache options USE_*).
Toggles configured_toggles();

/// Whether someone chose that combination; false where the options are as the project sets them.
/// plan() then chooses by problem and device.
bool toggles_chosen();

}  // namespace fp8_sdpa
