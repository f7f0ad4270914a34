#include "fp8_sdpa/quantise.hpp"

#include <array>
#include <climits>
#include <cstdint>
#include <span>
#include <string>
#include <utility>

#include "dispatch/check_tensor.hpp"
#include "dispatch/which_quantiser.hpp"

namespace fp8_sdpa {
namespace {

using detail::NamedRange;
using detail::View;

std::uintptr_t descales_of_head(const Quantisation& q) {
  const std::int64_t rows = q.block_rows;
  return static_cast<std::uintptr_t>(rows == 0 ? 1 : (q.seq + rows - 1) / rows);
}

Status check_shape(const Quantisation& q) {
  if (Status s = detail::check_sizes({{"batch", q.batch}, {"heads", q.heads}, {"seq", q.seq}});
      !s.ok()) {
    return s;
  }
  if (q.dots == nullptr && q.dot_with != nullptr) {
    return invalid_argument("dot_with is given and dots is null; both or none");
  }
  if (q.dots != nullptr && (q.dot_group < 1 || q.heads % q.dot_group != 0)) {
    return invalid_argument("dot_group is " + std::to_string(q.dot_group) +
                            "; it must divide heads, which is " + std::to_string(q.heads));
  }
  if (q.block_rows != 0 && q.block_rows != kQueriesOfBlock && q.block_rows != kKeysOfBlock) {
    return unsupported("block_rows is " + std::to_string(q.block_rows) + "; " +
                       std::to_string(kQueriesOfBlock) + " and " + std::to_string(kKeysOfBlock) +
                       " are served, and 0 for a descale a head");
  }
  if (q.head_dim != 64 && q.head_dim != 128 && q.head_dim != 256) {
    return unsupported("head_dim is " + std::to_string(q.head_dim) +
                       "; 64, 128 and 256 are served");
  }
  constexpr std::int64_t kMaxSeq = std::int64_t{1} << 30;
  if (q.seq > kMaxSeq) {
    return unsupported("seq is " + std::to_string(q.seq) + "; at most 2^30 is served");
  }
  const std::int64_t heads = std::int64_t{q.batch} * q.heads;
  if (heads > INT_MAX / 8 || quantiser::all_tiles(q) > INT_MAX / 4) {
    return unsupported("batch * heads * seq is " + std::to_string(q.batch) + " * " +
                       std::to_string(q.heads) + " * " + std::to_string(q.seq) +
                       "; some 2^35 is served");
  }
  return {};
}

Status check_dtypes(const Quantisation& q) {
  const Dtype from = q.from.dtype;
  if (from != Dtype::kBFloat16 && from != Dtype::kHalf && from != Dtype::kFloat) {
    return invalid_argument(std::string("from.dtype is ") + name_of(from) +
                            "; it must be bf16, half or float");
  }
  if (!is_fp8(q.codes.dtype) && q.codes.dtype != Dtype::kInt8) {
    return invalid_argument(std::string("codes.dtype is ") + name_of(q.codes.dtype) +
                            "; it must be e4m3, e5m2 or int8");
  }
  if (q.codes.dtype == Dtype::kInt8 && q.block_rows != 0) {
    return unsupported("block_rows is " + std::to_string(q.block_rows) +
                       "; codes in int8 have a descale a head");
  }
  return {};
}

Status check_memory(const Quantisation& q) {
  const std::array<std::int64_t, 4> sizes = {q.batch, q.heads, q.seq, q.head_dim};
  const View from{"from", &q.from, sizes};
  const View codes{"codes", &q.codes, sizes};
  for (const View& view : {from, codes}) {
    if (Status s = detail::check_data(view); !s.ok()) return s;
    if (Status s = detail::check_strides(view); !s.ok()) return s;
  }
  if (Status s = detail::check_output_is_dense(codes); !s.ok()) return s;
  if (Status s = detail::check_pointer("descales", q.descales, alignof(float)); !s.ok()) return s;

  const auto heads = static_cast<std::uintptr_t>(q.batch) * static_cast<std::uintptr_t>(q.heads);
  std::array<NamedRange, 5> written = {
      {{"codes", detail::bytes_of(codes)},
       {"descales", detail::words_of(q.descales, heads * descales_of_head(q))}}};
  std::size_t count = 2;
  if (q.mean != nullptr) {
    if (Status s = detail::check_pointer("mean", q.mean, alignof(float)); !s.ok()) return s;
    const auto dim = static_cast<std::uintptr_t>(q.head_dim);
    written[count++] = {"mean", detail::words_of(q.mean, heads * dim)};
  }
  if (q.infinities != nullptr) {
    if (Status s = detail::check_pointer("infinities", q.infinities, alignof(std::uint32_t));
        !s.ok()) {
      return s;
    }
    const auto begin = reinterpret_cast<std::uintptr_t>(q.infinities);
    written[count++] = {"infinities", {begin, begin + sizeof(std::uint32_t)}};
  }
  std::array<NamedRange, 2> read = {{{"from", detail::bytes_of(from)}}};
  if (q.dots == nullptr) {
    return detail::check_apart(std::span(written).first(count), std::span(read).first(1));
  }
  for (const auto& [name, pointer] :
       {std::pair{"dots", static_cast<const float*>(q.dots)}, std::pair{"dot_with", q.dot_with}}) {
    if (Status s = detail::check_pointer(name, pointer, alignof(float)); !s.ok()) return s;
  }
  const auto dim = static_cast<std::uintptr_t>(q.head_dim);
  const auto group = static_cast<std::uintptr_t>(q.dot_group);
  written[count++] = {"dots", detail::words_of(q.dots, heads * static_cast<std::uintptr_t>(q.seq))};
  read[1] = {"dot_with", detail::words_of(q.dot_with, heads / group * dim)};
  return detail::check_apart(std::span(written).first(count), read);
}

}  // namespace

Result<QuantisePlan> plan(const Quantisation& quantisation, const Device& device) {
  if (Status s = check_shape(quantisation); !s.ok()) return s;
  if (Status s = check_dtypes(quantisation); !s.ok()) return s;
  if (Status s = check_memory(quantisation); !s.ok()) return s;
  const bool blocks = quantisation.block_rows != 0;
  if (Status s = detail::check_has_code(
          blocks ? "quantise of blocks of rows" : "quantise",
          blocks ? detail::kSmVersionOfSlabs : quantiser::kMinSmVersion, device);
      !s.ok()) {
    return s;
  }
  if (blocks && !detail::runs_slabs(device)) {
    return unsupported("quantise of blocks of rows needs sm_90 itself; " + device.name + " is sm_" +
                       std::to_string(device.sm_version));
  }
  if (blocks && !quantiser::has_slabs(quantisation.from, quantisation.seq)) {
    return unsupported(
        "from has strides of 0 or of 2^40 bytes; blocks of rows are read by TMA, "
        "which takes none of them: copy it, or ask for a descale a head");
  }
  QuantisePlan result;
  result.quantisation_ = quantisation;
  result.device_ = device;
  result.workspace_bytes_ = detail::is_of_slabs(quantisation, device)
                                ? quantiser::workspace_of_slabs(quantisation)
                                : quantiser::workspace_size(quantisation).all;
  return result;
}

Status quantise(const QuantisePlan& plan, void* workspace, CUstream_st* stream) {
  if (Status s = detail::check_pointer("workspace", workspace, QuantisePlan::kWorkspaceAlignment);
      !s.ok()) {
    return s;
  }
  const gpu::Queue queue{stream, plan.device().executor.get()};
  return detail::on_backend_of(plan.device(), [&]<Backend kBackend>() {
    return detail::launch_quantisation<kBackend>(plan.quantisation(), plan.device(), workspace,
                                                 queue);
  });
}

}  // namespace fp8_sdpa
