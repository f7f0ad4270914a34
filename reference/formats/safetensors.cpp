#include "reference/formats/safetensors.hpp"

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdio>
#include <fstream>
#include <nlohmann/json.hpp>
#include <set>
#include <string_view>
#include <utility>

#include "reference/formats/text.hpp"

namespace fp8_sdpa::reference {
namespace {

using nlohmann::json;

constexpr std::uint64_t kLengthBytes = 8;
constexpr std::uint64_t kLargestHeader = 100'000'000;  // the format's own limit
constexpr int kDeepest = 8;  // legal headers have 3 levels; printing a value recurses
constexpr const char* kMetadata = "__metadata__";

struct DtypeSize {
  std::string_view name;
  std::uint64_t bytes;
};
constexpr std::array kDtypes = {
    DtypeSize{"BOOL", 1},    DtypeSize{"U8", 1},      DtypeSize{"I8", 1},  DtypeSize{"F8_E4M3", 1},
    DtypeSize{"F8_E5M2", 1}, DtypeSize{"F8_E8M0", 1}, DtypeSize{"I16", 2}, DtypeSize{"U16", 2},
    DtypeSize{"F16", 2},     DtypeSize{"BF16", 2},    DtypeSize{"I32", 4}, DtypeSize{"U32", 4},
    DtypeSize{"F32", 4},     DtypeSize{"I64", 8},     DtypeSize{"U64", 8}, DtypeSize{"F64", 8},
    DtypeSize{"C64", 8},
};

/// A JSON value for a message, on one line and short.
std::string show(const json& value) {
  constexpr std::size_t kLongest = 80;
  std::string text = value.dump(-1, ' ', true, json::error_handler_t::replace);
  if (text.size() > kLongest) text = text.substr(0, kLongest) + "...";
  return text;
}

/// Where a tensor's bytes are, from the start of the data section.
struct Range {
  std::uint64_t begin = 0;
  std::uint64_t end = 0;
  std::size_t entry = 0;
};

class Parser {
 public:
  Parser(std::span<const std::uint8_t> file, const std::string& path)
      : file_(file), path_(one_line(path)) {}

  Result<std::vector<SafetensorsEntry>> parse() {
    const auto header = read_header();
    if (!header.ok()) return header.status();
    for (const auto& [name, value] : header->items()) {
      const Status status = name == kMetadata ? check_metadata(value) : add(name, value);
      if (!status.ok()) return status;
    }
    if (Status status = check_coverage(); !status.ok()) return status;
    return std::move(entries_);
  }

 private:
  Status error(const std::string& what) const { return invalid_argument(path_ + ": " + what); }
  Status field_error(const std::string& name, const char* field, const std::string& what) const {
    return error("tensor " + json_quoted(name) + ", " + field + ": " + what);
  }

  Result<json> read_header() {
    if (file_.size() < kLengthBytes) {
      return error("header length: the file has " + std::to_string(file_.size()) +
                   " bytes; a safetensors file starts with 8 bytes of header length");
    }
    std::uint64_t length = 0;
    for (std::uint64_t i = kLengthBytes; i-- > 0;) length = length << 8 | file_[i];
    const std::uint64_t rest = file_.size() - kLengthBytes;
    if (length > kLargestHeader || length > rest) {
      return error("header length: " + std::to_string(length) + " bytes, but " +
                   std::to_string(rest) + " follow (and the format allows " +
                   std::to_string(kLargestHeader) + "); truncated, or not a safetensors file");
    }
    const auto text = file_.subspan(kLengthBytes, length);
    data_ = file_.subspan(kLengthBytes + length);
    // The library takes a NUL for the end of the text, whatever is behind it.
    if (const auto nul = std::find(text.begin(), text.end(), 0); nul != text.end()) {
      return error("header: a NUL at byte " + std::to_string(nul - text.begin() + 1) +
                   "; expected JSON alone");
    }
    std::vector<std::set<std::string>> keys;
    std::string duplicate;
    bool too_deep = false;
    const auto watch = [&](int depth, json::parse_event_t event, json& parsed) {
      if (depth > kDeepest) {
        too_deep = true;
        return false;
      }
      if (event == json::parse_event_t::object_start) keys.emplace_back();
      if (event == json::parse_event_t::object_end && !keys.empty()) keys.pop_back();
      if (event == json::parse_event_t::key && !keys.empty()) {
        const auto& key = parsed.get_ref<const std::string&>();
        if (!keys.back().insert(key).second) duplicate = key;
      }
      return true;
    };
    json header = json::parse(text.begin(), text.end(), watch, /*allow_exceptions=*/false);
    if (header.is_discarded()) return error("header: not JSON");
    if (too_deep) {
      return error("header: nested deeper than " + std::to_string(kDeepest) +
                   " levels; expected an object of tensors");
    }
    if (!header.is_object()) return error("header: " + show(header) + "; expected an object");
    if (!duplicate.empty()) return error("header: " + json_quoted(duplicate) + " is there twice");
    return header;
  }

