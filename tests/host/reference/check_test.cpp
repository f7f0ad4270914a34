// check(), judged with made-up kernels: an exact one on the CPU, and ones with a single defect
// each.
#include "reference/judge/check.hpp"

#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <limits>
#include <string>
#include <vector>

#include "dispatch/variant_impl.hpp"
#include "reference/formats/fp8.hpp"
#include "reference/formats/half.hpp"
#include "reference/inputs/qkv.hpp"
#include "reference/oracle/memory.hpp"
#include "tests/host/reference/tolerances.hpp"

#if defined(__SANITIZE_ADDRESS__)
#define UNDER_ASAN true
#else
#define UNDER_ASAN false
#endif

namespace fp8_sdpa::reference {
namespace {

std::int64_t offset_of(const Tensor& t, int heads, std::int64_t seq, std::int64_t row) {
  return row / (heads * seq) * t.stride_batch + row / seq % heads * t.stride_head +
         row % seq * t.stride_seq;
}

std::vector<float> read(const Tensor& t, const float* descale, int heads, std::int64_t seq,
                        const Problem& p) {
  std::vector<float> values;
  for (std::int64_t row = 0; row < p.batch * heads * seq; ++row) {
    const auto* codes = static_cast<const std::uint8_t*>(t.data) + offset_of(t, heads, seq, row);
    for (int d = 0; d < p.head_dim; ++d) {
      values.push_back(decode_table(t.dtype)[codes[d]] * descale[row / seq]);
    }
  }
  return values;
}

/// The oracle behind the public API.
Status exact(const Problem& p, const gpu::Queue&) {
  const AttentionSizes sizes{p.batch, p.heads_q, p.heads_kv, p.seq_q, p.seq_kv, p.head_dim, p.mask};
  const Attention result =
      attention_fp64(read(p.q, p.descales.q, p.heads_q, p.seq_q, p),
                     read(p.k, p.descales.k, p.heads_kv, p.seq_kv, p),
                     read(p.v, p.descales.v, p.heads_kv, p.seq_kv, p), sizes, p.softmax_scale);
  for (std::int64_t row = 0; row < p.batch * p.heads_q * p.seq_q; ++row) {
    auto* o = static_cast<std::uint16_t*>(p.o.data) + offset_of(p.o, p.heads_q, p.seq_q, row);
    for (int d = 0; d < p.head_dim; ++d) {
      o[d] = encode_16(result.o[static_cast<std::size_t>(row * p.head_dim + d)], p.o.dtype);
    }
    if (p.lse != nullptr) p.lse[row] = result.lse[static_cast<std::size_t>(row)];
  }
  return {};
}

Status nothing(const Problem&, const gpu::Queue&) { return {}; }

Status forgets_last_element(const Problem& p, const gpu::Queue& queue) {
  Status status = exact(p, queue);
  const std::int64_t count = p.batch * p.heads_q * p.seq_q * p.head_dim;
  std::memset(static_cast<std::uint16_t*>(p.o.data) + count - 1, 0xFF, sizeof(std::uint16_t));
  return status;
}

Status forgets_lse(const Problem& p, const gpu::Queue& queue) {
  Problem without = p;
  without.lse = nullptr;
  return exact(without, queue);
}

Status lse_in_base_2(const Problem& p, const gpu::Queue& queue) {
  Status status = exact(p, queue);
  p.lse[0] *= 1.442695F;
  return status;
}

Status ignores_descale_of_v(const Problem& p, const gpu::Queue& queue) {
  const std::vector<float> ones(static_cast<std::size_t>(p.batch * p.heads_kv), 1.0F);
  Problem wrong = p;
  wrong.descales.v = ones.data();
  return exact(wrong, queue);
}

Status writes_past_o(const Problem& p, const gpu::Queue& queue) {
  Status status = exact(p, queue);
  static_cast<std::uint16_t*>(p.o.data)[p.batch * p.heads_q * p.seq_q * p.head_dim] = 0;
  return status;
}

Status writes_before_lse(const Problem& p, const gpu::Queue& queue) {
  Status status = exact(p, queue);
  p.lse[-1] = 0.0F;
  return status;
}

Status changes_k(const Problem& p, const gpu::Queue& queue) {
  Status status = exact(p, queue);
  static_cast<std::uint8_t*>(p.k.data)[17] ^= 1;
  return status;
}

Status second_run_differs(const Problem& p, const gpu::Queue& queue) {
  static int runs = 0;
  Status status = exact(p, queue);
  if (runs++ % 2 == 1) static_cast<std::uint16_t*>(p.o.data)[3] ^= 1;
  return status;
}

/// Two kernels behind one variant: the one for an LSE of exact sums is wrong, or the other.
Status wrong_if_exact(const Problem& p, const gpu::Queue& queue) {
  return p.lse_sum == LseSum::kExact ? ignores_descale_of_v(p, queue) : exact(p, queue);
}
Status wrong_unless_exact(const Problem& p, const gpu::Queue& queue) {
  return p.lse_sum != LseSum::kExact ? ignores_descale_of_v(p, queue) : exact(p, queue);
}

Status fails(const Problem&, const gpu::Queue&) {
  return {StatusCode::kExecutorError, "deadlock at line 7"};
}

Status serves_all(const Problem&, const Device&) { return {}; }
Status serves_none(const Problem&, const Device&) { return unsupported("head_dim 64 only"); }

std::shared_ptr<const CaseData> small_case(Mask mask = Mask::kNone) {
  Shape shape;
  shape.name = "small";
  shape.batch = 2;
  shape.heads_q = 4;
  shape.heads_kv = 2;
  shape.seq_q = 33;
  shape.seq_kv = 40;
  shape.head_dim = 64;
  shape.mask = mask;
  return make_case(shape, 5);
}

Result<CaseResult> run(detail::Launch launch, const CheckOptions& options, const CaseData& data,
                       bool served = true, bool (*has_kernel_of_exact_sums)(int) = nullptr) {
  detail::VariantImpl impl{served ? serves_all : serves_none, {}, {launch}};
  impl.has_kernel_of_exact_sums = has_kernel_of_exact_sums;
  const Variant variant{"made_up", "for a test", Family::kStageC, {}, {128, 1024, 32, 32}, &impl};
  Device device;
  device.backend = Backend::kHost;
  device.shared_memory_per_block = 1 << 17;
  device.sm_version = 90;
  return check(variant, data, device, kTolerances, options);
}

Result<CaseResult> run(detail::Launch launch, const CheckOptions& options = {},
                       Mask mask = Mask::kNone, bool served = true,
                       bool (*has_kernel_of_exact_sums)(int) = nullptr) {
  return run(launch, options, *small_case(mask), served, has_kernel_of_exact_sums);
}

/// The names of the gates that failed.
std::string failed(const Result<CaseResult>& result) {
  if (!result.ok()) return "status: " + result.status().message();
  std::string names;
  for (const GateResult& gate : result->gates) {
    if (!gate.pass) names += (names.empty() ? "" : " ") + gate.name;
  }
  EXPECT_EQ(result->pass, names.empty());
  EXPECT_EQ(result->failure().empty(), names.empty());
  return names;
}

TEST(Check, AnExactKernelPassesInEveryForm) {
  for (const Dtype output : {Dtype::kHalf, Dtype::kBFloat16}) {
    for (const bool sequence_major : {false, true}) {
      for (const bool lse : {false, true}) {
        for (const Mask mask : {Mask::kNone, Mask::kCausal}) {
          CheckOptions options;
          options.output = output;
          options.sequence_major = sequence_major;
          options.lse = lse;
          const auto result = run(exact, options, mask);
          EXPECT_EQ(failed(result), "");
          ASSERT_TRUE(result.ok());
          EXPECT_EQ(result->output.size(), 2U * 4 * 33 * 64);
          EXPECT_EQ(result->log_sum_exp.size(), lse ? 2U * 4 * 33 : 0U);
          EXPECT_LT(result->kernel.rel_l2, 0.002);
          EXPECT_GT(result->quantised.rel_l2, result->kernel.rel_l2);
        }
      }
    }
  }
}

TEST(Check, OutputDoesNotDependOnTheLayout) {
  CheckOptions options;
  const auto head_major = run(exact, options);
  options.sequence_major = true;
  const auto sequence_major = run(exact, options);
  ASSERT_TRUE(head_major.ok() && sequence_major.ok());
  EXPECT_EQ(head_major->output, sequence_major->output);
}

/// A key channel far off zero, as real models have: its rounding drowns the others.
std::shared_ptr<const CaseData> offset_channel() {
  CaseData data = *small_case();
  Qkv tensors;
  tensors.sizes = sizes_of(data.shape);
  tensors.softmax_scale = data.softmax_scale;
  tensors.inputs = data.inputs;
  for (std::size_t i = 0; i < tensors.inputs.k.size(); i += 64) tensors.inputs.k[i] += 30.0F;
  const auto made = make_case(std::move(tensors), "offset", Mask::kNone);
  EXPECT_TRUE(made.ok());
  return *made;
}

TEST(Check, SaysWhetherTheQuantisationOrTheKernelIsAtFault) {
  const auto of_quantisation = run(exact, {}, *offset_channel());
  EXPECT_EQ(failed(of_quantisation), "rel_l2");
  const std::string line = of_quantisation->failure();
  EXPECT_EQ(line.rfind("gate rel_l2: ", 0), 0U) << line;
  EXPECT_NE(
      line.find("; at fault: the quantisation to FP8, not the kernel, whose own rel_l2 of 0.00"),
      std::string::npos)
      << line;
  const auto of_kernel = run(ignores_descale_of_v, {}, *offset_channel());
  EXPECT_EQ(failed(of_kernel).rfind("rel_l2 ", 0), 0U);
  EXPECT_NE(of_kernel->failure().find("; at fault: the kernel, which fails the gate kernel_"),
            std::string::npos)
      << of_kernel->failure();
}

// A variant with two kernels is judged by both, and either one's failure is the variant's.
TEST(Check, TheKernelOfExactSumsIsJudgedToo) {
  const auto at_64 = [](int head_dim) { return head_dim == 64; };
  const auto at_128 = [](int head_dim) { return head_dim == 128; };
  const auto result = run(wrong_if_exact, {}, Mask::kNone, true, at_64);
  EXPECT_NE(failed(result), "");
  ASSERT_TRUE(result.ok());
  EXPECT_NE(result->failure().find("(asked for an LSE of exact sums)"), std::string::npos)
      << result->failure();
  EXPECT_GT(result->kernel.rel_l2, 0.01) << "the metrics are the worse kernel's";
  EXPECT_EQ(result->log_sum_exp.size(), 2U * 4 * 33);
  EXPECT_NE(failed(run(wrong_unless_exact, {}, Mask::kNone, true, at_64)), "");
  EXPECT_EQ(failed(run(exact, {}, Mask::kNone, true, at_64)), "");
  // Where there is one kernel, it is asked once.
  EXPECT_EQ(failed(run(wrong_if_exact, {}, Mask::kNone, true, at_128)), "");
}

TEST(Check, NamesTheCase) {
  const auto result = run(exact);
  ASSERT_TRUE(result.ok());
  EXPECT_EQ(result->shape, "small");
  EXPECT_EQ(result->seed, 5U);
  EXPECT_EQ(result->variant, "made_up");
}

TEST(Check, UnwrittenOutputFails) {
  EXPECT_EQ(
      failed(run(nothing)),
      "max_abs_err mean_abs_err pct_bad rel_l2 kernel_abs kernel_rel_l2 budget_row budget_head "
      "budget_tensor lse");
  EXPECT_EQ(
      failed(run(forgets_last_element)),
      "max_abs_err mean_abs_err pct_bad rel_l2 kernel_abs kernel_rel_l2 budget_row budget_head "
      "budget_tensor");
  EXPECT_EQ(failed(run(forgets_lse)), "lse");
}

TEST(Check, WrongNumbersFail) {
  EXPECT_EQ(failed(run(lse_in_base_2)), "lse");
  EXPECT_NE(failed(run(ignores_descale_of_v)).find("kernel_rel_l2"), std::string::npos);
}

TEST(Check, WritingOutOfBoundsFails) {
  if (UNDER_ASAN) GTEST_SKIP() << "AddressSanitizer stops at the write itself";
  const auto past = run(writes_past_o);
  EXPECT_EQ(failed(past), "guards");
  EXPECT_NE(past->failure().find("around O"), std::string::npos) << past->failure();
  EXPECT_EQ(failed(run(writes_before_lse)), "guards");
}

TEST(Check, ChangingAnInputFails) {
  const auto result = run(changes_k);
  // Found although the second run, by the same flip, puts it right again.
  EXPECT_NE(failed(result).find("inputs_unchanged"), std::string::npos);
  CheckOptions once;
  once.rerun = false;
  const auto single = run(changes_k, once);
  EXPECT_EQ(failed(single), "inputs_unchanged");
  EXPECT_NE(single->failure().find("changed K"), std::string::npos) << single->failure();
}

TEST(Check, TwoRunsMustBeBitEqual) { EXPECT_EQ(failed(run(second_run_differs)), "rerun_equal"); }

TEST(Check, ErrorsArePassedOn) {
  const auto failing = run(fails);
  ASSERT_FALSE(failing.ok());
  EXPECT_EQ(failing.status().code(), StatusCode::kExecutorError);
  EXPECT_EQ(failing.status().message(), "deadlock at line 7");
  const auto declined = run(exact, {}, Mask::kNone, false);
  ASSERT_FALSE(declined.ok());
  EXPECT_EQ(declined.status().code(), StatusCode::kUnsupported);
}

TEST(Check, NanInTheInputMustReachTheOutput) {
  Qkv qkv;
  qkv.sizes = {1, 1, 1, 32, 32, 64, Mask::kNone};
  qkv.original_head_dim = 64;
  qkv.softmax_scale = 0.125F;
  qkv.inputs = *draw_inputs(small_case()->shape, 0);
  for (auto* tensor : {&qkv.inputs.q, &qkv.inputs.k, &qkv.inputs.v}) tensor->resize(32 * 64);
  qkv.inputs.v[70] = std::nanf("");
  qkv.inputs.q[3] = std::numeric_limits<float>::infinity();
  const auto data = make_case(std::move(qkv), "file", Mask::kNone);
  ASSERT_TRUE(data.ok());
  EXPECT_FALSE((*data)->drawn);
  EXPECT_EQ((*data)->saturated_infinities(), 1);
  EXPECT_TRUE(std::isnan((*data)->reference_kernel.o[6]));
  EXPECT_FALSE(std::isnan((*data)->reference_kernel.o[7]));
  const auto check_with = [&](detail::Launch launch) {
    const detail::VariantImpl impl{serves_all, {}, {launch}};
    const Variant variant{"made_up", "", Family::kStageC, {}, {128, 1024, 32, 32}, &impl};
    Device device;
    device.shared_memory_per_block = 1 << 17;
    return failed(check(variant, **data, device, kTolerances));
  };
  EXPECT_EQ(check_with(exact), "");
  const detail::Launch launders = [](const Problem& p, const gpu::Queue& queue) {
    Status status = exact(p, queue);
    static_cast<std::uint16_t*>(p.o.data)[6] = 0;
    return status;
  };
  EXPECT_EQ(check_with(launders),
            "rel_l2 kernel_abs kernel_rel_l2 budget_row budget_head budget_tensor");
}

TEST(Memory, HostBuffersAreExactAlignedAndGuarded) {
  Device device;
  const auto made = allocate(device, 1001, "a buffer");
  ASSERT_TRUE(made.ok());
  Buffer& buffer = **made;
  EXPECT_EQ(reinterpret_cast<std::uintptr_t>(buffer.data()) % 256, 0U);
  EXPECT_EQ(buffer.size(), 1001U);
  std::vector<std::uint8_t> bytes(1001, 7);
  ASSERT_TRUE(buffer.upload(bytes.data()).ok());
  ASSERT_TRUE(buffer.poison().ok());
  ASSERT_TRUE(buffer.download(bytes.data()).ok());
  EXPECT_EQ(bytes, std::vector<std::uint8_t>(1001, 0xFF));
  EXPECT_EQ(*buffer.changed_guard_bytes(), 0);
  if (UNDER_ASAN) return;
  auto* data = static_cast<std::uint8_t*>(buffer.data());
  for (std::uint8_t* byte :
       {data - kGuardBytes, data - 1, data + 1001, data + 1000 + kGuardBytes}) {
    *byte ^= 0x10;
    EXPECT_EQ(*buffer.changed_guard_bytes(), 1);
    *byte ^= 0x10;
  }
}

TEST(Memory, ImpossibleSizesAreNamed) {
  Device device;
  const auto empty = allocate(device, 0, "nothing");
  ASSERT_FALSE(empty.ok());
  EXPECT_NE(empty.status().message().find("nothing"), std::string::npos);
#if !defined(__SANITIZE_ADDRESS__) && !defined(__SANITIZE_THREAD__)  // they end the process for it
  const auto huge = allocate(device, std::numeric_limits<std::size_t>::max() / 4, "K");
  ASSERT_FALSE(huge.ok());
  EXPECT_EQ(huge.status().code(), StatusCode::kOutOfMemory);
  EXPECT_NE(huge.status().message().find("K needs"), std::string::npos);
#endif
}

}  // namespace
}  // namespace fp8_sdpa::reference
