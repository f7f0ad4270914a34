#include "tests/gates/gate_cases.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <mutex>
#include <regex>
#include <set>

#include "sm90/tile_shapes.hpp"

namespace fp8_sdpa::tests {

const reference::Config& config() {
  static const reference::Config loaded = [] {
    const char* path = std::getenv("SDPA_CONFIG");
    auto result = reference::load_config(path != nullptr ? path : FP8_SDPA_CONFIG_FILE);
    if (!result.ok()) {
      std::fprintf(stderr, "%s\n", result.status().message().c_str());
      constexpr int kBadConfig = 2;
      std::exit(kBadConfig);
    }
    return std::move(*result);
  }();
  return loaded;
}

Result<Device> device_of(Backend backend) {
  if (backend == Backend::kDevice) return current_device();
#if FP8_SDPA_HAS_HOST
  return host_executor();
#else
  return unsupported("this build has no host executor (SDPA_HOST_EXECUTOR=OFF)");
#endif
}

bool use_backend(Backend backend, Device* device) {
  static const std::map<Backend, Result<Device>> devices = {
      {Backend::kHost, device_of(Backend::kHost)}, {Backend::kDevice, device_of(Backend::kDevice)}};
  const Result<Device>& found = devices.at(backend);
  if (found.ok()) {
    *device = *found;
    return true;
  }
  const char* required = std::getenv("SDPA_REQUIRE_GPU");
  if (required != nullptr && std::string(required) == "1") {
    ADD_FAILURE() << "SDPA_REQUIRE_GPU=1, but " << found.status().message();
  } else {
    [](const std::string& reason) { GTEST_SKIP() << reason; }(found.status().message());
  }
  return false;
}

std::shared_ptr<const reference::CaseData> case_data(const reference::Shape& shape,
                                                     std::uint64_t seed, Dtype dtype) {
  using Key = std::tuple<std::string, std::uint64_t, Dtype>;
  static std::mutex mutex;
  static std::map<Key, std::shared_ptr<const reference::CaseData>> cache;
  const std::lock_guard lock(mutex);
  auto& entry = cache[{shape.name, seed, dtype}];
  if (entry == nullptr) entry = reference::make_case(shape, seed, dtype);
  return entry;
}

reference::Shape make_shape(int batch, int heads, std::int64_t seq_q, std::int64_t seq_kv,
                            int head_dim) {
  reference::Shape shape;
  shape.name = std::string("b").append(std::to_string(batch)) + "_h" + std::to_string(heads) +
               "_q" + std::to_string(seq_q) + "_kv" + std::to_string(seq_kv) + "_d" +
               std::to_string(head_dim);
  shape.batch = batch;
  shape.heads_q = shape.heads_kv = heads;
  shape.seq_q = seq_q;
  shape.seq_kv = seq_kv;
  shape.head_dim = head_dim;
  return shape;
}

void expect_pass(const Variant& variant, const reference::CaseData& data, const Device& device,
                 const reference::CheckOptions& options) {
  reference::CheckOptions check = options;
#if defined(__SANITIZE_THREAD__)
  check.rerun = false;  // a second run accesses what the first did, in the same order
#endif
  const auto result = reference::check(variant, data, device, config().tolerances, check);
  ASSERT_TRUE(result.ok()) << variant.name << ": " << result.status().message();
  EXPECT_TRUE(result->pass) << variant.name << ": " << result->failure();
  EXPECT_FALSE(result->gates.empty()) << "no gate judged " << variant.name;
}

bool is_known_decline(const Status& status) {
  if (status.code() != StatusCode::kUnsupported) return false;
  // Of sm90, e5m2: its weights are E4M3 and its wgmma takes both operands in one format each, so
  // that every pair of formats would be a kernel of its own; E4M3 came first.
  static const std::regex kKnown(
      " serves (head_dim [0-9, andor]+, not|no mask, not|heads_q == heads_kv, not|"
      "one FP8 format for q, k and v, not|a row-major v \\(stride_dim 1\\), not|"
      "a half or bf16 o, not e4m3|"
      "e4m3, not e5m2|int8 q and k and (half|bf16) v, not|(at most|more than) 128 keys, not|"
      "at most 64 query rows of a KV head of whole tensors, not)");
  return std::regex_search(status.message(), kKnown);
}

bool serves_or_known_decline(const Variant& variant, const reference::Shape& shape,
                             const Device& device, const reference::CheckOptions& options,
                             std::optional<Dtype> dtype) {
  const Status status =
      reference::serves(variant, shape, dtype.value_or(variant.codes()), device, options);
  if (status.ok()) return true;
  EXPECT_TRUE(is_known_decline(status)) << variant.name << " declines: " << status.message();
  return false;
}

void expect_pass_or_known_decline(const Variant& variant, const reference::Shape& shape,
                                  std::uint64_t seed, const Device& device,
                                  const reference::CheckOptions& options,
                                  std::optional<Dtype> dtype) {
  if (!serves_or_known_decline(variant, shape, device, options, dtype)) return;
  expect_pass(variant, *case_data(shape, seed, dtype.value_or(variant.codes())), device, options);
}

std::vector<const Variant*> all_variants() {
  std::vector<const Variant*> all;
  for (const Variant& variant : variants()) all.push_back(&variant);
  return all;
}

std::vector<Kernel> all_kernels() {
  std::vector<Kernel> kernels;
  for (const Variant& variant : variants()) {
    if (variant.family == Family::kDecode) {
      for (const int head_dim : {64, 128, 256}) {
        kernels.push_back(
            {std::string(variant.name) + "_d" + std::to_string(head_dim), &variant, head_dim});
      }
    } else if (variant.family != Family::kSm90) {
      kernels.push_back({std::string(variant.name), &variant});
    }
  }
  for (const sm90::TileShape& shape : sm90::kTileShapes) {
    kernels.push_back({std::string(shape.kernel), *find_variant(shape.variant), shape.head_dim,
                       shape.sums == sm90::Sums::exact ? LseSum::kExact : LseSum::kDenominator,
                       !shape.config.two_terms && !shape.config.int8(), shape.config.two_terms,
                       shape.config.tile_n, shape.config.stages});
  }
  return kernels;
}

void PrintTo(const Kernel& kernel, std::ostream* os) { *os << kernel.name; }

std::string name_of_parameter(const testing::TestParamInfo<BackendVariant>& info) {
  const auto& [backend, variant] = info.param;
  return std::string(name_of(backend)) + "_" + std::string(variant->name);
}

std::vector<int> VariantTest::head_dims() const {
  std::set<int> served;
  for (const Kernel& kernel : all_kernels()) {
    if (kernel.variant == &variant()) served.insert(kernel.head_dim);
  }
  return {served.begin(), served.end()};
}

Kernel VariantTest::kernel() const {
  const auto kernels = all_kernels();
  return *std::find_if(kernels.begin(), kernels.end(),
                       [&](const Kernel& kernel) { return kernel.variant == &variant(); });
}

}  // namespace fp8_sdpa::tests