  Status check_metadata(const json& value) const {
    if (!value.is_object()) {
      return error(std::string(kMetadata) + ": " + show(value) + "; expected an object of strings");
    }
    for (const auto& [key, text] : value.items()) {
      if (!text.is_string()) {
        return error(std::string(kMetadata) + ", " + json_quoted(key) + ": " + show(text) +
                     "; expected a string");
      }
    }
    return {};
  }

  Status add(const std::string& name, const json& value) {
    if (!value.is_object()) {
      return error("tensor " + json_quoted(name) + ": " + show(value) +
                   "; expected an object with dtype, shape and data_offsets");
    }
    SafetensorsEntry entry;
    entry.name = name;
    const auto dtype = value.find("dtype");
    if (dtype == value.end() || !dtype->is_string()) {
      return field_error(name, "dtype", "missing, or not a string");
    }
    entry.dtype = dtype->get<std::string>();
    if (Status status = read_shape(value, entry); !status.ok()) return status;
    Range range;
    if (Status status = read_offsets(value, name, range); !status.ok()) return status;
    if (Status status = check_size(entry, range); !status.ok()) return status;
    entry.bytes = data_.subspan(range.begin, range.end - range.begin);
    range.entry = entries_.size();
    ranges_.push_back(range);
    entries_.push_back(std::move(entry));
    return {};
  }

  Status read_shape(const json& value, SafetensorsEntry& entry) const {
    const auto shape = value.find("shape");
    if (shape == value.end() || !shape->is_array()) {
      return field_error(entry.name, "shape", "missing, or not an array");
    }
    for (const json& size : *shape) {
      if (!size.is_number_unsigned()) {
        return field_error(entry.name, "shape",
                           show(*shape) + "; expected whole numbers from 0 to 2^64 - 1");
      }
      entry.shape.push_back(size.get<std::uint64_t>());
    }
    return {};
  }

  Status read_offsets(const json& value, const std::string& name, Range& range) const {
    const auto offsets = value.find("data_offsets");
    if (offsets == value.end() || !offsets->is_array() || offsets->size() != 2 ||
        !(*offsets)[0].is_number_unsigned() || !(*offsets)[1].is_number_unsigned()) {
      return field_error(name, "data_offsets",
                         (offsets == value.end() ? "missing" : show(*offsets)) +
                             std::string("; expected [begin, end], two whole numbers"));
    }
    range.begin = (*offsets)[0].get<std::uint64_t>();
    range.end = (*offsets)[1].get<std::uint64_t>();
    if (range.begin > range.end || range.end > data_.size()) {
      return field_error(name, "data_offsets",
                         show(*offsets) + "; expected begin <= end <= " +
                             std::to_string(data_.size()) + ", the bytes after the header");
    }
    return {};
  }

