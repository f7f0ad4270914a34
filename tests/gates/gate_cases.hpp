// What the gate tests run over: every variant, on each backend, with the reference data of a case
// shared by all of them.
#pragma once

#include <gtest/gtest.h>

#include <map>
#include <memory>
#include <optional>
#include <ostream>
#include <string>
#include <tuple>
#include <vector>

#include "dispatch/variant.hpp"
#include "fp8_sdpa/device.hpp"
#include "reference/config/config.hpp"
#include "reference/judge/check.hpp"

namespace fp8_sdpa::tests {

/// The configuration under test: SDPA_CONFIG, else the repository's config_forward.json. Ends the
/// process with exit code 2 and the reader's one line when the file is malformed: nothing is run.
const reference::Config& config();

/// The device of a backend, or the reason why it cannot be used here.
Result<Device> device_of(Backend backend);

/// Skips the calling test when the backend cannot be used, with the reason; with SDPA_REQUIRE_GPU=1
/// fails it instead. Returns whether the test may go on.
bool use_backend(Backend backend, Device* device);

/// Inputs and references of (shape, seed, dtype), made once per process.
std::shared_ptr<const reference::CaseData> case_data(const reference::Shape& shape,
                                                     std::uint64_t seed,
                                                     Dtype dtype = Dtype::kE4M3);

/// A shape of the ladder's kind by its sizes, with uniform(-1, 1) inputs.
reference::Shape make_shape(int batch, int heads, std::int64_t seq_q, std::int64_t seq_kv,
                            int head_dim = 64);

/// Runs the gates and turns a failure, or a variant that declines, into a gtest failure.
void expect_pass(const Variant& variant, const reference::CaseData& data, const Device& device,
                 const reference::CheckOptions& options = {});

/// Whether a variant may say this of a valid problem: what it does not serve yet. A decline that is
/// not on this list is a failure, so that nothing goes untested by accident.
bool is_known_decline(const Status& status);

/// Whether the variant serves a shape; if not, its reason must be a known decline. Without a dtype,
/// of the variant's codes.
bool serves_or_known_decline(const Variant& variant, const reference::Shape& shape,
                             const Device& device, const reference::CheckOptions& options = {},
                             std::optional<Dtype> dtype = std::nullopt);

/// expect_pass() on drawn inputs where the variant serves the shape; otherwise the decline must be
/// a known one. Asks the variant before anything is computed.
void expect_pass_or_known_decline(const Variant& variant, const reference::Shape& shape,
                                  std::uint64_t seed, const Device& device,
                                  const reference::CheckOptions& options = {},
                                  std::optional<Dtype> dtype = std::nullopt);

/// Both backends, as gtest parameters.
inline const std::vector<Backend> kBackends = {Backend::kHost, Backend::kDevice};

/// All variants, as gtest parameters.
std::vector<const Variant*> all_variants();

/// One kernel of a variant and what it is for: a row of sm90's table of tile shapes, or a variant
/// of another family at the head dim that it is for.
struct Kernel {
  std::string name;  ///< "sm90_kv_split_d64_exact", "stage_c_cp_async"
  const Variant* variant = nullptr;
  int head_dim = 64;
  LseSum lse_sum = LseSum::kDenominator;  ///< that the problems that are its own ask for
  bool many_keys = false;                 ///< it serves more than 128 keys and no fewer
  bool few_keys = false;                  ///< it serves at most 128 keys
  int tile_n = 0;                         ///< of sm90: keys of a KV tile, and
  int stages = 0;                         ///< of sm90: tiles in flight; else 0

  Dtype codes() const { return variant != nullptr ? variant->codes() : Dtype::kE4M3; }
  /// `few` keys, at most 128, or as many more as it takes for this kernel.
  std::int64_t keys(std::int64_t few) const { return many_keys ? few + 128 : few; }
  /// `many` query rows of a head, or as many as this kernel serves.
  std::int64_t rows(std::int64_t many) const {
    constexpr std::int64_t kMostOfDecode = 64;
    const bool few = variant != nullptr && variant->family == Family::kDecode;
    return few && many > kMostOfDecode ? kMostOfDecode : many;
  }
};
std::vector<Kernel> all_kernels();
void PrintTo(const Kernel& kernel, std::ostream* os);

/// (backend, variant), named "<backend>_<variant>".
using BackendVariant = std::tuple<Backend, const Variant*>;
std::string name_of_parameter(const testing::TestParamInfo<BackendVariant>& info);

/// A suite that is asked of every variant on each backend.
class VariantTest : public testing::TestWithParam<BackendVariant> {
 protected:
  void SetUp() override { ready_ = use_backend(std::get<0>(GetParam()), &device_); }
  const Variant& variant() const { return *std::get<1>(GetParam()); }
  Dtype codes() const { return variant().codes(); }
  /// The head dims that the variant has kernels for.
  std::vector<int> head_dims() const;
  /// Kernel::keys(), rows() and few_keys.
  std::int64_t keys(std::int64_t few) const { return kernel().keys(few); }
  std::int64_t rows(std::int64_t many) const { return kernel().rows(many); }
  bool few_keys() const { return kernel().few_keys; }

  bool ready_ = false;
  Device device_;

 private:
  /// The first of the variant's.
  Kernel kernel() const;
};

/// Blocks of `size` elements in another order: to[i] = from[order[i]].
template <class T>
std::vector<T> permuted(const std::vector<T>& from, const std::vector<std::int64_t>& order,
                        std::int64_t size) {
  std::vector<T> to(from.size());
  if (from.empty()) return to;  // declined
  for (std::size_t i = 0; i < order.size(); ++i) {
    std::copy_n(from.begin() + order[i] * size, size,
                to.begin() + static_cast<std::int64_t>(i) * size);
  }
  return to;
}

}  // namespace fp8_sdpa::tests
