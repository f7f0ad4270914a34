// Reading JSON that people wrote: whatever is wrong becomes one line with the file, the JSON
// pointer, the value and what was expected.
#pragma once

#include <cstdint>
#include <nlohmann/json.hpp>
#include <string>
#include <string_view>
#include <vector>

#include "fp8_sdpa/status.hpp"
#include "reference/formats/text.hpp"

namespace fp8_sdpa::reference {

using Json = nlohmann::json;
using JsonPointer = nlohmann::json::json_pointer;

/// Parses JSON strictly: no comments, no duplicate keys, no numbers beyond double. `path` is used
/// in the message alone.
Result<Json> parse_json(const std::string& text, const std::string& path);

/// Reads values out of a document and keeps the first thing that is wrong; after that it returns
/// defaults, so that its callers need no error path of their own.
class JsonReader {
 public:
  explicit JsonReader(const std::string& path) : path_(one_line(path)) {}

  const Status& status() const { return status_; }
  bool ok() const { return status_.ok(); }

  /// Records "PATH: WHERE: GOT, expected EXPECTED", unless something was refused before.
  void refuse(const std::string& where, const std::string& got, const std::string& expected);
  void refuse(const JsonPointer& where, const Json& got, const std::string& expected);

  /// Whether `value` is an object with every required key and none but those listed.
  bool object(const Json& value, const JsonPointer& at, const std::vector<const char*>& required,
              const std::vector<const char*>& optional = {});
  /// The non-empty array parent[key], or nullptr.
  const Json* array(const Json& parent, const JsonPointer& at, const char* key,
                    const char* expected);
  /// An integer in [low, high]; both are >= 0 or fit beside negative values in 64 bits.
  std::int64_t integer(const Json& value, const JsonPointer& at, std::int64_t low,
                       std::int64_t high);
  /// A number in [low, high].
  double number(const Json& value, const JsonPointer& at, double low, double high);
  /// A string for which is_name() holds.
  std::string name(const Json& value, const JsonPointer& at);

 private:
  std::string path_;
  Status status_;
};

}  // namespace fp8_sdpa::reference
