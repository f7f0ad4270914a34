#include "reference/check.hpp"

#include <algorithm>
#include <bit>
#include <cstddef>
#include <cstring>
#include <map>
#include <memory>
#include <set>
#include <utility>

#include "fp8_sdpa/forward.hpp"
#include "reference/budget.hpp"
#include "reference/half.hpp"
#include "reference/memory.hpp"

namespace fp8_sdpa::reference {
namespace {

/// Strides of a (batch, heads, seq, dim) view of `heads` heads and `seq` rows.
struct Extent {
  std::int64_t batch, heads, seq, dim;
  bool sequence_major;

  std::int64_t stride_seq() const { return sequence_major ? heads * dim : dim; }
  std::int64_t stride_head() const { return sequence_major ? dim : seq * dim; }
  std::int64_t stride_batch() const { return heads * seq * dim; }
  std::size_t elements() const { return static_cast<std::size_t>(batch * heads * seq * dim); }
  Tensor view(void* data, Dtype dtype) const {
    return {data, dtype, stride_batch(), stride_head(), stride_seq(), 1};
  }
  /// Copies each row between contiguous (batch, heads, seq, dim) and this layout.
  template <class T>
  std::vector<T> rearrange(const std::vector<T>& from, bool from_contiguous) const {
    if (!sequence_major) return from;
    std::vector<T> to(from.size());
    for (std::int64_t row = 0; row < batch * heads * seq; ++row) {
      const std::int64_t strided = row / (heads * seq) * stride_batch() +
                                   row / seq % heads * stride_head() + row % seq * stride_seq();
      const std::int64_t contiguous = row * dim;
      std::memcpy(&to[static_cast<std::size_t>(from_contiguous ? strided : contiguous)],
                  &from[static_cast<std::size_t>(from_contiguous ? contiguous : strided)],
                  static_cast<std::size_t>(dim) * sizeof(T));
    }
    return to;
  }
};

/// A tensor that the kernel reads, and the bytes that it must still hold afterwards.
struct InputBuffer {
  std::unique_ptr<Buffer> buffer;
  std::vector<std::uint8_t> bytes;
};

template <class T>
Result<InputBuffer> make_input(const Device& device, const std::vector<T>& values,
                               const char* name) {
  InputBuffer input;
  input.bytes.resize(values.size() * sizeof(T));
  std::memcpy(input.bytes.data(), values.data(), input.bytes.size());
  auto buffer = allocate(device, input.bytes.size(), name);
  if (!buffer.ok()) return buffer.status();
  if (Status status = (*buffer)->upload(input.bytes.data()); !status.ok()) return status;
  input.buffer = std::move(*buffer);
  return input;
}

/// What one run left behind.
struct RunOutput {
  std::vector<std::uint16_t> o;  ///< as in memory
  std::vector<float> lse;
  /// Equal bits: a NaN equals itself.
  bool operator==(const RunOutput& other) const {
    return o == other.o &&
           std::equal(lse.begin(), lse.end(), other.lse.begin(), other.lse.end(),
                      [](float a, float b) {
                        return std::bit_cast<std::uint32_t>(a) == std::bit_cast<std::uint32_t>(b);
                      });
  }
};

GateResult count_gate(const char* name, std::int64_t count, std::string detail) {
  GateResult gate;
  gate.name = name;
  gate.value = static_cast<double>(count);
  gate.pass = count == 0;
  if (!gate.pass) gate.detail = std::move(detail);
  return gate;
}

/// The buffers of one case on one device, and the problem that points into them.
class Bench {
 public:
  Bench(const CaseData& data, const Device& device, const CheckOptions& options)
      : device_(device),
        q_{data.shape.batch, data.shape.heads_q, data.shape.seq_q, data.shape.head_dim,
           options.sequence_major},
        kv_{data.shape.batch, data.shape.heads_kv, data.shape.seq_kv, data.shape.head_dim,
            options.sequence_major} {}

