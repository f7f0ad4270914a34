// What a fault of sm90 is called by: a plan and its launch, of one variant on the host executor. On
// the schedule that runs the last first, two launches, the second on what the first has left in the
// workspace, with inputs that an earlier kernel has yet to write; else one, which finds a workspace
// of anything.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <vector>

#include "sm90/launch.cuh"

namespace fp8_sdpa::sm90 {

/// NaN in all of O.
inline void forget_output(const Problem& p) {
  auto* const o = static_cast<std::uint16_t*>(p.o.data);
  for (int batch = 0; batch < p.batch; ++batch) {
    for (int head = 0; head < p.heads_q; ++head) {
      for (std::int64_t row = 0; row < p.seq_q; ++row) {
        std::uint16_t* const first =
            o + batch * p.o.stride_batch + head * p.o.stride_head + row * p.o.stride_seq;
        std::fill_n(first, p.head_dim, std::uint16_t{0xFFFF});
      }
    }
  }
}

/// The inputs, NaN until they are shown again.
class HiddenInputs {
 public:
  explicit HiddenInputs(const Problem& p) : problem_(p) {
    visit([this](auto& value) {
      const auto* const bytes = reinterpret_cast<const unsigned char*>(&value);
      kept_.insert(kept_.end(), bytes, bytes + sizeof(value));
      std::memset(&value, 0xFF, sizeof(value));
    });
  }
  void show() {
    const unsigned char* from = kept_.data();
    visit([&from](auto& value) {
      std::memcpy(&value, from, sizeof(value));
      from += sizeof(value);
    });
  }

 private:
  template <class Visit>
  void visit(const Visit& visit) {
    const Problem& p = problem_;
    visit_codes(p.q, p.heads_q, p.seq_q, visit);
    visit_codes(p.k, p.heads_kv, p.seq_kv, visit);
    visit_codes(p.v, p.heads_kv, p.seq_kv, visit);
    visit_descales(p.descales.q, p.heads_q, visit);
    visit_descales(p.descales.k, p.heads_kv, visit);
    visit_descales(p.descales.v, p.heads_kv, visit);
  }
  template <class Visit>
  void visit_codes(const Tensor& t, int heads, std::int64_t seq, const Visit& visit) {
    for (std::int64_t row = 0; row < problem_.batch * heads * seq; ++row) {
      auto* const first = static_cast<std::uint8_t*>(t.data) +
                          row / (heads * seq) * t.stride_batch + row / seq % heads * t.stride_head +
                          row % seq * t.stride_seq;
      for (int dim = 0; dim < problem_.head_dim; ++dim) visit(first[dim * t.stride_dim]);
    }
  }
  template <class Visit>
  void visit_descales(const float* descales, int heads, const Visit& visit) {
    for (int i = 0; i < problem_.batch * heads; ++i) visit(const_cast<float&>(descales[i]));
  }

  const Problem& problem_;
  std::vector<unsigned char> kept_;
};

template <class Tag>
Status plan_and_launch(const Problem& problem, const gpu::Queue& queue) {
  detail::PlanState state;
  const Status planned = prepare<Tag, Backend::kHost>(problem, host_executor(), {}, state);
  if (!planned.ok()) return planned;
  std::vector<std::byte> workspace(state.workspace_bytes + 256, std::byte{0xFF});
  const Status launched = launch<Tag, Backend::kHost>(state, workspace.data(), queue);
  const bool again =
      queue.executor != nullptr && queue.executor->schedule == fp8_sdpa::Schedule::kLifo;
  if (!launched.ok() || !again) return launched;
  forget_output(problem);
  HiddenInputs inputs(problem);
  ExecutorOptions options = *queue.executor;
  options.earlier_kernels = [&] { inputs.show(); };
  return launch<Tag, Backend::kHost>(state, workspace.data(), {nullptr, &options});
}

}  // namespace fp8_sdpa::sm90
