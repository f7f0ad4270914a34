// Builds conformance cases from typed inputs, expectations and agreement rules.
#pragma once

#include <bit>
#include <cmath>
#include <cstring>
#include <sstream>
#include <string>
#include <utility>
#include <vector>

#include "tests/gpu_model/conformance/cases.hpp"

namespace conformance {

template <class T>
std::vector<std::byte> to_bytes(const std::vector<T>& values) {
  std::vector<std::byte> bytes(values.size() * sizeof(T));
  std::memcpy(bytes.data(), values.data(), bytes.size());
  return bytes;
}

template <class T>
std::vector<T> from_bytes(const std::vector<std::byte>& bytes) {
  std::vector<T> values(bytes.size() / sizeof(T));
  std::memcpy(values.data(), bytes.data(), values.size() * sizeof(T));
  return values;
}

/// The first i for which agree(a[i], b[i]) does not hold, in words.
template <class T, class Agree>
std::string first_difference(const std::vector<T>& expected, const std::vector<T>& got,
                             Agree agree) {
  if (expected.size() != got.size()) return "sizes differ";
  for (std::size_t i = 0; i < got.size(); ++i) {
    if (agree(expected[i], got[i])) continue;
    std::ostringstream text;
    text.precision(9);
    text << "element " << i << ": expected " << +expected[i] << ", got " << +got[i];
    return text.str();
  }
  return "";
}

/// Equal values, or both NaN. Zeros of different sign differ.
struct Identical {
  template <class T>
  bool operator()(T a, T b) const {
    if constexpr (std::is_floating_point_v<T>) {
      if (std::isnan(a) || std::isnan(b)) return std::isnan(a) && std::isnan(b);
      return a == b && std::signbit(a) == std::signbit(b);
    } else {
      return a == b;
    }
  }
};

/// Within a relative error of the larger one, or identical.
struct Within {
  double relative;
  double absolute = 0;
  template <class T>
  bool operator()(T a, T b) const {
    if (Identical{}(a, b)) return true;
    const double error = std::fabs(static_cast<double>(a) - static_cast<double>(b));
    const double size =
        std::max(std::fabs(static_cast<double>(a)), std::fabs(static_cast<double>(b)));
    return error <= std::max(absolute, relative * size);
  }
};

/// Of primitives that read nothing.
inline const std::vector<std::byte> kNoInput(1);

/// A case whose outputs are `expected`, up to `check`; host and device agree up to `compare`.
template <class In, class Out, class Check = Identical, class Compare = Identical>
Case make_case(const char* name, Primitive primitive, const std::vector<In>& in,
               std::vector<Out> expected, int count, Check check = {}, Compare compare = {}) {
  Case c;
  c.name = name;
  c.primitive = primitive;
  c.in = to_bytes(in);
  c.out_bytes = expected.size() * sizeof(Out);
  c.count = count;
  c.check = [expected = std::move(expected), check](const std::vector<std::byte>& out) {
    return first_difference(expected, from_bytes<Out>(out), check);
  };
  c.compare = [compare](const std::vector<std::byte>& host, const std::vector<std::byte>& device) {
    return first_difference(from_bytes<Out>(host), from_bytes<Out>(device), compare);
  };
  return c;
}

}  // namespace conformance
