// Plan once per problem shape, then run as often as you like: on a stream, or captured in a CUDA
// graph.
#pragma once

#include <array>
#include <cstddef>
#include <string>
#include <string_view>

#include "fp8_sdpa/device.hpp"
#include "fp8_sdpa/problem.hpp"
#include "fp8_sdpa/status.hpp"

struct CUstream_st;  // cudaStream_t is a pointer to it: no CUDA header is needed here

namespace fp8_sdpa {

/// One kernel of the library's table.
struct Variant;

/// The variant of that name, as plan() takes it and Plan::explain() calls it; kInvalidArgument,
/// with the nearest names, where there is none.
Result<const Variant*> find_variant(std::string_view name);

namespace detail {

/// What a variant computes once per plan, such as TMA's tensor maps: opaque.
struct alignas(64) PlanState {
  static constexpr std::size_t kBytes = 4096;
  std::array<std::byte, kBytes> bytes{};
  std::size_t workspace_bytes = 0;
  int kernel = 0;          ///< which of the variant's
  bool has_sizes = false;  ///< set by rebind(): how work is shared out is still right
};

}  // namespace detail

struct PlanOptions {
  /// Each row of O has the same bits in a batch of any size: no two blocks split the keys of one
  /// tile of query rows, since where they would depends on the size of the whole problem. Where the
  /// library chooses the variant, on sm_90, it is the one for long sequences that fill the device,
  /// whatever the problem, so that a row's bits depend on its query, its keys in their order, its
  /// number modulo 16, whether seq_kv is above 128 and these options alone: a prompt in chunks of a
  /// multiple of 16 rows, the first above 128, has the bits of the prompt in one piece. Slower
  /// where blocks would share, and for short or few sequences.
  bool batch_invariant = false;
  /// The plan needs no workspace: no blocks split a tile's keys, and the variant is one that can do
  /// without. The choice among those is still made for the whole problem.
  bool no_workspace = false;
};

/// A problem bound to a device and a variant. Cheap to copy; holds pointers into the caller's
/// tensors.
class Plan {
 public:
  /// Of a workspace's address, in bytes: that of tensors.
  static constexpr std::size_t kWorkspaceAlignment = 16;

  const Problem& problem() const { return problem_; }
  const Device& device() const { return device_; }
  const Variant& variant() const { return *variant_; }
  /// The variant's name, as in the READMEs and benchmarks.
  std::string_view variant_name() const;
  const detail::PlanState& state() const { return state_; }
  /// Bytes of device memory that forward() needs beside the tensors, aligned to
  /// kWorkspaceAlignment: for the parts of query tiles that blocks share, and for V where it is
  /// transposed once for all blocks. Often 0; always 0 but for sm90 and decode.
  std::size_t workspace_bytes() const { return state_.workspace_bytes; }
  /// What rounding P and O costs beside exact attention of the same codes: root mean square, as a
  /// part of O's, where V has no mean and many keys carry a row.
  double expected_error() const;
  /// For people, a line for each: the variant; its device; whether FP8 tensor cores multiply; the
  /// error to expect; the workspace; on sm_90 and the host executor the time predicted for it and
  /// for the others that serve the problem; why the other families do not serve it.
  std::string explain() const;

 private:
  friend Result<Plan> plan(const Problem&, const Device&, const Variant*, const PlanOptions&);
  friend Status rebind(Plan&, const Problem&);
  Problem problem_;
  Device device_;
  const Variant* variant_ = nullptr;
  PlanOptions options_;
  detail::PlanState state_;
};

/// Checks the problem, picks a variant unless one is given, and binds them. The pick is the variant
/// of the toggles that the build was configured with, if any; else the one that is predicted to be
/// fastest on sm_90, and sm80_mma on other devices; else the first that serves the problem.
/// kInvalidArgument or kUnsupported, with the reason, before anything is launched; kDeviceError if
/// the driver refuses a tensor map.
Result<Plan> plan(const Problem& problem, const Device& device, const Variant* variant = nullptr,
                  const PlanOptions& options = {});

/// Makes the plan one of a problem that differs from the plan's in addresses and softmax_scale
/// alone: the same variant and options, in a microsecond, where plan() takes tens to hundreds.
/// kInvalidArgument where the problem differs in more; else as plan(). On an error the plan stays
/// what it was.
Status rebind(Plan& plan, const Problem& problem);

/// Launches the plan on `stream`, with plan.device() as the calling thread's current CUDA device.
/// `workspace` has workspace_bytes(), whatever is in them; launches that may run at the same time
/// need one each. kInvalidArgument if it is null though the plan needs one or it is not aligned;
/// kDeviceError or kOutOfMemory where a launch fails, kExecutorError where the host executor finds
/// an error in the kernel. Never synchronises, allocates on the device, prints or exits; capturable
/// in a CUDA graph. On sm_90 a launch may start while earlier kernels of the stream are at their
/// last blocks (CUDA C++ Programming Guide, "Programmatic Dependent Launch and Synchronization");
/// it waits for them before it reads an input or writes an output. On the host executor it returns
/// when the kernel has run, and `stream` is ignored.
Status forward(const Plan& plan, void* workspace, CUstream_st* stream);

/// plan() and forward() in one call on the current CUDA device, with the library's own choice of
/// variant among those that need no workspace (PlanOptions::no_workspace). Errors are those of
/// current_device(), plan() and forward().
Status forward(const Problem& problem, CUstream_st* stream);

}  // namespace fp8_sdpa
