#include "reference/judge/quantise_check.hpp"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>
#include <memory>
#include <sstream>
#include <string>

#include "reference/formats/fp8.hpp"
#include "reference/formats/half.hpp"
#include "reference/formats/quantise.hpp"
#include "reference/inputs/distributions.hpp"
#include "reference/inputs/philox.hpp"
#include "reference/oracle/memory.hpp"

namespace fp8_sdpa::reference {
namespace {

constexpr std::uint32_t kCountBefore = 5;
constexpr double kLeastDescale = 0x1p-100;

/// Input in the memory layout and the dtype that are asked for; padding is NaN.
std::vector<std::uint8_t> memory_of(const QuantiserCase& request,
                                    const std::vector<float>& values) {
  std::vector<std::uint8_t> bytes;
  const auto append = [&](const auto& elements) {
    bytes.resize(elements.size() * sizeof(elements[0]));
    std::memcpy(bytes.data(), elements.data(), bytes.size());
  };
  const Extent extent = request.extent(8);
  if (request.from == Dtype::kFloat) {
    append(extent.scatter(values));
  } else {
    std::vector<std::uint16_t> codes;
    for (const float x : values) codes.push_back(encode_16(x, request.from));
    append(extent.scatter(codes));
  }
  return bytes;
}

/// The vectors that rows are multiplied with, (heads / dot_group, head_dim).
std::vector<float> dot_vectors(const QuantiserCase& request) {
  if (request.dot_group == 0) return {};
  const PhiloxStream stream(43, request.seed);
  std::vector<float> vectors(request.all_heads() / static_cast<std::size_t>(request.dot_group) *
                             static_cast<std::size_t>(request.head_dim));
  for (std::size_t i = 0; i < vectors.size(); ++i) {
    vectors[i] = normal_from_word(stream.word(i), 0.0, 1.0);
  }
  return vectors;
}

/// What is to be quantised, after the transformations, and how far fp32 may be from it.
struct Transformed {
  std::vector<double> values;
  std::vector<double> slack;
  std::vector<double> mean;
  std::vector<double> dots;
  std::vector<double> dot_slack;
};

Transformed transform(const QuantiserCase& request, const std::vector<float>& from) {
  Transformed result;
  result.values.assign(from.begin(), from.end());
  result.slack.assign(from.size(), 0.0);
  const auto dim = static_cast<std::size_t>(request.head_dim);
  if (request.rotate) {
    // Some 19 sums of at most the row's l1 norm / sqrt(dim), each cut off after 23 bits.
    for (std::size_t row = 0; row < from.size(); row += dim) {
      double norm = 0.0;
      for (std::size_t c = 0; c < dim; ++c) {
        if (std::isfinite(from[row + c])) norm += std::fabs(from[row + c]);
      }
      const double slack = 0x1p-18 * norm / std::sqrt(static_cast<double>(dim));
      std::fill_n(result.slack.begin() + static_cast<std::ptrdiff_t>(row), dim, slack);
    }
    result.values = rotate(result.values, request.head_dim, request.seed);
  }
  const std::vector<float> vectors = dot_vectors(request);
  const std::size_t rows = from.size() / dim;
  for (std::size_t row = 0; !vectors.empty() && row < rows; ++row) {
    const std::size_t head = row / (rows / request.all_heads());
    const float* const with = &vectors[head / static_cast<std::size_t>(request.dot_group) * dim];
    double dot = 0.0;
    double slack = 0.0;
    for (std::size_t c = 0; c < dim; ++c) {
      const double x = result.values[row * dim + c];
      dot += x * with[c];
      slack += (result.slack[row * dim + c] + 0x1p-20 * std::fabs(x)) * std::fabs(with[c]);
    }
    result.dots.push_back(dot);
    result.dot_slack.push_back(slack);
  }
  if (!request.smooth) return result;
  const auto heads = static_cast<std::int64_t>(request.all_heads());
  result.mean = means({from.begin(), from.end()}, heads, request.head_dim);
  if (request.rotate) result.mean = rotate(result.mean, request.head_dim, request.seed);
  const std::size_t per_head = from.size() / request.all_heads();
  std::vector<double> largest(request.all_heads());
  for (std::size_t i = 0; i < from.size(); ++i) {
    if (!std::isfinite(result.values[i])) continue;
    double& most = largest[i / per_head];
    most = std::max(most, std::fabs(result.values[i]));
  }
  for (std::size_t i = 0; i < from.size(); ++i) {
    result.values[i] -= result.mean[i / per_head * dim + i % dim];
    result.slack[i] += 0x1p-20 * largest[i / per_head];
  }
  return result;
}

/// The largest difference over what is allowed of it, or the number of wrong elements, and where
/// the worst one is.
class Worst {
 public:
  Worst(const char* name, double threshold) : gate_{name, 0.0, threshold, true, ""} {}

