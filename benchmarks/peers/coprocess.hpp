// A program that is spoken to, line by line, while it runs.
#pragma once

#include <cstdio>
#include <memory>
#include <nlohmann/json_fwd.hpp>
#include <string>
#include <vector>

#include "fp8_sdpa/status.hpp"

namespace fp8_sdpa::bench {

/// A child process whose stdin takes requests and whose stdout gives answers, one JSON object a
/// line. Its stderr is ours. It ends when this is destroyed.
class Coprocess {
 public:
  /// Starts `arguments` (the program first; PATH is searched). kUnsupported where it cannot be.
  static Result<std::unique_ptr<Coprocess>> start(const std::vector<std::string>& arguments);
  ~Coprocess();
  Coprocess(const Coprocess&) = delete;
  Coprocess& operator=(const Coprocess&) = delete;

  /// Sends a request and waits for its answer. kUnsupported, in one line, where the program has
  /// ended, answers what is no JSON object, or answers with a member "error". One that does not
  /// answer in time is killed.
  Result<nlohmann::json> ask(const nlohmann::json& request, int timeout_seconds = 120);

 private:
  Coprocess() = default;

  int process_ = -1;
  std::FILE* requests_ = nullptr;
  std::FILE* answers_ = nullptr;
};

}  // namespace fp8_sdpa::bench
