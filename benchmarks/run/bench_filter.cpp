#include "benchmarks/run/bench_filter.hpp"

#include <regex.h>

#include <algorithm>
#include <array>

#include "reference/formats/text.hpp"

namespace fp8_sdpa::bench {

Status check_filter(const std::string& filter, const std::vector<std::string>& names) {
  if (filter.empty() || filter == "all") return {};
  const bool others = filter.front() == '-';
  regex_t expression;
  const int error =
      regcomp(&expression, filter.c_str() + (others ? 1 : 0), REG_EXTENDED | REG_NOSUB);
  const std::string shown = "--benchmark_filter=" + reference::one_line(filter);
  if (error != 0) {
    std::array<char, 128> why{};
    regerror(error, &expression, why.data(), why.size());
    return invalid_argument(shown + ": not a regular expression: " + why.data());
  }
  const bool any = std::any_of(names.begin(), names.end(), [&](const std::string& name) {
    return (regexec(&expression, name.c_str(), 0, nullptr, 0) == 0) != others;
  });
  regfree(&expression);
  if (any) return {};
  return invalid_argument(shown + " matches no benchmark; one is " + names.front());
}

}  // namespace fp8_sdpa::bench
