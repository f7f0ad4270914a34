#include "reference/formats/json_reader.hpp"

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstdio>
#include <cstring>
#include <fstream>
#include <optional>
#include <set>

namespace fp8_sdpa::reference {
namespace {

constexpr std::size_t kMaxShownBytes = 60;
constexpr std::size_t kMaxDepth = 64;  // printing and freeing a document recurse

std::string shown(const Json& value) {
  return one_line(value.dump(-1, ' ', true, Json::error_handler_t::replace), kMaxShownBytes);
}

std::string join(const std::vector<const char*>& words) {
  std::string out;
  for (const char* word : words) out += (out.empty() ? "" : ", ") + std::string(word);
  return out;
}

struct Finding {
  std::string where;
  std::string got;
  std::string expected;
};

/// A pass over the text that finds what a document tree cannot show: syntax errors, and an object's
/// second key of the same name (a tree keeps only one of them).
class SyntaxCheck : public nlohmann::json_sax<Json> {
 public:
  const std::optional<Finding>& finding() const { return finding_; }

  bool null() override { return value(); }
  bool boolean(bool) override { return value(); }
  bool number_integer(number_integer_t) override { return value(); }
  bool number_unsigned(number_unsigned_t) override { return value(); }
  bool number_float(number_float_t, const string_t&) override { return value(); }
  bool string(string_t&) override { return value(); }
  bool binary(binary_t&) override { return value(); }
  bool start_object(std::size_t) override { return open("{"); }
  bool start_array(std::size_t) override { return open("["); }
  bool end_object() override { return close(); }
  bool end_array() override { return close(); }

  bool key(string_t& name) override {
    Level& level = levels_.back();
    level.key = name;
    if (level.keys.insert(name).second) return true;
    finding_ = {here(), "duplicate key", "each key once"};
    return false;
  }

  bool parse_error(std::size_t position, const std::string& token,
                   const nlohmann::detail::exception& error) override {
    // nlohmann's text is "[id] ... - reason"; the id and the position are noise or said already.
    std::string reason = error.what();
    if (const auto bracket = reason.find("] "); bracket != std::string::npos) {
      reason.erase(0, bracket + 2);
    }
    if (const auto column = reason.find("column "); column != std::string::npos) {
      if (const auto colon = reason.find(": ", column); colon != std::string::npos) {
        reason.erase(0, colon + 2);
      }
    }
    finding_ = {"byte " + std::to_string(position), "got " + shown(Json(token)),
                "JSON (" + one_line(reason, 2 * kMaxShownBytes) + ")"};
    return false;
  }

 private:
  struct Level {
    std::set<std::string> keys;
    std::string key;
    std::size_t values = 0;
  };

  bool value() {
    if (!levels_.empty()) ++levels_.back().values;
    return true;
  }
  bool open(const char* bracket) {
    value();
    levels_.emplace_back();
    if (levels_.size() <= kMaxDepth) return true;
    finding_ = {here(), std::string("got ") + bracket,
                "at most " + std::to_string(kMaxDepth) + " levels of nesting"};
    return false;
  }
  bool close() {
    levels_.pop_back();
    return true;
  }
  std::string here() const {
    JsonPointer pointer;
    for (const Level& level : levels_) {
      if (level.keys.empty() && level.values == 0) break;  // nothing in it yet
      pointer.push_back(level.keys.empty() ? std::to_string(level.values - 1) : level.key);
    }
    return pointer.to_string();
  }

  std::vector<Level> levels_;
  std::optional<Finding> finding_;
};

}  // namespace

Result<Json> parse_json(const std::string& text, const std::string& path) {
  SyntaxCheck syntax;
  Json::sax_parse(text, &syntax);
  if (const auto& found = syntax.finding()) {
    JsonReader reader(path);
    reader.refuse(found->where, found->got, found->expected);
    return reader.status();
  }
  // The library takes a NUL for the end of the text, whatever is behind it.
  if (const std::size_t nul = text.find('\0'); nul != std::string::npos) {
    JsonReader reader(path);
    reader.refuse("byte " + std::to_string(nul + 1), "got a NUL", "JSON alone");
    return reader.status();
  }
  return Json::parse(text, nullptr, /*allow_exceptions=*/false);
}

void JsonReader::refuse(const std::string& where, const std::string& got,
                        const std::string& expected) {
  if (!ok()) return;
  const std::string place = where.empty() ? "(root)" : one_line(where, 2 * kMaxShownBytes);
  status_ = invalid_argument(path_ + ": " + place + ": " + got + ", expected " + expected);
}

void JsonReader::refuse(const JsonPointer& where, const Json& got, const std::string& expected) {
  refuse(where.to_string(), "got " + shown(got), expected);
}

bool JsonReader::object(const Json& value, const JsonPointer& at,
                        const std::vector<const char*>& required,
                        const std::vector<const char*>& optional) {
  if (!ok()) return false;
  std::vector<const char*> known = required;
  known.insert(known.end(), optional.begin(), optional.end());
  if (!value.is_object()) {
    refuse(at, value, "an object with the keys " + join(known));
    return false;
  }
  for (const auto& [key, member] : value.items()) {
    const bool listed = std::any_of(known.begin(), known.end(),
                                    [&name = key](const char* word) { return name == word; });
    if (!listed) {
      refuse((at / key).to_string(), "unknown key with value " + shown(member),
             "one of " + join(known));
      return false;
    }
  }
  for (const char* key : required) {
    if (!value.contains(key)) {
      refuse((at / key).to_string(), "missing", "the keys " + join(required));
      return false;
    }
  }
  return true;
}

const Json* JsonReader::array(const Json& parent, const JsonPointer& at, const char* key,
                              const char* expected) {
  if (!ok()) return nullptr;
  const Json& value = parent.at(key);
  if (value.is_array() && !value.empty()) return &value;
  refuse(at / key, value, expected);
  return nullptr;
}

std::int64_t JsonReader::integer(const Json& value, const JsonPointer& at, std::int64_t low,
                                 std::int64_t high) {
  // An unsigned value may be past int64, where get<int64_t>() would wrap.
  const bool in_int64 =
      value.is_number_integer() &&
      !(value.is_number_unsigned() && value.get<std::uint64_t>() > std::uint64_t{INT64_MAX});
  if (in_int64 && value.get<std::int64_t>() >= low && value.get<std::int64_t>() <= high) {
    return value.get<std::int64_t>();
  }
  refuse(at, value,
         low == high ? std::to_string(low)
                     : "an integer in [" + std::to_string(low) + ", " + std::to_string(high) + "]");
  return low;
}

double JsonReader::number(const Json& value, const JsonPointer& at, double low, double high) {
  // Written so that a NaN is refused.
  if (value.is_number() && value.get<double>() >= low && value.get<double>() <= high) {
    return value.get<double>();
  }
  refuse(at, value, "a number in [" + text_of(low) + ", " + text_of(high) + "]");
  return low;
}

std::string JsonReader::name(const Json& value, const JsonPointer& at) {
  if (value.is_string() && is_name(value.get_ref<const std::string&>())) {
    return value.get<std::string>();
  }
  refuse(at, value, "a name of letters, digits and underscores");
  return {};
}

}  // namespace fp8_sdpa::reference
