// What gpu/ shares with the public headers, which re-export it and are installed with it: where a
// kernel runs, and how the library reports what went wrong. It never throws across its API, prints
// or exits.
#pragma once

#include <cassert>
#include <cstdint>
#include <optional>
#include <string>
#include <utility>

namespace fp8_sdpa {

enum class Backend : std::uint8_t { kDevice, kHost };
constexpr const char* name_of(Backend backend) {
  return backend == Backend::kDevice ? "device" : "host";
}

enum class StatusCode {
  kOk,
  kInvalidArgument,  ///< the problem contradicts itself: null or misaligned pointer, size < 1,
                     ///< overlapping output
  kUnsupported,      ///< a valid problem that this variant or this device does not serve
  kOutOfMemory,      ///< an allocation failed
  kDeviceError,      ///< a CUDA call failed; the message has file, line and expression
  kExecutorError,    ///< the host executor found an error in a kernel: deadlock, divergence, race
                     ///< with a copy
};

/// Success, or an error code with one clear line that names the thing and says what would be right.
class [[nodiscard]] Status {
 public:
  Status() = default;  ///< success
  Status(StatusCode code, std::string message) : code_(code), message_(std::move(message)) {}

  bool ok() const { return code_ == StatusCode::kOk; }
  StatusCode code() const { return code_; }
  const std::string& message() const { return message_; }

 private:
  StatusCode code_ = StatusCode::kOk;
  std::string message_;
};

inline Status invalid_argument(std::string message) {
  return {StatusCode::kInvalidArgument, std::move(message)};
}
inline Status unsupported(std::string message) {
  return {StatusCode::kUnsupported, std::move(message)};
}

/// A value, or the Status that says why there is none. value(), * and -> only if ok().
template <class T>
class [[nodiscard]] Result {
 public:
  Result(T value) : value_(std::move(value)) {}  // NOLINT(google-explicit-constructor)
  Result(Status status) : status_(std::move(status)) {
    assert(!status_.ok());
  }  // NOLINT(google-explicit-constructor)

  bool ok() const { return value_.has_value(); }
  const Status& status() const { return status_; }
  T& value() { return *value_; }
  const T& value() const { return *value_; }
  T* operator->() { return &*value_; }
  const T* operator->() const { return &*value_; }
  T& operator*() { return *value_; }
  const T& operator*() const { return *value_; }

 private:
  std::optional<T> value_;
  Status status_;
};

}  // namespace fp8_sdpa
