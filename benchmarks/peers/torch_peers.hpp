// PyTorch's attention, in a second process (torch_sdpa.py).
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "benchmarks/files/results.hpp"
#include "benchmarks/peers/coprocess.hpp"
#include "benchmarks/peers/sampled_case.hpp"
#include "fp8_sdpa/status.hpp"

namespace fp8_sdpa::bench {

/// A backend that does not serve a problem, and why.
struct DeclinedPeer {
  std::string name;
  std::string reason;
};

/// The second process and what it says.
class TorchPeers {
 public:
  /// Starts it. kUnsupported, in one line, without PyTorch or a GPU that it sees.
  static Result<std::unique_ptr<TorchPeers>> start(const std::string& python,
                                                   const std::string& script);

  /// "PyTorch 2.11.0 on NVIDIA H200".
  const std::string& description() const { return description_; }

  /// Gives it a case, through files in `folder`; the backends that serve it, by name.
  Result<std::vector<std::string>> set_case(const SampledCase& sampled, const std::string& folder,
                                            std::vector<DeclinedPeer>& declined);

  /// O of the case by a backend: bf16 bits.
  Result<std::vector<std::uint16_t>> output(const std::string& backend, const std::string& folder);

  /// Microseconds a call.
  Result<std::vector<double>> time(const std::string& backend, Method method, int warmup,
                                   int samples);

 private:
  std::unique_ptr<Coprocess> process_;
  std::string description_;
};

}  // namespace fp8_sdpa::bench
