// Problems at addresses and devices that nobody has: for what looks at a description alone.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>

#include "fp8_sdpa/device.hpp"
#include "fp8_sdpa/problem.hpp"

namespace fp8_sdpa::tests {

/// The pointers of a problem: 0 to 3 q, k, v, o; 4 lse; 5 to 7 descales of q, k, v; then those of
/// ragged batches and pages.
inline constexpr int kOutput = 3;
inline constexpr int kLse = 4;
inline constexpr int kFault = 8;
inline constexpr int kOffsetsQ = 9;
inline constexpr int kOffsetsKv = 10;
inline constexpr int kLengths = 11;
inline constexpr int kTable = 12;
inline constexpr int kPointers = 13;

inline std::uintptr_t address(const Problem& p, int which) {
  const std::array<const void*, kPointers> all = {p.q.data,
                                                  p.k.data,
                                                  p.v.data,
                                                  p.o.data,
                                                  p.lse,
                                                  p.descales.q,
                                                  p.descales.k,
                                                  p.descales.v,
                                                  p.fault,
                                                  p.ragged.cu_seqlens_q,
                                                  p.ragged.cu_seqlens_kv,
                                                  p.ragged.seqused_kv,
                                                  p.pages.block_table};
  return reinterpret_cast<std::uintptr_t>(all[static_cast<std::size_t>(which)]);
}

inline void move_to(Problem& p, int which, std::uintptr_t to) {
  void* const data = reinterpret_cast<void*>(to);
  switch (which) {
    case 0: p.q.data = data; break;
    case 1: p.k.data = data; break;
    case 2: p.v.data = data; break;
    case kOutput: p.o.data = data; break;
    case kLse: p.lse = static_cast<float*>(data); break;
    case 5: p.descales.q = static_cast<float*>(data); break;
    case 6: p.descales.k = static_cast<float*>(data); break;
    case 7: p.descales.v = static_cast<float*>(data); break;
    case kFault: p.fault = static_cast<std::uint32_t*>(data); break;
    case kOffsetsQ: p.ragged.cu_seqlens_q = static_cast<std::int32_t*>(data); break;
    case kOffsetsKv: p.ragged.cu_seqlens_kv = static_cast<std::int32_t*>(data); break;
    case kLengths: p.ragged.seqused_kv = static_cast<std::int32_t*>(data); break;
    default: p.pages.block_table = static_cast<std::int32_t*>(data);
  }
}

/// Contiguous whole tensors, all pointers 2^50 bytes apart.
inline Problem made_up(int batch, int heads_q, int heads_kv, std::int64_t seq_q,
                       std::int64_t seq_kv, int head_dim) {
  const auto view = [&](Dtype dtype, int heads, std::int64_t seq) {
    return Tensor{nullptr, dtype, heads * seq * head_dim, seq * head_dim, head_dim, 1};
  };
  Problem p;
  p.batch = batch;
  p.heads_q = heads_q;
  p.heads_kv = heads_kv;
  p.seq_q = seq_q;
  p.seq_kv = seq_kv;
  p.head_dim = head_dim;
  p.q = view(Dtype::kE4M3, heads_q, seq_q);
  p.k = p.v = view(Dtype::kE4M3, heads_kv, seq_kv);
  p.o = view(Dtype::kHalf, heads_q, seq_q);
  constexpr int kApart = 50;
  for (int i = 0; i < kFault; ++i) move_to(p, i, (std::uintptr_t{1} + i) << kApart);
  return p;
}

inline Device made_up_device(int sm_version) {
  Device device = host_executor();
  device.backend = Backend::kDevice;
  device.sm_version = sm_version;
  device.name = "a made-up device";
  return device;
}

}  // namespace fp8_sdpa::tests
