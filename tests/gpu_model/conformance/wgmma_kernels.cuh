// Conformance kernels of wgmma: operands laid out by hand, in every swizzle, without TMA.
#pragma once

#include <utility>

#include "gpu/hopper.hpp"
#include "tests/gpu_model/conformance/base.cuh"

namespace conformance {
inline namespace GPU_BACKEND {

/// Matrices in memory, FP8 codes.
struct WgmmaInput {
  std::uint8_t a[kWgmmaM][kWgmmaK];
  std::uint8_t b[kWgmmaMaxN][kWgmmaK];
};
struct WgmmaShared {
  alignas(1024) unsigned char a[kWgmmaM * kWgmmaK];
  alignas(1024) unsigned char b[kWgmmaMaxN * kWgmmaK];
};

/// A tile of rows of kColumns codes in shared memory.
template <int kColumns, gpu::Swizzle kSwizzle>
struct WgmmaTile {
  static constexpr bool kPlain = kSwizzle == gpu::Swizzle::kNone;
  static constexpr int kChunkBytes = 16;
  static constexpr int kRowGroupBytes = 8 * kColumns;
  /// 8 x 16-byte blocks, one after the other along k.
  static constexpr int kBlockBytes = 8 * kChunkBytes;
  static constexpr int kStepBytes = kPlain ? 2 * kBlockBytes : kWgmmaStep;

  GPU_FN static int offset(int row, int chunk) {
    if constexpr (kPlain) {
      return row / 8 * kRowGroupBytes + chunk * kBlockBytes + row % 8 * kChunkBytes;
    } else {
      const auto linear = static_cast<std::uint32_t>(row * kColumns + chunk * kChunkBytes);
      return static_cast<int>(gpu::swizzled(linear, kSwizzle));
    }
  }

  template <int kRows>
  GPU_FN static void fill(unsigned char* tile, const std::uint8_t (&from)[kRows][kWgmmaK],
                          int rows) {
    constexpr int kChunks = kColumns / kChunkBytes;
    for (int i = gpu::thread_idx(); i < rows * kChunks; i += 128) {
      const auto* source = &from[i / kChunks][i % kChunks * kChunkBytes];
      *reinterpret_cast<uint4*>(tile + offset(i / kChunks, i % kChunks)) =
          *reinterpret_cast<const uint4*>(source);
    }
  }

  GPU_FN static std::uint64_t descriptor(const unsigned char* tile, int step) {
    return gpu::advance_descriptor(
        gpu::matrix_descriptor(tile, kRowGroupBytes, kBlockBytes, kSwizzle), step * kStepBytes);
  }
};

/// Row 0 or 1 of a lane's.
GPU_FN int wgmma_row(int i) { return 16 * gpu::warp_idx() + gpu::lane_idx() / 4 + 8 * i; }

/// d as (kWgmmaM, kN).
template <int kN, class T>
GPU_FN void write_wgmma(const T (&d)[kN / 2], T* out) {
  for (int i = 0; i < kN / 2; ++i) {
    const int col = 8 * (i / 4) + 2 * (gpu::lane_idx() % 4) + i % 2;
    out[wgmma_row(i / 2 % 2) * kN + col] = d[i];
  }
}

/// in: WgmmaInput. out: A B^T (kWgmmaM x kN) over the first kColumns columns, with A in shared
/// memory, then with A in registers.
template <int kN, int kColumns, gpu::Swizzle kSwizzle, gpu::Fp8 kA, gpu::Fp8 kB>
struct Wgmma : KernelBase<128, WgmmaShared> {
  static constexpr int kMinSmVersion = 90;
  static constexpr bool kOnlySm90a = true;
  static constexpr int kSteps = kColumns / kWgmmaStep;
  using Shared = WgmmaShared;
  using Tile = WgmmaTile<kColumns, kSwizzle>;

  GPU_FN static void run(const Buffers& p, Shared& sm) {
    const auto& in = *static_cast<const WgmmaInput*>(p.in);
    Tile::fill(sm.a, in.a, kWgmmaM);
    Tile::fill(sm.b, in.b, kN);
    gpu::fence_proxy_async();
    gpu::sync_block();
    float* out = static_cast<float*>(p.out);
    float d[kN / 2];
#pragma unroll
    for (int i = 0; i < kN / 2; ++i) d[i] = 1e6F;
    gpu::pin_registers(d);
    gpu::wgmma_fence();
#pragma unroll
    for (int step = 0; step < kSteps; ++step) {
      gpu::wgmma_m64k32<kA, kB>(d, Tile::descriptor(sm.a, step), Tile::descriptor(sm.b, step),
                                step > 0);
    }
    gpu::wgmma_commit();
    gpu::wgmma_wait<0>();
    gpu::pin_registers(d);
    write_wgmma<kN>(d, out);

    std::uint32_t a[kSteps][4];
#pragma unroll
    for (int step = 0; step < kSteps; ++step) {
#pragma unroll
      for (int i = 0; i < 4; ++i) {
        const int k = kWgmmaStep * step + 16 * (i / 2) + 4 * (gpu::lane_idx() % 4);
        a[step][i] = *reinterpret_cast<const std::uint32_t*>(&in.a[wgmma_row(i % 2)][k]);
      }
    }
    gpu::wgmma_fence();
#pragma unroll
    for (int step = 0; step < kSteps; ++step) {
      gpu::wgmma_m64k32<kA, kB>(d, a[step], Tile::descriptor(sm.b, step), step > 0);
    }
    gpu::wgmma_commit();
    gpu::wgmma_wait<0>();
    gpu::pin_registers(d);
    write_wgmma<kN>(d, out + kWgmmaM * kN);
  }
};

/// in: WgmmaInput, of signed bytes. out: kWgmmaInt8Start + A B^T (kWgmmaM x kN), then A B^T.
template <int kN>
struct WgmmaInt8 : KernelBase<128, WgmmaShared> {
  static constexpr int kMinSmVersion = 90;
  static constexpr bool kOnlySm90a = true;
  using Shared = WgmmaShared;
  using Tile = WgmmaTile<kWgmmaK, gpu::Swizzle::k128B>;

  GPU_FN static void run(const Buffers& p, Shared& sm) {
    const auto& in = *static_cast<const WgmmaInput*>(p.in);
    Tile::fill(sm.a, in.a, kWgmmaM);
    Tile::fill(sm.b, in.b, kN);
    gpu::fence_proxy_async();
    gpu::sync_block();
    auto* out = static_cast<std::uint32_t*>(p.out);
    std::uint32_t d[kN / 2];
    for (int old = 1; old >= 0; --old, out += kWgmmaM * kN) {
#pragma unroll
      for (int i = 0; i < kN / 2; ++i) d[i] = kWgmmaInt8Start;
      gpu::pin_registers(d);
      gpu::wgmma_fence();
#pragma unroll
      for (int step = 0; step < kWgmmaK / kWgmmaStep; ++step) {
        gpu::wgmma_m64k32_int8(d, Tile::descriptor(sm.a, step), Tile::descriptor(sm.b, step),
                               old > 0 || step > 0);
      }
      gpu::wgmma_commit();
      gpu::wgmma_wait<0>();
      gpu::pin_registers(d);
      write_wgmma<kN>(d, out);
    }
  }
};

/// 16-bit elements: matrices in memory.
struct Wgmma16BitInput {
  std::uint16_t a[kWgmmaM][kWgmma16BitK];
  std::uint16_t b[kWgmma16BitK][kWgmmaMaxN];
};

/// in: Wgmma16BitInput. out: A B (kWgmmaM x kN), A in registers, B as rows of k.
template <int kN, gpu::Float16 kType>
struct Wgmma16Bit : KernelBase<128, WgmmaShared> {
  static constexpr int kMinSmVersion = 90;
  static constexpr bool kOnlySm90a = true;
  static constexpr int kSteps = kWgmma16BitK / kWgmma16BitStep;
  static constexpr int kPanelColumns = 64;
  static constexpr int kRowBytes = 128;
  static constexpr int kPanelBytes = kWgmma16BitK * kRowBytes;
  using Shared = WgmmaShared;

  GPU_FN static void fill(unsigned char* tile, const Wgmma16BitInput& in) {
    constexpr int kElements = 8;  // of 16 bytes
    constexpr int kChunks = kWgmmaMaxN / kElements;
    for (int i = gpu::thread_idx(); i < kWgmma16BitK * kChunks; i += 128) {
      const int column = i % kChunks * kElements;
      const auto linear =
          static_cast<std::uint32_t>(i / kChunks * kRowBytes + column % kPanelColumns * 2);
      *reinterpret_cast<uint4*>(tile + column / kPanelColumns * kPanelBytes +
                                gpu::swizzled(linear, gpu::Swizzle::k128B)) =
          *reinterpret_cast<const uint4*>(&in.b[i / kChunks][column]);
    }
  }

  GPU_FN static void run(const Buffers& p, Shared& sm) {
    const auto& in = *static_cast<const Wgmma16BitInput*>(p.in);
    fill(sm.b, in);
    std::uint32_t a[kSteps][4];
#pragma unroll
    for (int step = 0; step < kSteps; ++step) {
#pragma unroll
      for (int i = 0; i < 4; ++i) {
        const int k = kWgmma16BitStep * step + 8 * (i / 2) + 2 * (gpu::lane_idx() % 4);
        a[step][i] = *reinterpret_cast<const std::uint32_t*>(&in.a[wgmma_row(i % 2)][k]);
      }
    }
    gpu::fence_proxy_async();
    gpu::sync_block();
    float d[kN / 2];
#pragma unroll
    for (int i = 0; i < kN / 2; ++i) d[i] = 1e6F;
    gpu::pin_registers(d);
    const std::uint64_t b =
        gpu::matrix_descriptor(sm.b, 8 * kRowBytes, kPanelBytes, gpu::Swizzle::k128B);
    gpu::wgmma_fence();
#pragma unroll
    for (int step = 0; step < kSteps; ++step) {
      gpu::wgmma_m64k16<kType>(
          d, a[step], gpu::advance_descriptor(b, step * kWgmma16BitStep * kRowBytes), step > 0);
    }
    gpu::wgmma_commit();
    gpu::wgmma_wait<0>();
    gpu::pin_registers(d);
    write_wgmma<kN>(d, static_cast<float*>(p.out));
  }
};

/// Launches kernels, their outputs behind each other.
class WgmmaLauncher {
 public:
  WgmmaLauncher(const Buffers& b, const gpu::Queue& q) : buffers_(b), queue_(q) {}

  template <int kN>
  void launch_int8() {
    if (!status_.ok()) return;
    keep(gpu::launch<WgmmaInt8<kN>>(dim3(1), buffers_, queue_));
    buffers_.out = static_cast<std::uint32_t*>(buffers_.out) + 2 * kWgmmaM * kN;
  }
  template <int kN, gpu::Float16 kType>
  void launch_16_bit() {
    if (!status_.ok()) return;
    keep(gpu::launch<Wgmma16Bit<kN, kType>>(dim3(1), buffers_, queue_));
    buffers_.out = static_cast<float*>(buffers_.out) + kWgmmaM * kN;
  }

  template <int kN, int kColumns, gpu::Swizzle kSwizzle, gpu::Fp8 kA = gpu::Fp8::kE4M3,
            gpu::Fp8 kB = gpu::Fp8::kE4M3>
  void launch() {
    if (!status_.ok()) return;
    keep(gpu::launch<Wgmma<kN, kColumns, kSwizzle, kA, kB>>(dim3(1), buffers_, queue_));
    buffers_.out = static_cast<float*>(buffers_.out) + 2 * kWgmmaM * kN;
  }
  const fp8_sdpa::Status& status() const { return status_; }

 private:
  /// No assignment: nvcc takes its result for a Status that is ignored.
  void keep(fp8_sdpa::Status status) { std::swap(status_, status); }

  Buffers buffers_;
  const gpu::Queue& queue_;
  fp8_sdpa::Status status_;
};

template <int... kIndices>
void launch_wgmma_sizes(Primitive primitive, WgmmaLauncher& launcher,
                        std::integer_sequence<int, kIndices...>) {
  using gpu::Float16;
  if (primitive == Primitive::kWgmmaSizes) {
    (launcher.launch<kWgmmaSizesN[kIndices], kWgmmaK, gpu::Swizzle::k128B>(), ...);
  } else if (primitive == Primitive::kWgmmaInt8) {
    (launcher.launch_int8<kWgmmaSizesN[kIndices]>(), ...);
  } else if (primitive == Primitive::kWgmmaHalf) {
    (launcher.launch_16_bit<kWgmmaSizesN[kIndices], Float16::kHalf>(), ...);
  } else {
    (launcher.launch_16_bit<kWgmmaSizesN[kIndices], Float16::kBFloat16>(), ...);
  }
}

inline fp8_sdpa::Status launch_wgmma(Primitive primitive, const Buffers& b, const gpu::Queue& q) {
  using gpu::Fp8;
  using gpu::Swizzle;
  WgmmaLauncher launcher(b, q);
  switch (primitive) {
    case Primitive::kWgmmaSizes:
    case Primitive::kWgmmaInt8:
    case Primitive::kWgmmaHalf:
    case Primitive::kWgmmaBFloat16:
      launch_wgmma_sizes(
          primitive, launcher,
          std::make_integer_sequence<int, sizeof(kWgmmaSizesN) / sizeof(kWgmmaSizesN[0])>{});
      break;
    case Primitive::kWgmmaSwizzles:
      launcher.launch<kWgmmaSwizzlesN, kWgmmaSwizzlesK[0], Swizzle::kNone>();
      launcher.launch<kWgmmaSwizzlesN, kWgmmaSwizzlesK[1], Swizzle::k32B>();
      launcher.launch<kWgmmaSwizzlesN, kWgmmaSwizzlesK[2], Swizzle::k64B>();
      launcher.launch<kWgmmaSwizzlesN, kWgmmaSwizzlesK[3], Swizzle::k128B>();
      break;
    case Primitive::kWgmmaTypes:
      launcher.launch<kWgmmaTypesN, kWgmmaK, Swizzle::k128B, Fp8::kE4M3, Fp8::kE4M3>();
      launcher.launch<kWgmmaTypesN, kWgmmaK, Swizzle::k128B, Fp8::kE4M3, Fp8::kE5M2>();
      launcher.launch<kWgmmaTypesN, kWgmmaK, Swizzle::k128B, Fp8::kE5M2, Fp8::kE4M3>();
      launcher.launch<kWgmmaTypesN, kWgmmaK, Swizzle::k128B, Fp8::kE5M2, Fp8::kE5M2>();
      break;
    default: return fp8_sdpa::invalid_argument("no such primitive");
  }
  return launcher.status();
}

}  // namespace GPU_BACKEND
}  // namespace conformance
