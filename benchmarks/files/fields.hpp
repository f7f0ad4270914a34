// Reading result files that other builds wrote: members by name and type, whatever else is there.
#pragma once

#include <cstdint>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <utility>

#include "fp8_sdpa/status.hpp"

namespace fp8_sdpa::bench {

/// Reads members of a document's objects; keeps the first thing that is wrong, as one line with the
/// file, the place, the value and what was expected. After that it returns what a caller can work
/// on with.
class Fields {
 public:
  explicit Fields(const std::string& path);

  const Status& status() const { return status_; }
  /// Members are of `object` from here on, which is at `place` in the document and outlives this.
  void look_at(const nlohmann::json& object, const std::string& place);
  void look_at(nlohmann::json&& object, const std::string& place) = delete;

  std::string text(const char* key, std::optional<std::string> otherwise = {});
  /// A finite number above 0, or, where it may be 0, from 0.
  double number(const char* key, bool may_be_zero = false);
  double finite(const char* key);
  /// An error of a kernel: null stands for one that is not finite, and is infinite here.
  double error(const char* key);
  /// From 1 to 2^31 - 1.
  std::int64_t size(const char* key, std::optional<std::int64_t> otherwise = {});
  /// From 0 to 2^31 - 1.
  std::int64_t count(const char* key, std::optional<std::int64_t> otherwise = {});
  /// [low, high], or nothing where the member is null or missing.
  std::optional<std::pair<double, double>> interval(const char* key);
  bool flag(const char* key);
  const nlohmann::json& array(const char* key);
  /// The member, or null.
  nlohmann::json member(const char* key) const;

  void refuse(const std::string& key, const nlohmann::json& got, const std::string& expected);

 private:
  std::int64_t integer(const char* key, std::int64_t low, std::optional<std::int64_t> otherwise);

  std::string path_;
  std::string place_;
  const nlohmann::json* object_ = nullptr;
  Status status_;
};

/// A JSON document with a schema_version from 1 to `newest`.
Result<nlohmann::json> read_versioned(const std::string& path, int newest);

}  // namespace fp8_sdpa::bench
