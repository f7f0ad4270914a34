#include "reference/judge/harness.hpp"

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstddef>

#include "reference/formats/fp8.hpp"
#include "reference/formats/half.hpp"

namespace fp8_sdpa::reference {
namespace {

/// Elements of padding: 16 bytes of FP8, as strides must be multiples of; 32 of an output.
constexpr std::int64_t kPadding = 16;

/// Every (rows, columns) matrix of `from`, transposed.
std::vector<std::uint8_t> transposed(const std::vector<std::uint8_t>& from, std::int64_t rows,
                                     std::int64_t columns) {
  std::vector<std::uint8_t> to(from.size());
  const auto size = static_cast<std::int64_t>(from.size());
  for (std::int64_t i = 0; i < size; ++i) {
    const std::int64_t row = i / columns % rows;
    const std::int64_t first = i - i % (rows * columns);
    to[static_cast<std::size_t>(first + i % columns * rows + row)] =
        from[static_cast<std::size_t>(i)];
  }
  return to;
}

}  // namespace

float scale_of_output(const CaseData& data) {
  float code = 0.0F;
  for (const std::uint8_t bits : data.v.codes) {
    const float value = std::abs(decode_table(data.v.dtype)[bits]);
    if (std::isfinite(value)) code = std::max(code, value);
  }
  float descale = 0.0F;
  for (const float value : data.v.descales) {
    if (std::isfinite(value)) descale = std::max(descale, std::abs(value));
  }
  const float largest = code * descale;
  if (!(largest > 0.0F)) return 1.0F;
  return std::exp2(std::ceil(std::log2(largest / max_finite(Dtype::kE4M3))));
}

std::vector<std::uint16_t> bits_of_codes(const std::vector<std::uint8_t>& codes, float scale) {
  constexpr std::uint8_t kPoison = 0xFF;
  const auto& table = decode_table(Dtype::kE4M3);
  std::vector<std::uint16_t> bits;
  bits.reserve(codes.size());
  for (const std::uint8_t code : codes) {
    bits.push_back(code == kPoison ? 0xFFFFU
                                   : encode_16(table[code] * scale, format_of_bits(Dtype::kE4M3)));
  }
  return bits;
}

Extent value_extent(const Shape& shape, const CheckOptions& options) {
  const std::int64_t padding = options.padded ? kPadding : 0;
  if (!options.transposed_v) {
    return {shape.batch,    shape.heads_kv,         shape.seq_kv,
            shape.head_dim, options.sequence_major, padding};
  }
  const std::int64_t to_16 = (kPadding - shape.seq_kv % kPadding) % kPadding;
  return {shape.batch,  shape.heads_kv,           shape.head_dim,
          shape.seq_kv, /*sequence_major=*/false, to_16 + padding};
}

Tensor value_view(const Extent& extent, const CheckOptions& options, void* data, Dtype dtype) {
  return options.transposed_v ? extent.transposed_view(data, dtype) : extent.view(data, dtype);
}

Dtype value_dtype(Dtype dtype, const CheckOptions& options) {
  return dtype == Dtype::kInt8 ? options.values : dtype;
}

std::vector<std::uint8_t> value_bytes(const QuantisedTensor& v, Dtype dtype) {
  if (size_of(dtype) == 1) return v.codes;
  std::vector<std::uint8_t> bytes(v.codes.size() * sizeof(std::uint16_t));
  for (std::size_t i = 0; i < v.codes.size(); ++i) {
    const std::uint16_t wide = encode_16(decode_table(v.dtype)[v.codes[i]], dtype);
    std::memcpy(&bytes[i * sizeof wide], &wide, sizeof wide);
  }
  return bytes;
}

GateResult count_gate(const char* name, std::int64_t count, std::string detail) {
  GateResult gate;
  gate.name = name;
  gate.value = static_cast<double>(count);
  gate.pass = count == 0;
  if (!gate.pass) gate.detail = std::move(detail);
  return gate;
}

std::vector<ByteRange> Extent::gaps(std::size_t element_size) const {
  std::vector<std::int64_t> starts;
  for_each_row([&](std::int64_t at, std::int64_t) { starts.push_back(at); });
  std::sort(starts.begin(), starts.end());
  std::vector<ByteRange> ranges;
  for (std::size_t i = 1; i < starts.size(); ++i) {
    const auto begin = static_cast<std::size_t>(starts[i - 1] + dim) * element_size;
    const auto end = static_cast<std::size_t>(starts[i]) * element_size;
    if (begin < end) ranges.push_back({begin, end});
  }
  return ranges;
}

bool RunOutput::operator==(const RunOutput& other) const {
  return o == other.o &&
         std::equal(lse.begin(), lse.end(), other.lse.begin(), other.lse.end(),
                    [](float a, float b) {
                      return std::bit_cast<std::uint32_t>(a) == std::bit_cast<std::uint32_t>(b);
                    });
}

Harness::Harness(const CaseData& data, const Device& device, const CheckOptions& options)
    : device_(device),
      q_{data.shape.batch,    data.shape.heads_q,     data.shape.seq_q,
         data.shape.head_dim, options.sequence_major, options.padded ? kPadding : 0},
      kv_{data.shape.batch,    data.shape.heads_kv,    data.shape.seq_kv,
          data.shape.head_dim, options.sequence_major, options.padded ? kPadding : 0},
      v_(value_extent(data.shape, options)) {}

Result<std::unique_ptr<Harness>> Harness::make(const CaseData& data, const Device& device,
                                               const CheckOptions& options) {
  std::unique_ptr<Harness> harness(new Harness(data, device, options));
  if (Status status = harness->set_up(data, options); !status.ok()) return status;
  return harness;
}

template <class T>
Status Harness::add_input(const std::vector<T>& values, const char* name,
                          std::vector<ByteRange> gaps) {
  InputBuffer input;
  input.bytes.resize(values.size() * sizeof(T));
  std::memcpy(input.bytes.data(), values.data(), input.bytes.size());
  auto buffer = allocate(device_, input.bytes.size(), name);
  if (!buffer.ok()) return buffer.status();
  if (Status status = (*buffer)->upload(input.bytes.data()); !status.ok()) return status;
  input.buffer = std::move(*buffer);
  input.gaps = std::move(gaps);
  inputs_.push_back(std::move(input));
  return {};
}

Status Harness::set_up(const CaseData& data, const CheckOptions& options) {
  o_scale_ = options.o_scale != 0.0F ? options.o_scale : scale_of_output(data);
  const std::vector<std::uint8_t> v =
      options.transposed_v ? transposed(data.v.codes, data.shape.seq_kv, data.shape.head_dim)
                           : data.v.codes;
  const auto add_v = [&] {
    if (data.dtype != Dtype::kInt8) return add_input(v_.scatter(v), "V", v_.gaps(1));
    QuantisedTensor laid_out = data.v;
    laid_out.codes = v;
    const auto bytes = value_bytes(laid_out, options.values);
    std::vector<std::uint16_t> wide(v.size());
    std::memcpy(wide.data(), bytes.data(), bytes.size());
    return add_input(v_.scatter(wide), "V", v_.gaps(sizeof(std::uint16_t)));
  };
  for (Status status : {add_input(q_.scatter(data.q.codes), "Q", q_.gaps(1)),
                        add_input(kv_.scatter(data.k.codes), "K", kv_.gaps(1)), add_v(),
                        add_input(data.q.descales, "Q's descales", {}),
                        add_input(data.k.descales, "K's descales", {}),
                        add_input(data.v.descales, "V's descales", {}),
                        add_input(std::vector<float>{o_scale_}, "O's scale", {})}) {
    if (!status.ok()) return status;
  }
  auto o = allocate(device_, q_.elements() * size_of(options.output), "O");
  if (!o.ok()) return o.status();
  o_ = std::move(*o);
  if (options.lse) {
    const std::size_t rows = q_.contiguous_elements() / static_cast<std::size_t>(q_.dim);
    auto lse = allocate(device_, rows * sizeof(float), "LSE");
    if (!lse.ok()) return lse.status();
    lse_ = std::move(*lse);
  }
  bind(data, options);
  return {};
}

void Harness::bind(const CaseData& data, const CheckOptions& options) {
  const auto floats = [&](std::size_t i) {
    return static_cast<const float*>(inputs_[i].buffer->data());
  };
  problem_.batch = data.shape.batch;
  problem_.heads_q = data.shape.heads_q;
  problem_.heads_kv = data.shape.heads_kv;
  problem_.seq_q = data.shape.seq_q;
  problem_.seq_kv = data.shape.seq_kv;
  problem_.head_dim = data.shape.head_dim;
  problem_.q = q_.view(inputs_[0].buffer->data(), data.dtype);
  problem_.k = kv_.view(inputs_[1].buffer->data(), data.dtype);
  problem_.v = value_view(v_, options, inputs_[2].buffer->data(), value_dtype(data.dtype, options));
  problem_.o = q_.view(o_->data(), options.output);
  if (options.output == Dtype::kE4M3) problem_.o_scale = floats(6);
  problem_.lse = lse_ != nullptr ? static_cast<float*>(lse_->data()) : nullptr;
  problem_.lse_sum = options.lse_sum;
  problem_.descales = {floats(3), floats(4), floats(5),
                       data.k.per_block > 0 ? Granularity::kBlock : Granularity::kHead};
  problem_.softmax_scale = data.softmax_scale;
  problem_.mask = data.shape.mask;
  if (options.edit) options.edit(problem_);
}

void Harness::close_padding(bool close) {
  for (const InputBuffer& input : inputs_) input.buffer->close(input.gaps, close);
  o_->close(q_.gaps(size_of(problem_.o.dtype)), close);
}

Result<RunOutput> Harness::run(const Plan& plan) {
  if (plan.workspace_bytes() > 0 && workspace_ == nullptr) {
    auto space = allocate(device_, plan.workspace_bytes(), "the workspace");
    if (!space.ok()) return space.status();
    workspace_ = std::move(*space);
  }
  for (Buffer* buffer : {o_.get(), lse_.get(), workspace_.get()}) {
    if (buffer == nullptr) continue;
    if (Status status = buffer->poison(); !status.ok()) return status;
  }
  void* space = workspace_ != nullptr ? workspace_->data() : nullptr;
  close_padding(true);
  Status ran = forward(plan, space, nullptr);
  if (ran.ok()) ran = synchronise(device_);
  close_padding(false);
  if (!ran.ok()) return ran;
  std::vector<std::uint8_t> memory(o_->size());
  if (Status status = o_->download(memory.data()); !status.ok()) return status;
  RunOutput output;
  output.o = bits_of_output(memory);
  if (lse_ != nullptr) {
    output.lse.resize(lse_->size() / sizeof(float));
    if (Status status = lse_->download(output.lse.data()); !status.ok()) return status;
  }
  if (Status status = inspect(memory); !status.ok()) return status;
  return output;
}

std::vector<std::uint16_t> Harness::bits_of_output(const std::vector<std::uint8_t>& memory) const {
  if (problem_.o.dtype == Dtype::kE4M3) return q_.gather(bits_of_codes(memory, o_scale_));
  std::vector<std::uint16_t> bits(q_.elements());
  std::memcpy(bits.data(), memory.data(), memory.size());
  return q_.gather(bits);
}

Status Harness::inspect(const std::vector<std::uint8_t>& o_memory) {
  std::vector<const Buffer*> buffers = {o_.get(), lse_.get(), workspace_.get()};
  for (const InputBuffer& input : inputs_) {
    buffers.push_back(input.buffer.get());
    std::vector<std::uint8_t> now(input.bytes.size());
    if (Status status = input.buffer->download(now.data()); !status.ok()) return status;
    if (now != input.bytes) changed_inputs_.insert(input.buffer->name());
  }
  for (const Buffer* buffer : buffers) {
    if (buffer == nullptr) continue;
    const auto changed = buffer->changed_guard_bytes();
    if (!changed.ok()) return changed.status();
    if (*changed > 0) guard_bytes_[buffer->name()] = *changed;
  }
  std::int64_t written = 0;
  for (const ByteRange& gap : q_.gaps(size_of(problem_.o.dtype))) {
    for (std::size_t byte = gap.begin; byte < gap.end; ++byte) {
      written += o_memory[byte] != 0xFFU ? 1 : 0;
    }
  }
  if (written > 0) guard_bytes_["O's rows"] = written;
  return {};
}

void Harness::judge_memory(std::vector<GateResult>& gates) const {
  std::int64_t total = 0;
  std::string guards;
  for (const auto& [name, bytes] : guard_bytes_) {
    total += bytes;
    guards +=
        (guards.empty() ? "" : ", ") + std::to_string(bytes) + " byte(s) written around " + name;
  }
  gates.push_back(count_gate("guards", total, guards));
  std::string inputs;
  for (const std::string& name : changed_inputs_) {
    inputs += (inputs.empty() ? "the kernel changed " : ", ") + name;
  }
  gates.push_back(
      count_gate("inputs_unchanged", static_cast<std::int64_t>(changed_inputs_.size()), inputs));
}

Result<RunOutput> run_variant(const Variant& variant, const CaseData& data, const Device& device,
                              const CheckOptions& options) {
  auto harness =
      Harness::make(data, device, what_it_gives(variant, data.shape, data.dtype, device, options));
  if (!harness.ok()) return harness.status();
  const Result<Plan> planned = plan((*harness)->problem(), device, &variant, options.plan);
  if (!planned.ok()) return planned.status();
  Result<RunOutput> output = (*harness)->run(*planned);
  if (!output.ok()) return output;
  std::vector<GateResult> gates;
  (*harness)->judge_memory(gates);
  for (const GateResult& gate : gates) {
    if (!gate.pass) return Status(StatusCode::kExecutorError, gate.name + ": " + gate.detail);
  }
  return output;
}

}  // namespace fp8_sdpa::reference
