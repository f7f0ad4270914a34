#include "benchmarks/run/drawn_shapes.hpp"

#include <algorithm>
#include <cmath>
#include <random>
#include <string>

#include "benchmarks/measure/perf_record.hpp"

namespace fp8_sdpa::bench {
namespace {

using reference::Shape;

class Draw {
 public:
  explicit Draw(std::uint64_t seed) : random_(seed) {}

  Shape shape() {
    constexpr double kMostKeys = 32768;
    constexpr double kMostHeads = 256;
    constexpr int kMostGroup = 8;
    constexpr int kMostHalvings = 6;
    Shape shape = of_keys(kMostKeys);
    const bool square = below(2) == 0;
    const int halvings = 1 + below(kMostHalvings);
    shape.seq_q = square ? shape.seq_kv : std::max<std::int64_t>(1, shape.seq_kv >> halvings);
    const auto heads = static_cast<int>(log_uniform(1, kMostHeads));
    const int group = std::min(heads, 1 + below(kMostGroup));
    const int kv_heads = heads / group;  // of all batches
    shape.batch = static_cast<int>(log_uniform(1, kv_heads));
    shape.heads_kv = kv_heads / shape.batch;
    shape.heads_q = shape.heads_kv * group;
    finish(shape);
    return shape;
  }

  Shape shape_of_few_rows() {
    constexpr double kMostRows = 64;
    constexpr double kMostKeys = 65536;
    constexpr double kMostHeads = 512;
    constexpr double kMostGroup = 16;
    Shape shape = of_keys(kMostKeys);
    shape.seq_q = log_uniform(1, kMostRows);
    const std::int64_t kv_heads = log_uniform(1, kMostHeads);  // of all batches
    shape.batch = static_cast<int>(log_uniform(1, static_cast<double>(kv_heads)));
    shape.heads_kv = static_cast<int>(kv_heads / shape.batch);
    shape.heads_q = shape.heads_kv * static_cast<int>(log_uniform(1, kMostGroup));
    finish(shape);
    return shape;
  }

 private:
  static constexpr int kDims[] = {64, 128, 256};

  Shape of_keys(double most) {
    Shape shape;
    shape.head_dim = kDims[below(3)];
    shape.seq_kv = log_uniform(64, most);
    return shape;
  }

  void finish(Shape& shape) {
    shape.mask = below(2) == 0 ? Mask::kNone : Mask::kCausal;
    shape.inputs.family = "normal";
    shape.name = name_of_sizes(shape);
  }

  /// In [0, 1); by hand, because the standard leaves its distributions to the library.
  double unit() { return static_cast<double>(random_() >> 11) * 0x1p-53; }
  int below(int count) { return static_cast<int>(unit() * count); }
  std::int64_t log_uniform(double low, double high) {
    const double drawn = low * std::exp2(unit() * std::log2(high / low));
    return std::clamp(std::llround(drawn), std::llround(low), std::llround(high));
  }

  static std::string name_of_sizes(const Shape& shape) {
    return "d" + std::to_string(shape.head_dim) + "_b" + std::to_string(shape.batch) + "_h" +
           std::to_string(shape.heads_q) + "_kv" + std::to_string(shape.heads_kv) + "_q" +
           std::to_string(shape.seq_q) + "_k" + std::to_string(shape.seq_kv) +
           (shape.mask == Mask::kCausal ? "_causal" : "");
  }

  std::mt19937_64 random_;
};

bool fits(const Shape& shape) {
  constexpr double kMostFlop = 4e12;
  constexpr std::int64_t kMostElements = std::int64_t{1} << 28;
  return flop_count(shape) <= kMostFlop &&
         shape.seq_kv * shape.batch * shape.heads_kv * shape.head_dim <= kMostElements;
}

}  // namespace

std::vector<Shape> drawn_shapes(int count, std::uint64_t seed, bool few_rows) {
  Draw draw(seed);
  std::vector<Shape> shapes;
  while (static_cast<int>(shapes.size()) < count) {
    Shape shape = few_rows ? draw.shape_of_few_rows() : draw.shape();
    const bool again = std::any_of(shapes.begin(), shapes.end(),
                                   [&](const Shape& other) { return other.name == shape.name; });
    if (fits(shape) && !again) shapes.push_back(std::move(shape));
  }
  return shapes;
}

}  // namespace fp8_sdpa::bench
