#include "benchmarks/peers/unquantised/unquantised.hpp"

#include <cstdio>
#include <memory>
#include <string>
#include <utility>

#include "benchmarks/measure/timer.hpp"
#include "benchmarks/peers/peer.hpp"
#include "benchmarks/peers/unquantised/head_judge.hpp"
#include "benchmarks/peers/unquantised/unquantised_case.hpp"
#include "reference/formats/half.hpp"
#if FP8_SDPA_HAS_DEVICE
#include "gpu/cuda_check.hpp"
#endif

namespace fp8_sdpa::bench {
namespace {

using nlohmann::json;
using reference::Buffer;
using reference::Shape;

constexpr int kSamples = 15;
constexpr int kWarmUps = 5;

struct Options {
  const char* name;
  QuantiseOptions options;
};
constexpr Options kOptions[] = {{"plain", {false, false}},
                                {"rotate", {true, false}},
                                {"smooth", {false, true}},
                                {"both", {true, true}}};
constexpr Options kPlain = kOptions[0];
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

/// What is launched in turns, and its name in a row.
struct Launches {
  std::vector<Launch> all;
  std::vector<std::string> names;

  Status add(const std::string& name, Result<Launch> launch) {
    if (!launch.ok()) return launch.status();
    all.push_back(std::move(*launch));
    names.push_back(name);
    return {};
  }
};

/// Errors of each way to go from bf16 to bf16.
Status judge(const Shape& shape, const reference::Inputs& values, UnquantisedCase& tensors,
             const std::vector<UnquantisedPeer>& peers, json& row) {
  const HeadJudge judge(shape, values, tensors.seed());
  for (const Granularity granularity : kGranularities) {
    row["exact_" + name_of(granularity, "both")] =
        judge.rmse_of_exact(/*rotate=*/true, /*smooth=*/true, granularity);
  }
  const auto compare = [&](const std::string& name, const Launch& launch, Dtype format,
                           double scale) -> Status {
    const auto bits = tensors.output_of(launch);
    if (!bits.ok()) return bits.status();
    row["rmse_" + name] = judge.rmse(decode_output(*bits, format, scale));
    return {};
  };
  const auto compare_ours = [&](const std::string& name, const Result<Launch>& call) -> Status {
    return call.ok() ? compare(name, *call, Dtype::kBFloat16, 1) : call.status();
  };
  for (const Granularity granularity : kGranularities) {
    for (const Options& of : kOptions) {
      if (Status s =
              compare_ours(name_of(granularity, of.name), tensors.call(of.options, granularity));
          !s.ok()) {
        return s;
      }
    }
  }
  if (Status s =
          compare_ours("int8", tensors.call(kBoth.options, Granularity::kHead, Precision::kInt8));
      !s.ok()) {
    return s;
  }
  for (const UnquantisedPeer& peer : peers) {
    if (peer.launch == nullptr) {
      row[peer.name] = peer.why;
    } else if (Status s = compare(peer.name, peer.launch, peer.output, peer.scale); !s.ok()) {
      return s;
    }
  }
  return {};
}

/// Whole calls, attention alone, and peers.
Status time_calls(UnquantisedCase& tensors, const std::vector<UnquantisedPeer>& peers, json& row) {
  const auto chosen = tensors.plan_call(kBoth.options, Granularity::kBlock, Precision::kFp8);
  if (!chosen.ok()) return chosen.status();
  row["variant"] = chosen->attention().variant_name();
  row["granularity"] = fp8_sdpa::name_of(chosen->attention().problem().descales.granularity);
  Launches launches;
  for (const Granularity granularity : kGranularities) {
    const std::string whose = granularity == Granularity::kBlock ? "" : "heads_";
    for (const auto& [name, launch] :
         {std::pair{"ours_" + whose + "us", tensors.call(kBoth.options, granularity)},
          {"ours_" + whose + "plain_us", tensors.call(kPlain.options, granularity)},
          {"attention_" + whose + "us", tensors.attention_alone(granularity)}}) {
      if (Status s = launches.add(name, launch); !s.ok()) return s;
    }
  }
  for (const auto& [name, launch] :
       {std::pair{"int8_us", tensors.call(kBoth.options, Granularity::kHead, Precision::kInt8)},
        {"attention_int8_us", tensors.attention_alone(Granularity::kHead, Precision::kInt8)}}) {
    if (Status s = launches.add(name, launch); !s.ok()) return s;
  }
  for (const UnquantisedPeer& peer : peers) {
    if (peer.launch == nullptr) continue;
    if (Status s = launches.add(std::string(peer.name) + "_us", peer.launch); !s.ok()) return s;
  }
  const auto medians = time_in_turns(launches.all, Method::kQueuedWarm, kWarmUps, kSamples);
  if (!medians.ok()) return medians.status();
  for (std::size_t i = 0; i < launches.names.size(); ++i) row[launches.names[i]] = (*medians)[i];
  return {};
}

/// The quantiser on K, beside a copy of as many bytes read and written together: 2 and 1 an
/// element.
Status time_quantiser(const Shape& shape, UnquantisedCase& tensors, json& row) {
  const auto heads = static_cast<std::size_t>(shape.batch * shape.heads_q);
  const std::size_t elements = heads * static_cast<std::size_t>(shape.seq_kv * shape.head_dim);
  auto from = tensors.buffer(elements * 3 / 2, "a copy's source");
  auto to = tensors.buffer(elements * 3 / 2, "a copy");
  auto codes = tensors.buffer(elements, "codes");
  const auto blocks =
      static_cast<std::size_t>(descales_of_head(Granularity::kBlock, shape.seq_kv, kKeysOfBlock));
  auto descales = tensors.buffer(heads * blocks * sizeof(float), "descales");
  for (const auto* made : {&from, &to, &codes, &descales}) {
    if (!made->ok()) return made->status();
  }
  const std::vector<float> fixed(heads * blocks, 0.05F);
  if (Status s = (*descales)->upload(fixed.data()); !s.ok()) return s;
  Launches launches;
  const Launch copied = [&](CUstream_st* stream) { return copy(**from, **to, stream); };
  if (Status s = launches.add("copy", copied); !s.ok()) return s;
  Quantisation q = tensors.quantisation(tensors.attention().k, (*codes)->data(),
                                        static_cast<float*>((*descales)->data()));
  q.static_descales = true;
  if (Status s = launches.add("static", tensors.quantiser(q)); !s.ok()) return s;
  q.static_descales = false;
  for (const Granularity granularity : kGranularities) {
    q.block_rows = granularity == Granularity::kBlock ? kKeysOfBlock : 0;
    for (const Options& of : kOptions) {
      q.rotate = of.options.rotate;
      q.smooth = of.options.smooth;
      if (Status s = launches.add(name_of(granularity, of.name), tensors.quantiser(q)); !s.ok()) {
        return s;
      }
    }
  }
  const auto medians = time_in_turns(launches.all, Method::kQueuedWarm, kWarmUps, kSamples);
  if (!medians.ok()) return medians.status();
  row["copy_us"] = (*medians)[0];
  for (std::size_t i = 1; i < launches.names.size(); ++i) {
    row["share_" + launches.names[i]] = (*medians)[0] / (*medians)[i];
  }
  return {};
}

Result<json> measure(const Shape& shape, const reference::Inputs& values, const Device& device) {
  auto made = UnquantisedCase::make(shape, values, device);
  if (!made.ok()) return made.status();
  UnquantisedCase& tensors = **made;
  const auto peers = tensors.peers();
  if (!peers.ok()) return peers.status();
  json row = {{"shape", shape.name}, {"batch", shape.batch},       {"heads", shape.heads_q},
              {"seq", shape.seq_q},  {"head_dim", shape.head_dim}, {"mask", name_of(shape.mask)}};
  if (Status s = judge(shape, values, tensors, *peers, row); !s.ok()) return s;
  if (Status s = time_calls(tensors, *peers, row); !s.ok()) return s;
  if (Status s = time_quantiser(shape, tensors, row); !s.ok()) return s;
  return row;
}

std::string line_of(const json& row) {
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
  json rows = json::array();
  reference::Inputs values;  // of both masks
  for (std::size_t i = 0; i < shapes.size(); ++i) {
    output.progress(shapes[i].name);
    if (i == 0 || !reference::same_inputs(shapes[i - 1], shapes[i])) {
      auto drawn = reference::draw_inputs(shapes[i], seed);
      if (!drawn.ok()) return drawn.status();
      values = std::move(*drawn);
      for (auto* tensor : {&values.q, &values.k, &values.v}) round_to_bf16(*tensor);
    }
    auto row = measure(shapes[i], values, device);
    if (!row.ok()) return row.status();
    output.line(line_of(*row));
    rows.push_back(std::move(*row));
    if (Status s = keep(rows); !s.ok()) return s;
  }
  return {};
}

}  // namespace fp8_sdpa::bench
