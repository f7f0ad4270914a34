// wgmma.mma_async for every n: PTX wants each accumulator register as an operand of its own, and
// inline assembly wants literal operand numbers.
#pragma once

#include <cstdint>

#include "gpu/mma.hpp"

// GPU_LIST_<r>: "%0, ..., %<r - 1>". GPU_OUT_<r>: the constraints C of d[0] to d[r - 1].
#define GPU_OUT(C, i) C(d[i]), C(d[i + 1]), C(d[i + 2]), C(d[i + 3])

#define GPU_LIST_4 "%0, %1, %2, %3"
#define GPU_LIST_8 GPU_LIST_4 ", %4, %5, %6, %7"
#define GPU_LIST_12 GPU_LIST_8 ", %8, %9, %10, %11"
#define GPU_LIST_16 GPU_LIST_12 ", %12, %13, %14, %15"
#define GPU_LIST_20 GPU_LIST_16 ", %16, %17, %18, %19"
#define GPU_LIST_24 GPU_LIST_20 ", %20, %21, %22, %23"
#define GPU_LIST_28 GPU_LIST_24 ", %24, %25, %26, %27"
#define GPU_LIST_32 GPU_LIST_28 ", %28, %29, %30, %31"
#define GPU_LIST_36 GPU_LIST_32 ", %32, %33, %34, %35"
#define GPU_LIST_40 GPU_LIST_36 ", %36, %37, %38, %39"
#define GPU_LIST_44 GPU_LIST_40 ", %40, %41, %42, %43"
#define GPU_LIST_48 GPU_LIST_44 ", %44, %45, %46, %47"
#define GPU_LIST_52 GPU_LIST_48 ", %48, %49, %50, %51"
#define GPU_LIST_56 GPU_LIST_52 ", %52, %53, %54, %55"
#define GPU_LIST_60 GPU_LIST_56 ", %56, %57, %58, %59"
#define GPU_LIST_64 GPU_LIST_60 ", %60, %61, %62, %63"
#define GPU_LIST_68 GPU_LIST_64 ", %64, %65, %66, %67"
#define GPU_LIST_72 GPU_LIST_68 ", %68, %69, %70, %71"
#define GPU_LIST_76 GPU_LIST_72 ", %72, %73, %74, %75"
#define GPU_LIST_80 GPU_LIST_76 ", %76, %77, %78, %79"
#define GPU_LIST_84 GPU_LIST_80 ", %80, %81, %82, %83"
#define GPU_LIST_88 GPU_LIST_84 ", %84, %85, %86, %87"
#define GPU_LIST_92 GPU_LIST_88 ", %88, %89, %90, %91"
#define GPU_LIST_96 GPU_LIST_92 ", %92, %93, %94, %95"
#define GPU_LIST_100 GPU_LIST_96 ", %96, %97, %98, %99"
#define GPU_LIST_104 GPU_LIST_100 ", %100, %101, %102, %103"
#define GPU_LIST_108 GPU_LIST_104 ", %104, %105, %106, %107"
#define GPU_LIST_112 GPU_LIST_108 ", %108, %109, %110, %111"
#define GPU_LIST_116 GPU_LIST_112 ", %112, %113, %114, %115"
#define GPU_LIST_120 GPU_LIST_116 ", %116, %117, %118, %119"
#define GPU_LIST_124 GPU_LIST_120 ", %120, %121, %122, %123"
#define GPU_LIST_128 GPU_LIST_124 ", %124, %125, %126, %127"
#define GPU_OUT_4(C) GPU_OUT(C, 0)
#define GPU_OUT_8(C) GPU_OUT_4(C), GPU_OUT(C, 4)
#define GPU_OUT_12(C) GPU_OUT_8(C), GPU_OUT(C, 8)
#define GPU_OUT_16(C) GPU_OUT_12(C), GPU_OUT(C, 12)
#define GPU_OUT_20(C) GPU_OUT_16(C), GPU_OUT(C, 16)
#define GPU_OUT_24(C) GPU_OUT_20(C), GPU_OUT(C, 20)
#define GPU_OUT_28(C) GPU_OUT_24(C), GPU_OUT(C, 24)
#define GPU_OUT_32(C) GPU_OUT_28(C), GPU_OUT(C, 28)
#define GPU_OUT_36(C) GPU_OUT_32(C), GPU_OUT(C, 32)
#define GPU_OUT_40(C) GPU_OUT_36(C), GPU_OUT(C, 36)
#define GPU_OUT_44(C) GPU_OUT_40(C), GPU_OUT(C, 40)
#define GPU_OUT_48(C) GPU_OUT_44(C), GPU_OUT(C, 44)
#define GPU_OUT_52(C) GPU_OUT_48(C), GPU_OUT(C, 48)
#define GPU_OUT_56(C) GPU_OUT_52(C), GPU_OUT(C, 52)
#define GPU_OUT_60(C) GPU_OUT_56(C), GPU_OUT(C, 56)
#define GPU_OUT_64(C) GPU_OUT_60(C), GPU_OUT(C, 60)
#define GPU_OUT_68(C) GPU_OUT_64(C), GPU_OUT(C, 64)
#define GPU_OUT_72(C) GPU_OUT_68(C), GPU_OUT(C, 68)
#define GPU_OUT_76(C) GPU_OUT_72(C), GPU_OUT(C, 72)
#define GPU_OUT_80(C) GPU_OUT_76(C), GPU_OUT(C, 76)
#define GPU_OUT_84(C) GPU_OUT_80(C), GPU_OUT(C, 80)
#define GPU_OUT_88(C) GPU_OUT_84(C), GPU_OUT(C, 84)
#define GPU_OUT_92(C) GPU_OUT_88(C), GPU_OUT(C, 88)
#define GPU_OUT_96(C) GPU_OUT_92(C), GPU_OUT(C, 92)
#define GPU_OUT_100(C) GPU_OUT_96(C), GPU_OUT(C, 96)
#define GPU_OUT_104(C) GPU_OUT_100(C), GPU_OUT(C, 100)
#define GPU_OUT_108(C) GPU_OUT_104(C), GPU_OUT(C, 104)
#define GPU_OUT_112(C) GPU_OUT_108(C), GPU_OUT(C, 108)
#define GPU_OUT_116(C) GPU_OUT_112(C), GPU_OUT(C, 112)
#define GPU_OUT_120(C) GPU_OUT_116(C), GPU_OUT(C, 116)
#define GPU_OUT_124(C) GPU_OUT_120(C), GPU_OUT(C, 120)
#define GPU_OUT_128(C) GPU_OUT_124(C), GPU_OUT(C, 124)

