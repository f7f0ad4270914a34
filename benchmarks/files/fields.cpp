#include "benchmarks/files/fields.hpp"

#include <algorithm>
#include <cmath>
#include <limits>

#include "benchmarks/files/validate.hpp"
#include "reference/formats/text.hpp"

namespace fp8_sdpa::bench {

using nlohmann::json;
using reference::one_line;

Fields::Fields(const std::string& path) : path_(one_line(path)) {}

void Fields::look_at(const json& object, const std::string& place) {
  object_ = &object;
  place_ = place;
  if (!object.is_object()) refuse("", object, "an object");
}

std::string Fields::text(const char* key, std::optional<std::string> otherwise) {
  const json value = member(key);
  if (value.is_null() && otherwise) return *otherwise;
  if (value.is_string()) return one_line(value.get<std::string>());
  refuse(key, value, "text");
  return "";
}

double Fields::number(const char* key, bool may_be_zero) {
  const json value = member(key);
  const double number = value.is_number() ? value.get<double>() : std::nan("");
  if (std::isfinite(number) && (may_be_zero ? number >= 0 : number > 0)) return number;
  refuse(key, value, may_be_zero ? "a number from 0" : "a number above 0");
  return 0;
}

double Fields::finite(const char* key) {
  const json value = member(key);
  if (value.is_number() && std::isfinite(value.get<double>())) return value;
  refuse(key, value, "a number");
  return 0;
}

double Fields::error(const char* key) {
  const bool not_finite = object_->is_object() && object_->contains(key) && member(key).is_null();
  return not_finite ? std::numeric_limits<double>::infinity() : number(key, /*may_be_zero=*/true);
}

std::int64_t Fields::integer(const char* key, std::int64_t low,
                             std::optional<std::int64_t> otherwise) {
  const json value = member(key);
  if (value.is_null() && otherwise) return *otherwise;
  constexpr std::int64_t kLargest = std::numeric_limits<std::int32_t>::max();
  if (value.is_number_integer() && value >= low && value <= kLargest) return value;
  refuse(key, value, "an integer from " + std::to_string(low));
  return low;
}

std::int64_t Fields::size(const char* key, std::optional<std::int64_t> otherwise) {
  return integer(key, 1, otherwise);
}

std::int64_t Fields::count(const char* key, std::optional<std::int64_t> otherwise) {
  return integer(key, 0, otherwise);
}

std::optional<std::pair<double, double>> Fields::interval(const char* key) {
  const json value = member(key);
  if (value.is_null()) return std::nullopt;
  const auto is_number = [](const json& end) { return end.is_number(); };
  if (value.is_array() && value.size() == 2 && std::all_of(value.begin(), value.end(), is_number)) {
    return std::pair{value[0].get<double>(), value[1].get<double>()};
  }
  refuse(key, value, "two numbers");
  return std::nullopt;
}

bool Fields::flag(const char* key) {
  const json value = member(key);
  if (value.is_boolean()) return value;
  refuse(key, value, "true or false");
  return false;
}

const json& Fields::array(const char* key) {
  static const json none = json::array();
  if (object_->is_object() && object_->contains(key) && object_->at(key).is_array()) {
    return object_->at(key);
  }
  refuse(key, member(key), "an array");
  return none;
}

json Fields::member(const char* key) const {
  return object_->is_object() ? object_->value(key, json()) : json();
}

void Fields::refuse(const std::string& key, const json& got, const std::string& expected) {
  if (!status_.ok()) return;
  constexpr std::size_t kShown = 60;
  const std::string value = got.dump(-1, ' ', false, json::error_handler_t::replace);
  const std::string at = place_ + (key.empty() && !place_.empty() ? "" : "/" + one_line(key));
  status_ = invalid_argument(path_ + ": " + at + ": got " + one_line(value, kShown) +
                             ", expected " + expected);
}

Result<json> read_versioned(const std::string& path, int newest) {
  Result<json> document = read_json(path);
  if (!document.ok()) return document;
  Fields fields(path);
  fields.look_at(*document, "");
  if (fields.size("schema_version") > newest) {
    fields.refuse("schema_version", fields.member("schema_version"),
                  "at most " + std::to_string(newest) + ", of this build");
  }
  if (!fields.status().ok()) return fields.status();
  return document;
}

}  // namespace fp8_sdpa::bench
