// Inputs that earlier kernels have yet to write.
#pragma once

#include <cstdint>
#include <cstring>
#include <vector>

#include "fp8_sdpa/problem.hpp"

namespace fp8_sdpa::tests {

/// The inputs of a problem in host memory: NaN from here on, until they are shown.
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
    const int size = size_of(t.dtype);
    for (std::int64_t row = 0; row < problem_.batch * heads * seq; ++row) {
      auto* const first = static_cast<std::uint8_t*>(t.data) +
                          size * (row / (heads * seq) * t.stride_batch +
                                  row / seq % heads * t.stride_head + row % seq * t.stride_seq);
      for (int dim = 0; dim < problem_.head_dim; ++dim) {
        for (int byte = 0; byte < size; ++byte) visit(first[size * dim * t.stride_dim + byte]);
      }
    }
  }
  template <class Visit>
  void visit_descales(const float* descales, int heads, const Visit& visit) {
    for (int i = 0; i < problem_.batch * heads; ++i) visit(const_cast<float&>(descales[i]));
  }

  Problem problem_;
  std::vector<unsigned char> kept_;
};

}  // namespace fp8_sdpa::tests
