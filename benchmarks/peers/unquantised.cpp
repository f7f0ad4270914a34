#include "benchmarks/peers/unquantised.hpp"

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <functional>
#include <memory>
#include <string>
#include <utility>

#include "benchmarks/measure/timer.hpp"
#include "benchmarks/peers/cudnn_graph.hpp"
#include "benchmarks/peers/head_judge.hpp"
#include "fp8_sdpa/quantise.hpp"
#include "fp8_sdpa/unquantised.hpp"
#include "reference/formats/half.hpp"
#include "reference/inputs/inputs.hpp"
#include "reference/oracle/memory.hpp"
#if FP8_SDPA_HAS_DEVICE
#include "gpu/cuda_check.hpp"
#endif

namespace fp8_sdpa::bench {
namespace {

using reference::Buffer;
using reference::Shape;
using Memory = std::unique_ptr<Buffer>;
using Launch = std::function<Status(CUstream_st*)>;

constexpr int kSamples = 15;
constexpr int kWarmUps = 5;

struct Options {
  const char* name;
  bool rotate, smooth;
};
constexpr Options kOptions[] = {{"plain", false, false},
                                {"rotate", true, false},
                                {"smooth", false, true},
                                {"both", true, true}};
constexpr Options kBoth = kOptions[3];
constexpr Granularity kGranularities[] = {Granularity::kHead, Granularity::kBlock};
/// "both" or "blocks_both".
std::string name_of(Granularity granularity, const char* options) {
  return std::string(granularity == Granularity::kBlock ? "blocks_" : "") + options;
}

/// Values as bf16 holds them.
void round_to_bf16(std::vector<float>& values) {
  for (float& x : values) {
    x = reference::decode_16(reference::encode_16(x, Dtype::kBFloat16), Dtype::kBFloat16);
  }
}

Status copy([[maybe_unused]] const Buffer& from, [[maybe_unused]] const Buffer& to,
            [[maybe_unused]] CUstream_st* stream) {
#if FP8_SDPA_HAS_DEVICE
  return FP8_SDPA_CUDA_STATUS(
      cudaMemcpyAsync(to.data(), from.data(), to.size(), cudaMemcpyDeviceToDevice, stream));
#else
  return unsupported("this build has no device code");
#endif
}

/// One shape's tensors and what is done with them.
class Contest {
 public:
  /// `values` are as bf16 holds them.
  Contest(const Shape& shape, const reference::Inputs& values, const Device& device)
      : shape_(shape), values_(values), device_(device) {}

  Result<nlohmann::json> run() {
    if (Status s = fill(); !s.ok()) return s;
    row_ = {{"shape", shape_.name}, {"batch", shape_.batch},       {"heads", shape_.heads_q},
            {"seq", shape_.seq_q},  {"head_dim", shape_.head_dim}, {"mask", name_of(shape_.mask)}};
    if (Status s = judge(); !s.ok()) return s;
    if (Status s = time_calls(); !s.ok()) return s;
    if (Status s = time_quantiser(); !s.ok()) return s;
    return row_;
  }

 private:
  Result<Memory> buffer(std::size_t bytes, const char* name) const {
    return reference::allocate(device_, bytes, name);
  }

  Status fill() {
    Problem& p = problem_.attention;
    p.batch = shape_.batch;
    p.heads_q = p.heads_kv = shape_.heads_q;
    p.seq_q = p.seq_kv = shape_.seq_q;
    p.head_dim = shape_.head_dim;
    p.mask = shape_.mask;
    p.softmax_scale = static_cast<float>(1.0 / std::sqrt(shape_.head_dim));
    const std::int64_t head = shape_.seq_q * shape_.head_dim;
    const auto add = [&](Tensor& tensor, std::size_t elements) -> Status {
      auto made = buffer(elements * sizeof(std::uint16_t), "a bf16 tensor");
      if (!made.ok()) return made.status();
      tensor = {(*made)->data(), Dtype::kBFloat16, shape_.heads_q * head, head, shape_.head_dim, 1};
      tensors_.push_back(std::move(*made));
      return {};
    };
    for (const auto& [tensor, values] :
         {std::pair{&p.q, &values_.q}, {&p.k, &values_.k}, {&p.v, &values_.v}}) {
      if (Status s = add(*tensor, values->size()); !s.ok()) return s;
      std::vector<std::uint16_t> bits;
      bits.reserve(values->size());
      for (const float x : *values) bits.push_back(reference::encode_16(x, Dtype::kBFloat16));
      if (Status s = tensors_.back()->upload(bits.data()); !s.ok()) return s;
    }
    return add(p.o, values_.q.size());
  }

