// Matrix multiplies through cuBLASLt. The library is loaded, not linked: the tool runs without it.
#include "benchmarks/ceilings/device_limits.hpp"

#if FP8_SDPA_HAS_DEVICE && __has_include(<cublasLt.h>)
#define FP8_SDPA_HAS_CUBLASLT 1
#include <cublasLt.h>
#include <cuda_runtime_api.h>
#include <dlfcn.h>

#include <cstdint>
#include <memory>
#include <random>
#include <utility>

#include "gpu/cuda_check.hpp"
#else
#define FP8_SDPA_HAS_CUBLASLT 0
#endif

namespace fp8_sdpa::bench {
namespace {

/// What is multiplied: C = A^T B, all of them kSize x kSize, C in bf16, sums in fp32.
struct Multiply {
  const char* name;
  const char* what;
  bool fp8;
  bool fast_accumulation;
};
constexpr Multiply kMultiplies[] = {
    {"fp8_gemm_fast_accumulation",
     "8192^3 e4m3 multiply to bf16, cuBLASLt, sums in the tensor core's own accumulator", true,
     true},
    {"fp8_gemm", "8192^3 e4m3 multiply to bf16, cuBLASLt, sums carried over to fp32", true, false},
    {"bf16_gemm", "8192^3 bf16 multiply, cuBLASLt", false, false},
};

}  // namespace

#if FP8_SDPA_HAS_CUBLASLT

namespace {

constexpr std::uint64_t kSize = 8192;
constexpr std::size_t kWorkspaceBytes = std::size_t{64} << 20;

struct CloseLibrary {
  void operator()(void* handle) const { dlclose(handle); }
};
struct FreeMemory {
  void operator()(void* data) const { static_cast<void>(cudaFree(data)); }
};
using Memory = std::unique_ptr<void, FreeMemory>;

Status status_of(cublasStatus_t status, const char* call) {
  if (status == CUBLAS_STATUS_SUCCESS) return {};
  return unsupported(std::string(call) + " answers with status " +
                     std::to_string(static_cast<int>(status)));
}

/// The functions of cuBLASLt that are used here.
struct Library {
  std::unique_ptr<void, CloseLibrary> handle;
  decltype(&cublasLtCreate) create = nullptr;
  decltype(&cublasLtDestroy) destroy = nullptr;
  decltype(&cublasLtMatmulDescCreate) make_operation = nullptr;
  decltype(&cublasLtMatmulDescSetAttribute) set_operation = nullptr;
  decltype(&cublasLtMatmulDescDestroy) free_operation = nullptr;
  decltype(&cublasLtMatrixLayoutCreate) make_layout = nullptr;
  decltype(&cublasLtMatrixLayoutDestroy) free_layout = nullptr;
  decltype(&cublasLtMatmulPreferenceCreate) make_preference = nullptr;
  decltype(&cublasLtMatmulPreferenceSetAttribute) set_preference = nullptr;
  decltype(&cublasLtMatmulPreferenceDestroy) free_preference = nullptr;
  decltype(&cublasLtMatmulAlgoGetHeuristic) choose = nullptr;
  decltype(&cublasLtMatmul) multiply = nullptr;

  Status load() {
    const std::string name =
        "libcublasLt.so." + std::to_string(CUBLAS_VER_MAJOR);  // the ABI of the header
    handle.reset(dlopen(name.c_str(), RTLD_NOW | RTLD_LOCAL));
    if (handle == nullptr) {
      return unsupported(name +
                         " cannot be loaded: install cuBLAS, or put its folder on "
                         "LD_LIBRARY_PATH");
    }
    const bool found = find(create, "cublasLtCreate") && find(destroy, "cublasLtDestroy") &&
                       find(make_operation, "cublasLtMatmulDescCreate") &&
                       find(set_operation, "cublasLtMatmulDescSetAttribute") &&
                       find(free_operation, "cublasLtMatmulDescDestroy") &&
                       find(make_layout, "cublasLtMatrixLayoutCreate") &&
                       find(free_layout, "cublasLtMatrixLayoutDestroy") &&
                       find(make_preference, "cublasLtMatmulPreferenceCreate") &&
                       find(set_preference, "cublasLtMatmulPreferenceSetAttribute") &&
                       find(free_preference, "cublasLtMatmulPreferenceDestroy") &&
                       find(choose, "cublasLtMatmulAlgoGetHeuristic") &&
                       find(multiply, "cublasLtMatmul");
    return found ? Status() : unsupported(name + " lacks a function that is needed");
  }