// One multiply of R = N / 2 registers. P0 and on are the operands behind them: the descriptors of A
// and B and the predicate, or A's four registers, the descriptor of B and the predicate.
#define GPU_WGMMA_SHARED(N, R, TYPES, P0, P1, P2)                                                  \
  asm volatile("{\n.reg .pred p;\nsetp.ne.b32 p, " P2 ", 0;\nwgmma.mma_async.sync.aligned.m64n" #N \
               "k32.f32." TYPES " {" GPU_LIST_##R "}, " P0 ", " P1 ", p, 1, 1;\n}"                 \
               : GPU_OUT_##R("+f")                                                                 \
               : "l"(a), "l"(b), "r"(accumulate))
#define GPU_WGMMA_REGISTERS(N, R, TYPES, P0, P1, P2, P3, P4, P5)                                   \
  asm volatile("{\n.reg .pred p;\nsetp.ne.b32 p, " P5 ", 0;\nwgmma.mma_async.sync.aligned.m64n" #N \
               "k32.f32." TYPES " {" GPU_LIST_##R "}, {" P0 ", " P1 ", " P2 ", " P3 "}, " P4       \
                                                  ", p, 1, 1;\n}"                                  \
               : GPU_OUT_##R("+f")                                                                 \
               : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "l"(b), "r"(accumulate))