  Status judge() {
    const HeadJudge judge(shape_, values_, problem_.seed);
    for (const Granularity granularity : kGranularities) {
      row_["exact_" + name_of(granularity, "both")] =
          judge.rmse_of_exact(/*rotate=*/true, /*smooth=*/true, granularity);
    }
    const auto compare = [&](const std::string& name) -> Status {
      std::vector<std::uint16_t> bits(values_.q.size());
      if (Status s = tensors_.back()->download(bits.data()); !s.ok()) return s;
      row_["rmse_" + name] = judge.rmse(bits);
      return {};
    };
    for (const Granularity granularity : kGranularities) {
      for (const Options& options : kOptions) {
        auto call = prepare(options, granularity);
        if (!call.ok()) return call.status();
        if (Status s = once(*call); !s.ok()) return s;
        if (Status s = compare(name_of(granularity, options.name)); !s.ok()) return s;
      }
    }
    auto int8 = prepare(kBoth, Granularity::kHead, Precision::kInt8);
    if (!int8.ok()) return int8.status();
    if (Status s = once(*int8); !s.ok()) return s;
    if (Status s = compare("int8"); !s.ok()) return s;
    auto cudnn = CudnnGraph::make(problem_.attention, device_, /*as_bf16=*/true);
    if (!cudnn.ok()) {
      row_["cudnn_bf16"] = cudnn.status().message();
      return {};
    }
    cudnn_ = std::move(*cudnn);
    const auto launch = [&](CUstream_st* stream) { return cudnn_->launch(stream); };
    if (Status s = once(launch); !s.ok()) return s;
    return compare("cudnn_bf16");
  }

  Status once(const Launch& launch) const {
    if (Status s = tensors_.back()->poison(); !s.ok()) return s;
    if (Status s = launch(nullptr); !s.ok()) return s;
    return reference::synchronise(device_);
  }

  /// The call with these options, its workspace kept.
  Result<Launch> prepare(const Options& options, Granularity granularity,
                         Precision precision = Precision::kFp8) {
    UnquantisedProblem problem = problem_;
    problem.granularity = granularity;
    problem.precision = precision;
    problem.rotate = options.rotate;
    problem.smooth = options.smooth;
    auto made = plan(problem, device_);
    if (!made.ok()) return made.status();
    auto workspace = buffer(made->workspace_bytes(), "workspace");
    if (!workspace.ok()) return workspace.status();
    workspaces_.push_back(std::move(*workspace));
    if (granularity == Granularity::kBlock) {
      row_["variant"] = made->attention().variant_name();
      row_["granularity"] = fp8_sdpa::name_of(made->attention().problem().descales.granularity);
    }
    return Launch([made = *made, memory = workspaces_.back()->data()](CUstream_st* stream) {
      return forward(made, memory, stream);
    });
  }

  /// Of a tensor of the problem.
  Quantisation quantisation(const Tensor& from, void* codes, float* descales, int block_rows = 0,
                            Dtype format = Dtype::kE4M3) const {
    Quantisation q;
    q.batch = shape_.batch;
    q.heads = shape_.heads_q;
    q.seq = shape_.seq_q;
    q.head_dim = shape_.head_dim;
    q.from = q.codes = from;
    q.codes.data = codes;
    q.codes.dtype = format;
    q.descales = descales;
    q.block_rows = block_rows;
    return q;
  }
  /// The launch of a quantisation; its workspace is kept.
  Result<Launch> prepare(const Quantisation& q) {
    const auto made = plan(q, device_);
    if (!made.ok()) return made.status();
    auto workspace = buffer(made->workspace_bytes(), "workspace");
    if (!workspace.ok()) return workspace.status();
    workspaces_.push_back(std::move(*workspace));
    return Launch([made = *made, memory = workspaces_.back()->data()](CUstream_st* stream) {
      return quantise(made, memory, stream);
    });
  }

