// A case's tensors in the memory of a device, ready to be launched and timed.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <vector>

#include "fp8_sdpa/device.hpp"
#include "fp8_sdpa/plan.hpp"
#include "fp8_sdpa/status.hpp"
#include "reference/oracle/case.hpp"
#include "reference/oracle/memory.hpp"

namespace fp8_sdpa::bench {

/// The tensors of one case, (B,H,S,D) contiguous.
class Workload {
 public:
  /// Copies the case's codes and descales to the device; O is half or bf16. With `lse` the problem
  /// asks for one, of that sum. Beside signed bytes V is of `values`, half or bf16.
  static Result<Workload> make(const reference::CaseData& data, const Device& device,
                               Dtype output = Dtype::kHalf, std::optional<LseSum> lse = {},
                               Dtype values = Dtype::kHalf);

  const Problem& problem() const { return problem_; }
  const Device& device() const { return device_; }
  Result<Plan> plan_for(const Variant& variant) const { return plan(problem_, device_, &variant); }

  /// Poisons O and LSE, runs the plan once and returns O's bits: what a gate's run must have left
  /// too.
  Result<std::vector<std::uint16_t>> run(const Plan& plan) const;

  /// Fills O and LSE with a pattern that no kernel leaves, and waits for that.
  Status poison() const;

  /// O's bits as the last launch left them.
  Result<std::vector<std::uint16_t>> output() const;

  /// The LSE as the last launch left it; empty where the problem asks for none.
  Result<std::vector<float>> lse() const;

 private:
  Result<void*> upload(const void* source, std::size_t bytes, const char* name);
  Status upload_operand(const reference::QuantisedTensor& tensor, Dtype dtype, std::int64_t heads,
                        std::int64_t seq, Tensor* view, const float** descales, const char* name);

  Problem problem_;
  Device device_;
  std::vector<std::unique_ptr<reference::Buffer>> inputs_;
  std::unique_ptr<reference::Buffer> output_;
  std::unique_ptr<reference::Buffer> lse_;
};

/// A problem of these sizes that points at no memory: for Variant::supports(), which reads none.
Problem problem_of(const reference::Shape& shape, Dtype dtype);
/// The same of the formats that a variant takes.
Problem problem_of(const reference::Shape& shape, const Variant& variant);

}  // namespace fp8_sdpa::bench