#define GPU_WGMMA_INT8(N, R, P0, P1, P2)                                                           \
  asm volatile("{\n.reg .pred p;\nsetp.ne.b32 p, " P2 ", 0;\nwgmma.mma_async.sync.aligned.m64n" #N \
               "k32.s32.s8.s8 {" GPU_LIST_##R "}, " P0 ", " P1 ", p;\n}"                           \
               : GPU_OUT_##R("+r")                                                                 \
               : "l"(a), "l"(b), "r"(accumulate))
#define GPU_WGMMA_FLOAT16(N, R, TYPES, P0, P1, P2, P3, P4, P5)                                     \
  asm volatile("{\n.reg .pred p;\nsetp.ne.b32 p, " P5 ", 0;\nwgmma.mma_async.sync.aligned.m64n" #N \
               "k16.f32." TYPES " {" GPU_LIST_##R "}, {" P0 ", " P1 ", " P2 ", " P3 "}, " P4       \
                                                  ", p, 1, 1, 1;\n}"                               \
               : GPU_OUT_##R("+f")                                                                 \
               : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "l"(b), "r"(accumulate))

#define GPU_WGMMA_BY_TYPE(INSTRUCTION, N, R, ...)       \
  if constexpr (kA == Fp8::kE4M3 && kB == Fp8::kE4M3) { \
    INSTRUCTION(N, R, "e4m3.e4m3", __VA_ARGS__);        \
  } else if constexpr (kA == Fp8::kE4M3) {              \
    INSTRUCTION(N, R, "e4m3.e5m2", __VA_ARGS__);        \
  } else if constexpr (kB == Fp8::kE4M3) {              \
    INSTRUCTION(N, R, "e5m2.e4m3", __VA_ARGS__);        \
  } else {                                              \
    INSTRUCTION(N, R, "e5m2.e5m2", __VA_ARGS__);        \
  }

#define GPU_WGMMA_SIZE(N, R, P0, P1, P2, P3, P4, P5)                                               \
  template <>                                                                                      \
  struct Wgmma<N> {                                                                                \
    template <Fp8 kA, Fp8 kB>                                                                      \
    GPU_FN static void a_in_shared(float (&d)[R], std::uint64_t a, std::uint64_t b,                \
                                   int accumulate) {                                               \
      GPU_WGMMA_BY_TYPE(GPU_WGMMA_SHARED, N, R, P0, P1, P2)                                        \
    }                                                                                              \
    template <Fp8 kA, Fp8 kB>                                                                      \
    GPU_FN static void a_in_registers(float (&d)[R], const std::uint32_t (&a)[4], std::uint64_t b, \
                                      int accumulate) {                                            \
      GPU_WGMMA_BY_TYPE(GPU_WGMMA_REGISTERS, N, R, P0, P1, P2, P3, P4, P5)                         \
    }                                                                                              \
    template <int = 0>                                                                             \
    GPU_FN static void int8_in_shared(std::uint32_t (&d)[R], std::uint64_t a, std::uint64_t b,     \
                                      int accumulate) {                                            \
      GPU_WGMMA_INT8(N, R, P0, P1, P2);                                                            \
    }                                                                                              \
    template <Float16 kType>                                                                       \
    GPU_FN static void b_by_rows(float (&d)[R], const std::uint32_t (&a)[4], std::uint64_t b,      \
                                 int accumulate) {                                                 \
      if constexpr (kType == Float16::kHalf) {                                                     \
        GPU_WGMMA_FLOAT16(N, R, "f16.f16", P0, P1, P2, P3, P4, P5);                                \
      } else {                                                                                     \
        GPU_WGMMA_FLOAT16(N, R, "bf16.bf16", P0, P1, P2, P3, P4, P5);                              \
      }                                                                                            \
    }                                                                                              \
  };