  /// @pre allowed >= 0
  void differs(double got, double want, double allowed, std::size_t index) {
    const double error = std::fabs(got - want);
    const double infinity = std::numeric_limits<double>::infinity();
    see(error <= allowed ? (allowed > 0.0 ? error / allowed : 0.0)
                         : (allowed > 0.0 && error < infinity ? error / allowed : infinity),
        got, want, index);
  }
  /// One more that is wrong.
  void wrong(double got, double want, std::size_t index) {
    see(gate_.value + 1.0, got, want, index);
  }
  GateResult take() {
    gate_.pass = gate_.value <= gate_.threshold;
    if (gate_.pass) gate_.detail.clear();
    return std::move(gate_);
  }

 private:
  void see(double value, double got, double want, std::size_t index) {
    if (value <= gate_.value) return;
    gate_.value = value;
    std::ostringstream text;
    text << "element " << index << ": " << got << ", not " << want;
    gate_.detail = text.str();
  }
  GateResult gate_;
};

}  // namespace

Status quantise_now(const QuantisePlan& plan, void* workspace) {
  return quantise(plan, workspace, nullptr);
}

std::vector<float> quantiser_values(const QuantiserCase& request) {
  const PhiloxStream stream(41, static_cast<std::uint64_t>(request.seq));
  std::vector<float> values(request.extent(0).contiguous_elements());
  const auto dim = static_cast<std::size_t>(request.head_dim);
  const std::size_t per_head = values.size() / request.all_heads();
  const std::size_t rows = per_head / dim;
  for (std::size_t i = 0; i < values.size(); ++i) {
    const std::size_t head = i / per_head;
    const std::size_t row = i % per_head / dim;
    const std::size_t column = i % dim;
    float x = normal_from_word(stream.word(i), column % 5 == 0 ? 2.0 : 0.0, 1.0);
    if (row == head * 29 % rows && column == head * 13 % dim) x = head % 2 == 0 ? 40.0F : -40.0F;
    x = std::ldexp(x + static_cast<float>(request.offset), static_cast<int>(head * 5 % 13) - 6);
    values[i] =
        request.from == Dtype::kFloat ? x : decode_16(encode_16(x, request.from), request.from);
  }
  return values;
}

Result<Quantised> run_quantiser(const QuantiserCase& request, const std::vector<float>& values,
                                const Device& device, std::vector<GateResult>& gates,
                                const Quantiser& quantiser) {
  const Extent in = request.extent(8);
  const Extent out = request.extent(16);
  const std::size_t heads = request.all_heads();
  const std::size_t mean_size = heads * static_cast<std::size_t>(request.head_dim);
  const bool fixed = !request.static_descales.empty();
  Status problem;
  const auto buffer = [&](std::size_t bytes, const void* contents, const char* name) {
    std::unique_ptr<Buffer> made;
    auto allocated = allocate(device, bytes, name);
    if (!allocated.ok()) {
      problem = allocated.status();
      return made;
    }
    made = std::move(*allocated);
    const Status filled = contents != nullptr ? made->upload(contents) : made->poison();
    if (!filled.ok()) problem = filled;
    return made;
  };
  const std::vector<std::uint8_t> memory = memory_of(request, values);
  const auto from = buffer(memory.size(), memory.data(), "from");
  const auto codes = buffer(out.elements(), nullptr, "codes");
  const auto descales = buffer(heads * request.blocks() * sizeof(float),
                               fixed ? request.static_descales.data() : nullptr, "descales");
  const auto mean = buffer(mean_size * sizeof(float), nullptr, "mean");
  const auto infinities = buffer(sizeof kCountBefore, &kCountBefore, "infinities");
  const std::vector<float> vectors = dot_vectors(request);
  const std::size_t rows = heads * static_cast<std::size_t>(request.seq);
  const auto dots = buffer(rows * sizeof(float), nullptr, "dots");
  const auto dot_with = buffer(std::max<std::size_t>(1, vectors.size()) * sizeof(float),
                               vectors.empty() ? nullptr : vectors.data(), "dot_with");
  if (!problem.ok()) return problem;

  Quantisation q;
  q.batch = request.batch;
  q.heads = request.heads;
  q.seq = request.seq;
  q.head_dim = request.head_dim;
  q.from = in.view(from->data(), request.from);
  if (request.broadcast) q.from.stride_head = q.from.stride_batch = 0;
  q.codes = out.view(codes->data(), request.to);
  q.descales = static_cast<float*>(descales->data());
  q.static_descales = fixed;
  q.block_rows = request.block_rows;
  q.rotate = request.rotate;
  q.seed = request.seed;
  q.smooth = request.smooth;
  if (request.keeps_mean) q.mean = static_cast<float*>(mean->data());
  if (request.counts) q.infinities = static_cast<std::uint32_t*>(infinities->data());
  if (!vectors.empty()) {
    q.dot_with = static_cast<const float*>(dot_with->data());
    q.dots = static_cast<float*>(dots->data());
    q.dot_group = request.dot_group;
  }
  const auto made = plan(q, device);
  if (!made.ok()) return made.status();
  const auto workspace = buffer(made->workspace_bytes(), nullptr, "workspace");
  if (!problem.ok()) return problem;

  Quantised outcome;
  std::vector<std::uint8_t> code_memory(out.elements());
  outcome.descales.resize(heads * request.blocks());
  outcome.mean.resize(mean_size);
  outcome.dots.resize(rows);
  // One after the other: an initialiser list evaluates them in this order.
  for (const Status& status :
       {quantiser(*made, workspace->data()), synchronise(device),
        codes->download(code_memory.data()), descales->download(outcome.descales.data()),
        mean->download(outcome.mean.data()), dots->download(outcome.dots.data()),
        infinities->download(&outcome.infinities)}) {
    if (!status.ok()) return status;
  }
  std::int64_t changed = 0;
  std::string where;
  for (const auto* one :
       {&from, &codes, &descales, &mean, &infinities, &dots, &dot_with, &workspace}) {
    const auto bytes = (*one)->changed_guard_bytes();
    if (!bytes.ok()) return bytes.status();
    changed += *bytes;
    if (*bytes != 0) where += (where.empty() ? "around " : ", ") + (*one)->name();
  }
  gates.push_back(count_gate("guards", changed, where));
  std::int64_t written = 0;
  for (const ByteRange& gap : out.gaps(1)) {
    written += static_cast<std::int64_t>(gap.end - gap.begin) -
               std::count(code_memory.data() + gap.begin, code_memory.data() + gap.end, 0xFF);
  }
  gates.push_back(count_gate("padding", written, "padding of the codes was written"));
  outcome.codes = out.gather(code_memory);
  outcome.infinities -= kCountBefore;
  if (!request.smooth || !request.keeps_mean) outcome.mean.clear();
  if (vectors.empty()) outcome.dots.clear();
  return outcome;
}

std::vector<GateResult> judge_quantised(const QuantiserCase& request,
                                        const std::vector<float>& values,
                                        const Quantised& outcome) {
  Worst descales("descales", 1.0);
  Worst means("mean", 1.0);
  Worst dots("dots", 1.0);
  Worst codes("codes", 0.0);
  const std::size_t per_head = values.size() / request.all_heads();
  const Transformed want = transform(request, values);
  const bool plain = !request.rotate && !request.smooth;
  const auto dim = static_cast<std::size_t>(request.head_dim);
  const double largest = max_finite(request.to);
  for (std::size_t row = 0; row < want.dots.size(); ++row) {
    if (std::isnan(want.dots[row]) && std::isnan(outcome.dots[row])) continue;
    if (want.dots[row] == outcome.dots[row]) continue;  // infinities
    dots.differs(outcome.dots[row], want.dots[row], want.dot_slack[row], row);
  }
  const std::size_t per_block =
      request.block_rows == 0 ? per_head : static_cast<std::size_t>(request.block_rows) * dim;
  for (std::size_t head = 0; head < request.all_heads(); ++head) {
    const auto of_head = want.slack.begin() + static_cast<std::ptrdiff_t>(head * per_head);
    const double slack =
        *std::max_element(of_head, of_head + static_cast<std::ptrdiff_t>(per_head));
    for (std::size_t c = 0; request.smooth && request.keeps_mean && c < dim; ++c) {
      means.differs(outcome.mean[head * dim + c], want.mean[head * dim + c], slack, head * dim + c);
    }
  }
  for (std::size_t nth = 0; nth < outcome.descales.size(); ++nth) {
    const std::size_t head = nth / request.blocks();
    const std::size_t begin = head * per_head + nth % request.blocks() * per_block;
    const std::size_t end = std::min(begin + per_block, (head + 1) * per_head);
    double amax = 0.0;
    double slack = 0.0;
    const auto is_nan = [&](std::size_t i) { return std::isnan(want.values[i]); };
    bool told = false;  // of NaN, by the descale: signed bytes have none
    for (std::size_t i = begin; i < end; ++i) {
      told = told || (request.to == Dtype::kInt8 && is_nan(i));
      if (std::isfinite(want.values[i])) amax = std::max(amax, std::fabs(want.values[i]));
      slack = std::max(slack, want.slack[i]);
    }
    const float descale = outcome.descales[nth];
    const double exact = amax / largest;
    if (!request.static_descales.empty()) {
      descales.differs(descale, request.static_descales[nth], 0.0, nth);
    } else if (told) {
      descales.differs(std::isnan(descale) ? 1.0 : descale, 1.0, 0.0, nth);
      continue;
    } else if (exact < kLeastDescale) {
      // Or what rounding has left of a single row, less its mean.
      const bool is_right = descale == 1.0F || std::fabs(descale) <= slack / largest;
      descales.differs(is_right ? 1.0 : descale, 1.0, 0.0, nth);
    } else if (plain) {
      descales.differs(descale, static_cast<float>(amax) / max_finite(request.to), 0.0, nth);
    } else {
      descales.differs(descale, exact, slack / largest + 0x1p-23 * exact, nth);
    }
    for (std::size_t i = begin; i < end; ++i) {
      if (told && is_nan(i)) continue;
      const auto value = [&](std::uint8_t code) { return decode_table(request.to)[code]; };
      const auto encode = [&](double x) {
        return encode_code(static_cast<float>(x) * (1.0F / descale), request.to);
      };
      const std::uint8_t code = outcome.codes[i];
      const float got = value(code);
      const std::uint8_t nearest = encode(want.values[i]);
      bool is_right = code == nearest;
      if (!plain && std::isnan(want.values[i])) {
        is_right = std::isnan(got);
      } else if (!plain) {
        is_right = got >= value(encode(want.values[i] - want.slack[i])) &&
                   got <= value(encode(want.values[i] + want.slack[i]));
      }
      if (!is_right) codes.wrong(got, value(nearest), i);
    }
  }
  std::vector<GateResult> gates;
  for (Worst* worst : {&descales, &means, &dots, &codes}) gates.push_back(worst->take());
  const std::int64_t infinite =
      request.counts
          ? std::count_if(values.begin(), values.end(), [](float x) { return std::isinf(x); })
          : 0;
  gates.push_back(count_gate(
      "infinities", std::abs(infinite - std::int64_t{outcome.infinities}),
      std::to_string(outcome.infinities) + " are counted of " + std::to_string(infinite)));
  return gates;
}

}  // namespace fp8_sdpa::reference
