// The conformance kernels on the host executor, and the device half where there is no device code.
#include "tests/gpu_model/conformance/kernels.cuh"

namespace conformance {

fp8_sdpa::Status run_on_host(const Request& request, const fp8_sdpa::ExecutorOptions& options) {
  return launch(request.primitive, {request.in.data(), request.out.data(), request.count},
                {.executor = &options});
}

#if !(defined(FP8_SDPA_HAS_DEVICE) && FP8_SDPA_HAS_DEVICE)
fp8_sdpa::Status run_on_device(const Request&) { return fp8_sdpa::unsupported(why_no_device()); }

std::string why_no_device() { return "this build has no device code"; }
#endif

}  // namespace conformance
