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

/// `status` is of what was asked of the changed description.
template <class Description>
void expect_declined(const Declined<Description>& declined, const Status& status) {
  ASSERT_FALSE(status.ok());
  EXPECT_EQ(status.code(), declined.code);
  EXPECT_NE(status.message().find(declined.says), std::string::npos) << status.message();
}
/// `made` is what plan() gave for it.
template <class Description, class Plan>
void expect_declined(const Declined<Description>& declined, const Result<Plan>& made) {
  expect_declined(declined, made.status());
}

inline constexpr StatusCode kInvalid = StatusCode::kInvalidArgument;
inline constexpr StatusCode kUnsupported = StatusCode::kUnsupported;

}  // namespace fp8_sdpa::tests