  /// That the range holds as many bytes as dtype and shape say. A dtype that is not known here may
  /// have any size: it is refused where the tensor is asked for.
  Status check_size(const SafetensorsEntry& entry, const Range& range) const {
    std::uint64_t bytes = safetensors_element_size(entry.dtype);
    if (bytes == 0) return {};
    for (const std::uint64_t size : entry.shape) {
      if (__builtin_mul_overflow(bytes, size, &bytes)) {
        return field_error(entry.name, "shape", show(entry.shape) + "; more than 2^64 bytes");
      }
    }
    if (bytes != range.end - range.begin) {
      return field_error(entry.name, "data_offsets",
                         std::to_string(range.end - range.begin) + " bytes, but " + entry.dtype +
                             " of shape " + show(entry.shape) + " takes " + std::to_string(bytes));
    }
    return {};
  }

  Status check_coverage() {
    std::sort(ranges_.begin(), ranges_.end(), [](const Range& a, const Range& b) {
      return std::pair(a.begin, a.end) < std::pair(b.begin, b.end);
    });
    std::uint64_t covered = 0;
    for (const Range& range : ranges_) {
      if (range.begin != covered) {
        return field_error(entries_[range.entry].name, "data_offsets",
                           "begins at " + std::to_string(range.begin) +
                               (range.begin < covered ? ", inside another tensor that ends at "
                                                      : ", after a hole that begins at ") +
                               std::to_string(covered));
      }
      covered = range.end;
    }
    if (covered != data_.size()) {
      return error("data: the tensors end at byte " + std::to_string(covered) +
                   " of the data section, which has " + std::to_string(data_.size()) +
                   " bytes; expected no bytes that belong to no tensor");
    }
    return {};
  }

  std::span<const std::uint8_t> file_;
  std::string path_;
  std::span<const std::uint8_t> data_;
  std::vector<SafetensorsEntry> entries_;
  std::vector<Range> ranges_;
};

}  // namespace

std::string json_quoted(const std::string& text) { return show(json(text)); }

std::uint64_t safetensors_element_size(const std::string& dtype) {
  for (const DtypeSize& known : kDtypes) {
    if (known.name == dtype) return known.bytes;
  }
  return 0;
}

Result<std::vector<SafetensorsEntry>> parse_safetensors(std::span<const std::uint8_t> file,
                                                        const std::string& path) {
  return Parser(file, path).parse();
}

std::vector<std::uint8_t> encode_safetensors(std::span<const SafetensorsTensor> tensors) {
  nlohmann::ordered_json header = nlohmann::ordered_json::object();
  std::uint64_t offset = 0;
  for (const SafetensorsTensor& tensor : tensors) {
    const std::uint64_t end = offset + tensor.bytes.size();
    header[tensor.name] = {
        {"dtype", tensor.dtype}, {"shape", tensor.shape}, {"data_offsets", {offset, end}}};
    offset = end;
  }
  std::string text = header.dump(-1, ' ', false, nlohmann::ordered_json::error_handler_t::replace);
  // Spaces after the header keep the data aligned to 8 bytes, as the format's own writer does.
  while (text.size() % kLengthBytes != 0) text += ' ';
  std::vector<std::uint8_t> file;
  file.reserve(kLengthBytes + text.size() + offset);
  for (std::uint64_t i = 0; i < kLengthBytes; ++i) {
    file.push_back(static_cast<std::uint8_t>(text.size() >> (8 * i)));
  }
  file.insert(file.end(), text.begin(), text.end());
  for (const SafetensorsTensor& tensor : tensors) {
    file.insert(file.end(), tensor.bytes.begin(), tensor.bytes.end());
  }
  return file;
}

Status write_safetensors(const std::string& path, std::span<const SafetensorsTensor> tensors) {
  const std::vector<std::uint8_t> file = encode_safetensors(tensors);
  const std::string temporary = path + ".tmp";
  std::ofstream stream(temporary, std::ios::binary | std::ios::trunc);
  stream.write(reinterpret_cast<const char*>(file.data()),
               static_cast<std::streamsize>(file.size()));
  stream.close();
  if (!stream || std::rename(temporary.c_str(), path.c_str()) != 0) {
    std::remove(temporary.c_str());
    return invalid_argument(path + ": cannot be written; give a path in a writable folder");
  }
  return {};
}

}  // namespace fp8_sdpa::reference