namespace gpu {
inline namespace GPU_BACKEND {
namespace detail {

/// The instructions of one n.
template <int kN>
struct Wgmma;

GPU_WGMMA_SIZE(8, 4, "%4", "%5", "%6", "%7", "%8", "%9")
GPU_WGMMA_SIZE(16, 8, "%8", "%9", "%10", "%11", "%12", "%13")
GPU_WGMMA_SIZE(24, 12, "%12", "%13", "%14", "%15", "%16", "%17")
GPU_WGMMA_SIZE(32, 16, "%16", "%17", "%18", "%19", "%20", "%21")
GPU_WGMMA_SIZE(40, 20, "%20", "%21", "%22", "%23", "%24", "%25")
GPU_WGMMA_SIZE(48, 24, "%24", "%25", "%26", "%27", "%28", "%29")
GPU_WGMMA_SIZE(56, 28, "%28", "%29", "%30", "%31", "%32", "%33")
GPU_WGMMA_SIZE(64, 32, "%32", "%33", "%34", "%35", "%36", "%37")
GPU_WGMMA_SIZE(72, 36, "%36", "%37", "%38", "%39", "%40", "%41")
GPU_WGMMA_SIZE(80, 40, "%40", "%41", "%42", "%43", "%44", "%45")
GPU_WGMMA_SIZE(88, 44, "%44", "%45", "%46", "%47", "%48", "%49")
GPU_WGMMA_SIZE(96, 48, "%48", "%49", "%50", "%51", "%52", "%53")
GPU_WGMMA_SIZE(104, 52, "%52", "%53", "%54", "%55", "%56", "%57")
GPU_WGMMA_SIZE(112, 56, "%56", "%57", "%58", "%59", "%60", "%61")
GPU_WGMMA_SIZE(120, 60, "%60", "%61", "%62", "%63", "%64", "%65")
GPU_WGMMA_SIZE(128, 64, "%64", "%65", "%66", "%67", "%68", "%69")
GPU_WGMMA_SIZE(136, 68, "%68", "%69", "%70", "%71", "%72", "%73")
GPU_WGMMA_SIZE(144, 72, "%72", "%73", "%74", "%75", "%76", "%77")
GPU_WGMMA_SIZE(152, 76, "%76", "%77", "%78", "%79", "%80", "%81")
GPU_WGMMA_SIZE(160, 80, "%80", "%81", "%82", "%83", "%84", "%85")
GPU_WGMMA_SIZE(168, 84, "%84", "%85", "%86", "%87", "%88", "%89")
GPU_WGMMA_SIZE(176, 88, "%88", "%89", "%90", "%91", "%92", "%93")
GPU_WGMMA_SIZE(184, 92, "%92", "%93", "%94", "%95", "%96", "%97")
GPU_WGMMA_SIZE(192, 96, "%96", "%97", "%98", "%99", "%100", "%101")
GPU_WGMMA_SIZE(200, 100, "%100", "%101", "%102", "%103", "%104", "%105")
GPU_WGMMA_SIZE(208, 104, "%104", "%105", "%106", "%107", "%108", "%109")
GPU_WGMMA_SIZE(216, 108, "%108", "%109", "%110", "%111", "%112", "%113")
GPU_WGMMA_SIZE(224, 112, "%112", "%113", "%114", "%115", "%116", "%117")
GPU_WGMMA_SIZE(232, 116, "%116", "%117", "%118", "%119", "%120", "%121")
GPU_WGMMA_SIZE(240, 120, "%120", "%121", "%122", "%123", "%124", "%125")
GPU_WGMMA_SIZE(248, 124, "%124", "%125", "%126", "%127", "%128", "%129")
GPU_WGMMA_SIZE(256, 128, "%128", "%129", "%130", "%131", "%132", "%133")

}  // namespace detail
}  // namespace GPU_BACKEND
}  // namespace gpu

#undef GPU_WGMMA_SIZE
#undef GPU_WGMMA_BY_TYPE
#undef GPU_WGMMA_FLOAT16
#undef GPU_WGMMA_INT8
#undef GPU_WGMMA_REGISTERS
#undef GPU_WGMMA_SHARED