 private:
  template <class Function>
  bool find(Function& function, const char* name) {
    function = reinterpret_cast<Function>(dlsym(handle.get(), name));
    return function != nullptr;
  }
};

/// Numbers of either sign below two, so that no sum leaves bf16 and the tensor cores do real work
/// (their power, and so their clock, depends on the data).
Result<Memory> random_operand(bool fp8) {
  constexpr std::uint64_t kFp8Mask = 0xBFBFBFBFBFBFBFBF;   // exponent below 8: no NaN, below 2
  constexpr std::uint64_t kBf16Mask = 0x80FF80FF80FF80FF;  // sign, low exponent bit, mantissa
  constexpr std::uint64_t kBf16Ones = 0x3F003F003F003F00;
  constexpr unsigned kSeed = 1;
  std::mt19937_64 random(kSeed);
  std::vector<std::uint64_t> words(kSize * kSize * (fp8 ? 1 : 2) / sizeof(std::uint64_t));
  for (std::uint64_t& word : words) {
    word = fp8 ? random() & kFp8Mask : (random() & kBf16Mask) | kBf16Ones;
  }
  void* raw = nullptr;
  const std::size_t bytes = words.size() * sizeof(std::uint64_t);
  FP8_SDPA_RETURN_IF_CUDA_ERROR(cudaMalloc(&raw, bytes));
  Memory memory(raw);
  FP8_SDPA_RETURN_IF_CUDA_ERROR(cudaMemcpy(raw, words.data(), bytes, cudaMemcpyHostToDevice));
  return Result<Memory>(std::move(memory));
}

/// One multiply, ready to be launched. Frees what it made.
class Problem {
 public:
  explicit Problem(const Library& library) : library_(library) {}
  ~Problem() {
    if (preference_ != nullptr) library_.free_preference(preference_);
    for (cublasLtMatrixLayout_t layout : {in_, out_}) {
      if (layout != nullptr) library_.free_layout(layout);
    }
    if (operation_ != nullptr) library_.free_operation(operation_);
    if (context_ != nullptr) library_.destroy(context_);
  }
  Problem(const Problem&) = delete;
  Problem& operator=(const Problem&) = delete;

  Status set_up(const Multiply& multiply) {
    if (Status s = describe(multiply); !s.ok()) return s;
    if (Status s = choose(); !s.ok()) return s;
    for (Memory* operand : {&a_, &b_}) {
      auto made = random_operand(multiply.fp8);
      if (!made.ok()) return made.status();
      *operand = std::move(*made);
    }
    void* raw = nullptr;
    FP8_SDPA_RETURN_IF_CUDA_ERROR(cudaMalloc(&raw, kSize * kSize * sizeof(std::uint16_t)));
    c_.reset(raw);
    FP8_SDPA_RETURN_IF_CUDA_ERROR(cudaMalloc(&raw, kWorkspaceBytes));
    workspace_.reset(raw);
    return {};
  }

  Status launch(CUstream_st* stream) const {
    constexpr float kAlpha = 1;
    constexpr float kBeta = 0;
    return status_of(library_.multiply(context_, operation_, &kAlpha, a_.get(), in_, b_.get(), in_,
                                       &kBeta, c_.get(), out_, c_.get(), out_, &chosen_.algo,
                                       workspace_.get(), kWorkspaceBytes, stream),
                     "cublasLtMatmul");
  }