  Status set_up(const CaseData& data, const CheckOptions& options) {
    const auto add = [&](const auto& values, const char* name) -> Status {
      auto input = make_input(device_, values, name);
      if (!input.ok()) return input.status();
      inputs_.push_back(std::move(*input));
      return {};
    };
    for (Status status :
         {add(q_.rearrange(data.q.codes, true), "Q"), add(kv_.rearrange(data.k.codes, true), "K"),
          add(kv_.rearrange(data.v.codes, true), "V"), add(data.q.descales, "Q's descales"),
          add(data.k.descales, "K's descales"), add(data.v.descales, "V's descales")}) {
      if (!status.ok()) return status;
    }
    auto o = allocate(device_, q_.elements() * sizeof(std::uint16_t), "O");
    if (!o.ok()) return o.status();
    o_ = std::move(*o);
    if (options.lse) {
      auto lse = allocate(device_, q_.elements() / static_cast<std::size_t>(q_.dim) * sizeof(float),
                          "LSE");
      if (!lse.ok()) return lse.status();
      lse_ = std::move(*lse);
    }
    bind(data, options);
    return {};
  }

  const Problem& problem() const { return problem_; }
  const Extent& output_extent() const { return q_; }

  /// Poisons the outputs, runs the plan and fetches what it wrote.
  Result<RunOutput> run(const Plan& plan, Buffer* workspace) {
    if (Status status = o_->poison(); !status.ok()) return status;
    if (lse_ != nullptr) {
      if (Status status = lse_->poison(); !status.ok()) return status;
    }
    if (workspace != nullptr) {
      if (Status status = workspace->poison(); !status.ok()) return status;
    }
    void* space = workspace != nullptr ? workspace->data() : nullptr;
    if (Status status = forward(plan, space, nullptr); !status.ok()) return status;
    if (Status status = synchronise(device_); !status.ok()) return status;
    RunOutput output;
    output.o.resize(q_.elements());
    if (Status status = o_->download(output.o.data()); !status.ok()) return status;
    if (lse_ != nullptr) {
      output.lse.resize(lse_->size() / sizeof(float));
      if (Status status = lse_->download(output.lse.data()); !status.ok()) return status;
    }
    if (Status status = inspect(workspace); !status.ok()) return status;
    return output;
  }