  /// Attention on codes of the problem's tensors, with Precision::kInt8 on V itself.
  Result<Launch> prepare_attention(Granularity granularity, Precision precision = Precision::kFp8) {
    const bool int8 = precision == Precision::kInt8;
    Problem codes = problem_.attention;
    const std::int64_t heads = std::int64_t{codes.batch} * codes.heads_q;
    auto bytes = buffer(values_.q.size() * 3, "codes");
    const auto scales_of = [&](int block_rows) {
      return heads * descales_of_head(granularity, codes.seq_q, block_rows);
    };
    const std::int64_t of_q = scales_of(kQueriesOfBlock);
    const std::int64_t of_kv = scales_of(kKeysOfBlock);
    auto scales = buffer(static_cast<std::size_t>(of_q + 2 * of_kv) * sizeof(float), "descales");
    for (const auto* made : {&bytes, &scales}) {
      if (!made->ok()) return made->status();
    }
    auto* next = static_cast<std::uint8_t*>((*bytes)->data());
    auto* scale = static_cast<float*>((*scales)->data());
    codes.descales = {scale, scale + of_q, scale + of_q + of_kv, granularity};
    const bool blocks = granularity == Granularity::kBlock;
    if (int8) codes.descales.v = nullptr;
    for (Tensor* tensor : {&codes.q, &codes.k, &codes.v}) {
      if (int8 && tensor == &codes.v) continue;
      const int rows = tensor == &codes.q ? kQueriesOfBlock : kKeysOfBlock;
      const Quantisation q =
          quantisation(*tensor, next, scale, blocks ? rows : 0, int8 ? Dtype::kInt8 : Dtype::kE4M3);
      auto quantised = prepare(q);
      if (!quantised.ok()) return quantised.status();
      if (Status s = (*quantised)(nullptr); !s.ok()) return s;
      *tensor = q.codes;
      next += values_.q.size();
      scale += tensor == &codes.q ? of_q : of_kv;
    }
    if (Status s = reference::synchronise(device_); !s.ok()) return s;
    const auto made = plan(codes, device_);
    if (!made.ok()) return made.status();
    auto workspace = buffer(std::max<std::size_t>(1, made->workspace_bytes()), "workspace");
    if (!workspace.ok()) return workspace.status();
    void* const memory = (*workspace)->data();
    for (auto* kept : {&bytes, &scales, &workspace}) workspaces_.push_back(std::move(**kept));
    return Launch(
        [made = *made, memory](CUstream_st* stream) { return forward(made, memory, stream); });
  }

  Status time_calls() {
    std::vector<Launch> launches;
    std::vector<std::string> names;
    for (const Granularity granularity : kGranularities) {
      const bool blocks = granularity == Granularity::kBlock;
      auto ours = prepare(kBoth, granularity);
      auto attention = prepare_attention(granularity);
      for (auto* made : {&ours, &attention}) {
        if (!made->ok()) return made->status();
        launches.push_back(std::move(**made));
        names.emplace_back(made == &ours ? (blocks ? "ours_us" : "ours_heads_us")
                                         : (blocks ? "attention_us" : "attention_heads_us"));
      }
    }
    auto int8 = prepare(kBoth, Granularity::kHead, Precision::kInt8);
    auto int8_attention = prepare_attention(Granularity::kHead, Precision::kInt8);
    for (auto* made : {&int8, &int8_attention}) {
      if (!made->ok()) return made->status();
      launches.push_back(std::move(**made));
      names.emplace_back(made == &int8 ? "int8_us" : "attention_int8_us");
    }
    if (cudnn_ != nullptr) {
      launches.emplace_back([&](CUstream_st* stream) { return cudnn_->launch(stream); });
      names.emplace_back("cudnn_bf16_us");
    }
    const auto medians = time_in_turns(launches, Method::kQueuedWarm, kWarmUps, kSamples);
    if (!medians.ok()) return medians.status();
    for (std::size_t i = 0; i < names.size(); ++i) row_[names[i]] = (*medians)[i];
    return {};
  }