 private:
  Status describe(const Multiply& multiply) {
    const cudaDataType_t in = multiply.fp8 ? CUDA_R_8F_E4M3 : CUDA_R_16BF;
    const auto check = [](cublasStatus_t status) {
      return status_of(status, "cuBLASLt's set-up of a multiply");
    };
    if (Status s = check(library_.create(&context_)); !s.ok()) return s;
    if (Status s = check(library_.make_operation(&operation_, CUBLAS_COMPUTE_32F, CUDA_R_32F));
        !s.ok()) {
      return s;
    }
    // FP8 is served with K as the fast dimension of both operands alone.
    const cublasOperation_t transposed = CUBLAS_OP_T;
    if (Status s = check(library_.set_operation(operation_, CUBLASLT_MATMUL_DESC_TRANSA,
                                                &transposed, sizeof(transposed)));
        !s.ok()) {
      return s;
    }
    const std::int8_t fast = multiply.fast_accumulation ? 1 : 0;
    if (multiply.fp8) {
      if (Status s = check(library_.set_operation(operation_, CUBLASLT_MATMUL_DESC_FAST_ACCUM,
                                                  &fast, sizeof(fast)));
          !s.ok()) {
        return s;
      }
    }
    if (Status s = check(library_.make_layout(&in_, in, kSize, kSize, kSize)); !s.ok()) return s;
    return check(library_.make_layout(&out_, CUDA_R_16BF, kSize, kSize, kSize));
  }

  Status choose() {
    const auto check = [](cublasStatus_t status) {
      return status_of(status, "cuBLASLt's choice of an algorithm");
    };
    if (Status s = check(library_.make_preference(&preference_)); !s.ok()) return s;
    if (Status s =
            check(library_.set_preference(preference_, CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES,
                                          &kWorkspaceBytes, sizeof(kWorkspaceBytes)));
        !s.ok()) {
      return s;
    }
    int found = 0;
    if (Status s = check(library_.choose(context_, operation_, in_, in_, out_, out_, preference_, 1,
                                         &chosen_, &found));
        !s.ok()) {
      return s;
    }
    return found > 0 ? Status() : unsupported("cuBLASLt has no algorithm for it on this device");
  }

  const Library& library_;
  cublasLtHandle_t context_ = nullptr;
  cublasLtMatmulDesc_t operation_ = nullptr;
  cublasLtMatrixLayout_t in_ = nullptr;
  cublasLtMatrixLayout_t out_ = nullptr;
  cublasLtMatmulPreference_t preference_ = nullptr;
  cublasLtMatmulHeuristicResult_t chosen_{};
  Memory a_, b_, c_, workspace_;
};

Result<std::vector<double>> time_multiply(const Library& library, const Multiply& multiply,
                                          int samples) {
  Problem problem(library);
  if (Status s = problem.set_up(multiply); !s.ok()) return s;
  return time_work([&](CUstream_st* stream) { return problem.launch(stream); }, samples);
}

}  // namespace

void measure_matrix_multiplies(int samples, MeasuredLimits& ceilings) {
  constexpr double kFlopPerProduct = 2;
  constexpr double kSide = kSize;
  Library library;
  const Status loaded = library.load();
  for (const Multiply& multiply : kMultiplies) {
    auto times = loaded.ok() ? time_multiply(library, multiply, samples)
                             : Result<std::vector<double>>(loaded);
    if (!times.ok()) {
      ceilings.left_out.push_back({multiply.name, times.status().message()});
      continue;
    }
    ceilings.measured.push_back({multiply.name, multiply.what, LimitUnit::kFlopPerSecond,
                                 kFlopPerProduct * kSide * kSide * kSide, std::move(*times)});
  }
}

#else

void measure_matrix_multiplies(int, MeasuredLimits& ceilings) {
  for (const Multiply& multiply : kMultiplies) {
    ceilings.left_out.push_back(
        {multiply.name, "cublasLt.h was not found when this was built: install cuBLAS's headers"});
  }
}

#endif

}  // namespace fp8_sdpa::bench
