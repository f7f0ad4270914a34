// What plan() says of a description that it declines: a change of a good one, and the reason.
#pragma once

#include <gtest/gtest.h>

#include <ostream>
#include <string>

#include "fp8_sdpa/status.hpp"

namespace fp8_sdpa::tests {

template <class Description>
struct Declined {
  const char* name;
  void (*change)(Description&);
  StatusCode code;
  const char* says;
};
template <class Description>
void PrintTo(const Declined<Description>& declined, std::ostream* os) {
  *os << declined.name;
}
template <class Description>
std::string name_of(const testing::TestParamInfo<Declined<Description>>& info) {
  return info.param.name;
}

/// `made` is what plan() gave for the changed description.
template <class Description, class Plan>
void expect_declined(const Declined<Description>& declined, const Result<Plan>& made) {
  ASSERT_FALSE(made.ok());
  EXPECT_EQ(made.status().code(), declined.code);
  EXPECT_NE(made.status().message().find(declined.says), std::string::npos)
      << made.status().message();
}

inline constexpr StatusCode kInvalid = StatusCode::kInvalidArgument;
inline constexpr StatusCode kUnsupported = StatusCode::kUnsupported;

}  // namespace fp8_sdpa::tests