  Status time_quantiser() {
    const std::size_t elements = values_.k.size();
    // As many bytes read and written together: 2 and 1 an element.
    auto from = buffer(elements * 3 / 2, "a copy's source");
    auto to = buffer(elements * 3 / 2, "a copy");
    auto codes = buffer(elements, "codes");
    const auto heads = static_cast<std::size_t>(shape_.batch * shape_.heads_q);
    const auto blocks = static_cast<std::size_t>(
        descales_of_head(Granularity::kBlock, shape_.seq_kv, kKeysOfBlock));
    auto descales = buffer(heads * blocks * sizeof(float), "descales");
    for (const auto* made : {&from, &to, &codes, &descales}) {
      if (!made->ok()) return made->status();
    }
    const std::vector<float> fixed(heads * blocks, 0.05F);
    if (Status s = (*descales)->upload(fixed.data()); !s.ok()) return s;
    std::vector<Launch> launches = {
        [&](CUstream_st* stream) { return copy(**from, **to, stream); }};
    std::vector<std::string> names;
    Quantisation q = quantisation(problem_.attention.k, (*codes)->data(),
                                  static_cast<float*>((*descales)->data()));
    q.static_descales = true;
    const auto add = [&](const std::string& name) -> Status {
      auto launch = prepare(q);
      if (!launch.ok()) return launch.status();
      launches.push_back(std::move(*launch));
      names.push_back(name);
      return {};
    };
    if (Status s = add("static"); !s.ok()) return s;
    q.static_descales = false;
    for (const Granularity granularity : kGranularities) {
      q.block_rows = granularity == Granularity::kBlock ? kKeysOfBlock : 0;
      for (const Options& options : kOptions) {
        q.rotate = options.rotate;
        q.smooth = options.smooth;
        if (Status s = add(name_of(granularity, options.name)); !s.ok()) return s;
      }
    }
    const auto medians = time_in_turns(launches, Method::kQueuedWarm, kWarmUps, kSamples);
    if (!medians.ok()) return medians.status();
    row_["copy_us"] = (*medians)[0];
    for (std::size_t i = 0; i < names.size(); ++i) {
      row_["share_" + names[i]] = (*medians)[0] / (*medians)[i + 1];
    }
    return {};
  }

  const Shape& shape_;
  const reference::Inputs& values_;
  const Device& device_;
  UnquantisedProblem problem_;
  std::vector<Memory> tensors_;  ///< Q, K, V, O
  std::vector<Memory> workspaces_;
  std::unique_ptr<CudnnGraph> cudnn_;
  nlohmann::json row_;
};

std::string line_of(const nlohmann::json& row) {
  std::string text = row.at("shape").get<std::string>() + ":";
  for (const auto& [name, value] : row.items()) {
    if (!value.is_number_float()) continue;
    char number[64];
    std::snprintf(number, sizeof number, " %s %.4g", name.c_str(), value.get<double>());
    text += number;
  }
  return text;
}

}  // namespace

std::vector<Shape> unquantised_shapes() {
  std::vector<Shape> shapes;
  // The short ones first: a run that is ended early then has every head_dim.
  for (const std::int64_t seq : {4096, 8192, 16384}) {
    for (const int head_dim : {64, 128, 256}) {
      for (const Mask mask : {Mask::kNone, Mask::kCausal}) {
        const int heads = head_dim == 256 ? 8 : 16;
        const std::string name = "d" + std::to_string(head_dim) + "_" + std::to_string(seq / 1024) +
                                 "k" + (mask == Mask::kCausal ? "_causal" : "");
        shapes.push_back(reference::shape_of(name, {2, heads, heads, seq, seq, head_dim, mask}));
        shapes.back().inputs.family = "outliers";
      }
    }
  }
  return shapes;
}

Status measure_unquantised(const std::vector<Shape>& shapes, std::uint64_t seed,
                           const Device& device, const Output& output,
                           const std::function<Status(const nlohmann::json& rows)>& keep) {
  nlohmann::json rows = nlohmann::json::array();
  reference::Inputs values;  // of both masks
  for (std::size_t i = 0; i < shapes.size(); ++i) {
    output.progress(shapes[i].name);
    if (i == 0 || !reference::same_inputs(shapes[i - 1], shapes[i])) {
      auto drawn = reference::draw_inputs(shapes[i], seed);
      if (!drawn.ok()) return drawn.status();
      values = std::move(*drawn);
      for (auto* tensor : {&values.q, &values.k, &values.v}) round_to_bf16(*tensor);
    }
    auto row = Contest(shapes[i], values, device).run();
    if (!row.ok()) return row.status();
    output.line(line_of(*row));
    rows.push_back(std::move(*row));
    if (Status s = keep(rows); !s.ok()) return s;
  }
  return {};
}

}  // namespace fp8_sdpa::bench
