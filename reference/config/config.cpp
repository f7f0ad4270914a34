#include "reference/config/config.hpp"

#include <algorithm>
#include <array>
#include <utility>

#include "reference/formats/json_reader.hpp"
#include "reference/inputs/inputs.hpp"

namespace fp8_sdpa::reference {
namespace {

constexpr int kSchemaVersion = 1;
constexpr std::size_t kMaxFileBytes = std::size_t{1} << 20;
constexpr std::int64_t kMaxSize = INT32_MAX;
constexpr std::int64_t kMaxElements = std::int64_t{1} << 40;
constexpr std::int64_t kMaxIterations = 1'000'000;
// Far above any sensible input, and low enough that high - low stays finite in fp32.
constexpr double kMaxMagnitude = 1e30;
constexpr double kAllPercent = 100.0;

InputSpec read_inputs(const Json& value, const JsonPointer& at, JsonReader& reader) {
  InputSpec spec;
  if (!value.is_object() || !value.contains("family")) {
    reader.object(value, at, {"family"}, {"low", "high", "mean", "stddev"});
    return spec;
  }
  const Json& family = value.at("family");
  if (family == "uniform") {
    if (!reader.object(value, at, {"family", "low", "high"})) return spec;
    spec.family = "uniform";
    spec.low = reader.number(value.at("low"), at / "low", -kMaxMagnitude, kMaxMagnitude);
    spec.high = reader.number(value.at("high"), at / "high", -kMaxMagnitude, kMaxMagnitude);
    if (!(spec.low < spec.high)) {
      reader.refuse(at / "high", value.at("high"), "a number > low = " + text_of(spec.low));
    }
  } else if (family == "normal") {
    if (!reader.object(value, at, {"family", "mean", "stddev"})) return spec;
    spec.family = "normal";
    spec.mean = reader.number(value.at("mean"), at / "mean", -kMaxMagnitude, kMaxMagnitude);
    spec.stddev = reader.number(value.at("stddev"), at / "stddev", 0.0, kMaxMagnitude);
    if (!(spec.stddev > 0)) reader.refuse(at / "stddev", value.at("stddev"), "a number > 0");
  } else if (family.is_string() && find_input_family(family.get<std::string>()) != nullptr) {
    if (!reader.object(value, at, {"family"})) return spec;
    spec.family = family.get<std::string>();
  } else {
    std::string known;
    for (const InputFamily& each : input_families()) {
      known += (known.empty() ? "one of " : ", ") + std::string(each.name);
    }
    reader.refuse(at / "family", family, known);
  }
  return spec;
}

std::vector<std::string> read_suites(const Json& parent, const JsonPointer& at,
                                     JsonReader& reader) {
  std::vector<std::string> suites;
  const Json* list =
      reader.array(parent, at, "suites", R"(a list of suite names, such as ["default"])");
  if (list == nullptr) return suites;
  for (std::size_t i = 0; i < list->size() && reader.ok(); ++i) {
    const JsonPointer here = at / "suites" / i;
    std::string suite = reader.name(list->at(i), here);
    if (std::find(suites.begin(), suites.end(), suite) != suites.end()) {
      reader.refuse(here, list->at(i), "each suite once");
    }
    suites.push_back(std::move(suite));
  }
  return suites;
}

/// Sizes are bounded one by one and together: offsets are 64-bit, products of four sizes are not.
void check_elements(const Shape& shape, const Json& value, const JsonPointer& at,
                    JsonReader& reader) {
  for (const std::int64_t seq : {shape.seq_q, shape.seq_kv}) {
    std::int64_t left = kMaxElements;
    for (const std::int64_t size : {std::int64_t{shape.batch}, std::int64_t{shape.heads_q}, seq,
                                    std::int64_t{shape.head_dim}}) {
      left /= size;
    }
    if (left == 0) {
      reader.refuse(at, value, "at most " + std::to_string(kMaxElements) + " elements in a tensor");
    }
  }
}

Shape read_shape(const Json& value, const JsonPointer& at, const InputSpec& inputs,
                 JsonReader& reader) {
  Shape shape;
  shape.inputs = inputs;
  if (!reader.object(value, at, {"name", "B", "H", "S", "D", "suites"},
                     {"H_kv", "S_kv", "mask", "inputs"})) {
    return shape;
  }
  const auto size_of_key = [&](const char* key) {
    return reader.integer(value.at(key), at / key, 1, kMaxSize);
  };
  shape.name = reader.name(value.at("name"), at / "name");
  shape.batch = static_cast<int>(size_of_key("B"));
  shape.heads_q = static_cast<int>(size_of_key("H"));
  shape.seq_q = size_of_key("S");
  shape.head_dim = static_cast<int>(size_of_key("D"));
  shape.heads_kv = value.contains("H_kv") ? static_cast<int>(size_of_key("H_kv")) : shape.heads_q;
  shape.seq_kv = value.contains("S_kv") ? size_of_key("S_kv") : shape.seq_q;
  shape.suites = read_suites(value, at, reader);
  if (value.contains("mask")) {
    const Json& mask = value.at("mask");
    if (mask != "none" && mask != "causal")
      reader.refuse(at / "mask", mask, R"("none" or "causal")");
    shape.mask = mask == "causal" ? Mask::kCausal : Mask::kNone;
  }
  if (value.contains("inputs")) {
    shape.inputs = read_inputs(value.at("inputs"), at / "inputs", reader);
  }
  if (!reader.ok()) return shape;
  if (shape.heads_q % shape.heads_kv != 0) {
    reader.refuse(at / "H_kv", value.at("H_kv"),
                  "a divisor of H = " + std::to_string(shape.heads_q));
  }
  check_elements(shape, value, at, reader);
  return shape;
}

std::vector<Shape> read_shapes(const Json& root, const InputSpec& inputs, JsonReader& reader) {
  std::vector<Shape> shapes;
  const Json* list = reader.array(root, JsonPointer(), "shapes", "a list of at least one shape");
  if (list == nullptr) return shapes;
  for (std::size_t i = 0; i < list->size() && reader.ok(); ++i) {
    const JsonPointer at = JsonPointer() / "shapes" / i;
    Shape shape = read_shape(list->at(i), at, inputs, reader);
    const auto same = std::find_if(shapes.begin(), shapes.end(),
                                   [&](const Shape& other) { return other.name == shape.name; });
    if (reader.ok() && same != shapes.end()) {
      reader.refuse(
          at / "name", list->at(i).at("name"),
          "each name once (/shapes/" + std::to_string(same - shapes.begin()) + " has it too)");
    }
    shapes.push_back(std::move(shape));
  }
  return shapes;
}

std::vector<std::uint64_t> read_seeds(const Json& root, JsonReader& reader) {
  std::vector<std::uint64_t> seeds;
  const Json* list = reader.array(root, JsonPointer(), "seeds", "a list of at least one seed");
  if (list == nullptr) return seeds;
  for (std::size_t i = 0; i < list->size() && reader.ok(); ++i) {
    const JsonPointer at = JsonPointer() / "seeds" / i;
    const Json& value = list->at(i);
    if (!value.is_number_unsigned()) {
      reader.refuse(at, value, "an integer in [0, 18446744073709551615]");
      break;
    }
    const auto seed = value.get<std::uint64_t>();
    if (std::find(seeds.begin(), seeds.end(), seed) != seeds.end()) {
      reader.refuse(at, value, "each seed once");
    }
    seeds.push_back(seed);
  }
  return seeds;
}

Tolerances read_tolerances(const Json& value, const JsonPointer& at, JsonReader& reader) {
  Tolerances t;
  struct Field {
    const char* key;
    double* target;
    double high;
  };
  const std::array fields = {
      Field{"max_abs_err", &t.max_abs_err, kMaxMagnitude},
      Field{"mean_abs_err", &t.mean_abs_err, kMaxMagnitude},
      Field{"pct_bad", &t.pct_bad, kAllPercent},
      Field{"bad_threshold", &t.bad_threshold, kMaxMagnitude},
      Field{"rel_l2_quantised", &t.rel_l2_quantised, kMaxMagnitude},
      Field{"abs_kernel", &t.abs_kernel, kMaxMagnitude},
      Field{"rel_l2_kernel", &t.rel_l2_kernel, kMaxMagnitude},
      Field{"rel_l2_kernel_fp8_p", &t.rel_l2_kernel_fp8_p, kMaxMagnitude},
  };
  std::vector<const char*> keys;
  for (const Field& field : fields) keys.push_back(field.key);
  if (!reader.object(value, at, keys)) return t;
  for (const Field& field : fields) {
    *field.target = reader.number(value.at(field.key), at / field.key, 0.0, field.high);
  }
  return t;
}

Timing read_timing(const Json& value, const JsonPointer& at, JsonReader& reader) {
  Timing timing;
  if (!reader.object(value, at, {"warmup_iters", "timed_iters"})) return timing;
  timing.warmup_iters = static_cast<int>(
      reader.integer(value.at("warmup_iters"), at / "warmup_iters", 0, kMaxIterations));
  timing.timed_iters = static_cast<int>(
      reader.integer(value.at("timed_iters"), at / "timed_iters", 1, kMaxIterations));
  return timing;
}

}  // namespace

const Shape* Config::find_shape(const std::string& name) const {
  const auto found = std::find_if(shapes.begin(), shapes.end(),
                                  [&](const Shape& shape) { return shape.name == name; });
  return found == shapes.end() ? nullptr : &*found;
}

Result<Config> parse_config(const std::string& text, const std::string& path) {
  const Result<Json> root = parse_json(text, path);
  if (!root.ok()) return root.status();
  JsonReader reader(path);
  Config config;
  config.path = path;
  const JsonPointer at;
  if (reader.object(*root, at,
                    {"schema_version", "inputs", "shapes", "seeds", "tolerances", "timing"})) {
    reader.integer(root->at("schema_version"), at / "schema_version", kSchemaVersion,
                   kSchemaVersion);
    const InputSpec inputs = read_inputs(root->at("inputs"), at / "inputs", reader);
    config.shapes = read_shapes(*root, inputs, reader);
    config.seeds = read_seeds(*root, reader);
    config.tolerances = read_tolerances(root->at("tolerances"), at / "tolerances", reader);
    config.timing = read_timing(root->at("timing"), at / "timing", reader);
  }
  if (!reader.ok()) return reader.status();
  return config;
}

Result<Config> load_config(const std::string& path) {
  const Result<std::string> text =
      read_text_file(path, kMaxFileBytes, "a readable JSON configuration file");
  if (!text.ok()) return text.status();
  return parse_config(*text, path);
}

}  // namespace fp8_sdpa::reference
