// Any bytes as a configuration: a Config whose shapes are possible, or one line that says why not.
#include <string>

#include "reference/config/config.hpp"
#include "reference/inputs/inputs.hpp"
#include "tests/fuzz/target.hpp"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using fp8_sdpa::fuzz::expect;
  const std::string text(reinterpret_cast<const char*>(data), size);
  const auto config = fp8_sdpa::reference::parse_config(text, "fuzz.json");
  if (!config.ok()) {
    expect(!config.status().message().empty());
    expect(config.status().message().find('\n') == std::string::npos);
    return 0;
  }
  expect(!config->shapes.empty() && !config->seeds.empty());
  for (const auto& shape : config->shapes) {
    expect(shape.batch > 0 && shape.heads_q > 0 && shape.heads_kv > 0 && shape.head_dim > 0);
    expect(shape.seq_q > 0 && shape.seq_kv > 0 && shape.heads_q % shape.heads_kv == 0);
    expect(fp8_sdpa::reference::find_input_family(shape.inputs.family) != nullptr);
  }
  expect(config->timing.timed_iters > 0);
  return 0;
}