  /// The "guards" and "inputs_unchanged" gates, over all runs.
  void judge_memory(std::vector<GateResult>& gates) const {
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

 private:
  /// Looks at guard bands and inputs after a run.
  Status inspect(const Buffer* workspace) {
    std::vector<const Buffer*> buffers = {o_.get(), lse_.get(), workspace};
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
    return {};
  }

  void bind(const CaseData& data, const CheckOptions& options) {
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
    problem_.v = kv_.view(inputs_[2].buffer->data(), data.dtype);
    problem_.o = q_.view(o_->data(), options.output);
    problem_.lse = lse_ != nullptr ? static_cast<float*>(lse_->data()) : nullptr;
    problem_.descales = {floats(3), floats(4), floats(5)};
    problem_.softmax_scale = data.softmax_scale;
    problem_.mask = data.shape.mask;
  }

  Device device_;
  Extent q_;
  Extent kv_;
  std::vector<InputBuffer> inputs_;  ///< Q, K, V and their descales
  std::unique_ptr<Buffer> o_;
  std::unique_ptr<Buffer> lse_;
  Problem problem_;
  std::map<std::string, std::int64_t> guard_bytes_;  ///< changed, by buffer
  std::set<std::string> changed_inputs_;
};

/// The "rerun_equal" gate: the number of elements whose bits differ.
GateResult judge_rerun(const RunOutput& first, const RunOutput& second) {
  std::int64_t count = 0;
  std::size_t where = first.o.size();
  for (std::size_t i = 0; i < first.o.size(); ++i) {
    if (first.o[i] == second.o[i]) continue;
    if (count++ == 0) where = i;
  }
  if (count == 0 && !(first == second)) {
    return count_gate("rerun_equal", 1, "the LSE of two runs differs");
  }
  return count_gate("rerun_equal", count,
                    "O's bits differ between two runs, first at element " + std::to_string(where) +
                        " of its memory");
}

}  // namespace

std::string CaseResult::failure() const {
  for (const GateResult& gate : gates) {
    if (!gate.pass) return "gate " + gate.name + ": " + gate.detail;
  }
  return "";
}

Status serves(const Variant& variant, const Shape& shape, Dtype dtype, const Device& device,
              const CheckOptions& options) {
  // supports() looks at addresses, never behind them: regions that cannot overlap will do.
  constexpr std::uintptr_t kRegion = std::uintptr_t{1} << 44;
  const auto at = [](std::uintptr_t region) { return reinterpret_cast<void*>(region * kRegion); };
  const Extent q{shape.batch, shape.heads_q, shape.seq_q, shape.head_dim, options.sequence_major};
  const Extent kv{shape.batch, shape.heads_kv, shape.seq_kv, shape.head_dim,
                  options.sequence_major};
  Problem problem;
  problem.batch = shape.batch;
  problem.heads_q = shape.heads_q;
  problem.heads_kv = shape.heads_kv;
  problem.seq_q = shape.seq_q;
  problem.seq_kv = shape.seq_kv;
  problem.head_dim = shape.head_dim;
  problem.q = q.view(at(1), dtype);
  problem.k = kv.view(at(2), dtype);
  problem.v = kv.view(at(3), dtype);
  problem.o = q.view(at(4), options.output);
  problem.lse = options.lse ? static_cast<float*>(at(5)) : nullptr;
  const auto* floats = static_cast<const float*>(at(6));
  problem.descales = {floats, floats, floats};
  problem.softmax_scale = 1.0F;
  problem.mask = shape.mask;
  return variant.supports(problem, device);
}

Result<CaseResult> check(const Variant& variant, const CaseData& data, const Device& device,
                         const Tolerances& tolerances, const CheckOptions& options) {
  Bench bench(data, device, options);
  if (Status status = bench.set_up(data, options); !status.ok()) return status;
  const Result<Plan> planned = plan(bench.problem(), device, &variant);
  if (!planned.ok()) return planned.status();
  std::unique_ptr<Buffer> workspace;
  if (planned->workspace_bytes() > 0) {
    auto space = allocate(device, planned->workspace_bytes(), "the workspace");
    if (!space.ok()) return space.status();
    workspace = std::move(*space);
  }
  const Result<RunOutput> output = bench.run(*planned, workspace.get());
  if (!output.ok()) return output.status();

  CaseResult result;
  result.shape = data.shape.name;
  result.seed = data.seed;
  result.variant = variant.name;
  result.output = bench.output_extent().rearrange(output->o, false);
  result.log_sum_exp = output->lse;
  std::vector<float> o(result.output.size());
  for (std::size_t i = 0; i < o.size(); ++i) o[i] = decode_16(result.output[i], options.output);
  result.quantised = compare(o, data.reference_quantised.o, data.shape, tolerances.bad_threshold);
  result.kernel = compare(o, data.reference_kernel.o, data.shape, tolerances.bad_threshold);

  const JudgeContext context{data.dtype, variant.fp8_p, data.max_abs_v, data.score_bound,
                             data.drawn};
  result.gates = judge(result.quantised, result.kernel, data.shape, tolerances, context);
  const auto budget = budget_of(data, model_of(variant.fp8_p, options.output));
  for (GateResult& gate : judge_budget(o, data.reference_kernel.o, data.shape, *budget)) {
    result.gates.push_back(std::move(gate));
  }
  if (options.lse) {
    result.gates.push_back(judge_lse(
        compare_lse(output->lse, data.reference_kernel.lse, data.shape), data.shape, context));
  }
  if (options.rerun) {
    const Result<RunOutput> again = bench.run(*planned, workspace.get());
    if (!again.ok()) return again.status();
    result.gates.push_back(judge_rerun(*output, *again));
  }
  bench.judge_memory(result.gates);
  result.pass = true;
  for (const GateResult& gate : result.gates) result.pass = result.pass && gate.pass;
  return result;
}

}  // namespace fp8_sdpa::reference
