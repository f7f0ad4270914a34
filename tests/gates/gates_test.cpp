// Every variant on every shape and seed of the configuration, on each backend. The
// list is made when the binary starts, so that a shape added to the file is tested with no rebuild.
#include <gtest/gtest.h>

#include <cstdlib>
#include <ostream>

#include "tests/gates/gate_cases.hpp"

namespace fp8_sdpa::tests {

struct GateCase {
  Backend backend;
  const reference::Shape* shape;
  std::uint64_t seed;
  const Variant* variant;
};

void PrintTo(const GateCase& c, std::ostream* os) {
  *os << name_of(c.backend) << " " << c.shape->name << " seed=" << c.seed << " " << c.variant->name;
}

namespace {

// The host executor is for correctness, not size: by default it runs shapes up to this many scores,
// which holds every path of the kernels, and those above kEverySeed with one seed a variant,
// another for the next one. SDPA_ALL_SHAPES=1 runs the rest there too.
constexpr std::int64_t kHostScores = std::int64_t{1} * 8 * 512 * 512;
constexpr std::int64_t kEverySeed = std::int64_t{1} * 2 * 256 * 256;

bool is_for(Backend backend, const reference::Shape& shape, std::size_t variant, std::size_t seed) {
  const char* all = std::getenv("SDPA_ALL_SHAPES");
  if (backend == Backend::kDevice || (all != nullptr && std::string(all) == "1")) return true;
  const std::int64_t scores =
      std::int64_t{shape.batch} * shape.heads_q * shape.seq_q * shape.seq_kv;
  if (scores > kHostScores) return false;
  return scores <= kEverySeed || variant % config().seeds.size() == seed;
}

// Whether the variant is for such shapes: sm90's are for a head dim, and for few keys or many.
// Asked of the host executor, which every build on a machine without a GPU has.
bool is_for(const Variant& variant, const reference::Shape& shape) {
  const Result<Device> host = device_of(Backend::kHost);
  if (!host.ok()) return true;
  const Status status = reference::serves(variant, shape, variant.codes(), *host);
  return status.ok() || !is_known_decline(status);
}

std::vector<GateCase> gate_cases() {
  std::vector<GateCase> cases;
  const std::vector<const Variant*> variants = all_variants();
  const std::vector<std::uint64_t>& seeds = config().seeds;
  for (const Backend backend : kBackends) {
    for (const reference::Shape& shape : config().shapes) {
      for (std::size_t seed = 0; seed < seeds.size(); ++seed) {
        for (std::size_t v = 0; v < variants.size(); ++v) {
          if (!is_for(backend, shape, v, seed) || !is_for(*variants[v], shape)) continue;
          cases.push_back({backend, &shape, seeds[seed], variants[v]});
        }
      }
    }
  }
  return cases;
}

std::string name_of_case(const testing::TestParamInfo<GateCase>& info) {
  const GateCase& c = info.param;
  return std::string(name_of(c.backend)) + "_" + c.shape->name + "_seed" + std::to_string(c.seed) +
         "_" + std::string(c.variant->name);
}

class ForwardGate : public testing::TestWithParam<GateCase> {};

TEST_P(ForwardGate, Passes) {
  Device device;
  if (!use_backend(GetParam().backend, &device)) return;
  const auto data = case_data(*GetParam().shape, GetParam().seed, GetParam().variant->codes());
  expect_pass(*GetParam().variant, *data, device);
}

INSTANTIATE_TEST_SUITE_P(Gates, ForwardGate, testing::ValuesIn(gate_cases()), name_of_case);

}  // namespace
}  // namespace fp8_sdpa::tests
