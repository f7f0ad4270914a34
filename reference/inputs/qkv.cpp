#include "reference/inputs/qkv.hpp"

#include <algorithm>
#include <array>
#include <bit>
#include <cctype>
#include <cmath>
#include <cstddef>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <limits>
#include <new>
#include <system_error>
#include <tuple>
#include <utility>
#include <vector>

#include "reference/formats/half.hpp"
#include "reference/formats/safetensors.hpp"
#include "reference/formats/text.hpp"

static_assert(std::endian::native == std::endian::little, "safetensors are little-endian");

namespace fp8_sdpa::reference {
namespace {

constexpr int kRank = 4;
constexpr std::array kServedHeadDims = {64, 128, 256};  ///< others are padded to the next of them

std::string lower(std::string text) {
  std::transform(text.begin(), text.end(), text.begin(),
                 [](unsigned char c) { return static_cast<char>(std::tolower(c)); });
  return text;
}

std::string show(const std::vector<std::uint64_t>& shape) {
  std::string text;
  for (const std::uint64_t size : shape) text += (text.empty() ? "" : ", ") + std::to_string(size);
  return "[" + text + "]";
}

/// One operand: its place in the file and its sizes.
struct OperandView {
  const SafetensorsEntry* entry = nullptr;
  std::int64_t batch = 0, heads = 0, seq = 0, head_dim = 0;
};

class QkvReader {
 public:
  QkvReader(const std::vector<SafetensorsEntry>& entries, const std::string& path,
            const QkvOptions& options)
      : entries_(entries), path_(one_line(path)), options_(options) {}

  Result<Qkv> read() const {
    OperandView q, k, v;
    for (const auto& [view, name] :
         {std::pair(&q, &options_.q), std::pair(&k, &options_.k), std::pair(&v, &options_.v)}) {
      if (Status status = find(*name, *view); !status.ok()) return status;
    }
    if (Status status = check_consistency(q, k, v); !status.ok()) return status;
    Qkv qkv;
    qkv.original_head_dim = static_cast<int>(q.head_dim);
    qkv.softmax_scale = static_cast<float>(1.0 / std::sqrt(static_cast<double>(q.head_dim)));
    const auto* const served =
        std::lower_bound(kServedHeadDims.begin(), kServedHeadDims.end(), qkv.original_head_dim);
    const int head_dim = served == kServedHeadDims.end() ? qkv.original_head_dim : *served;
    qkv.sizes = {static_cast<int>(q.batch),
                 static_cast<int>(q.heads),
                 static_cast<int>(k.heads),
                 q.seq,
                 k.seq,
                 head_dim,
                 Mask::kNone};
    if (dtype_of(q) != Dtype::kFloat) {
      qkv.codes.emplace();
      for (const auto& [view, tensor, rows] : {std::tuple(&q, &qkv.codes->q, kQueriesOfBlock),
                                               std::tuple(&k, &qkv.codes->k, kKeysOfBlock),
                                               std::tuple(&v, &qkv.codes->v, kKeysOfBlock)}) {
        if (Status s = read_codes(*view, head_dim, rows, *tensor); !s.ok()) return s;
      }
      if (Status s = align_granularity(*qkv.codes, head_dim); !s.ok()) return s;
      return qkv;
    }
    const auto values = [&](const OperandView& view) {
      return convert<float>(view, head_dim,
                            [&](std::size_t index) { return element(*view.entry, index); });
    };
    qkv.inputs = {values(q), values(k), values(v)};
    return qkv;
  }

 private:
  Status error(const OperandView& view, const std::string& field, const std::string& what) const {
    return invalid_argument(path_ + ": tensor " + json_quoted(view.entry->name) + ", " + field +
                            ": " + what);
  }

  /// The tensor of that name, null if there is none.
  Status find(const std::string& name, const SafetensorsEntry*& found) const {
    found = nullptr;
    for (const SafetensorsEntry& entry : entries_) {
      const bool matches =
          options_.ignore_case ? lower(entry.name) == lower(name) : entry.name == name;
      if (!matches) continue;
      if (found != nullptr) {
        return invalid_argument(path_ + ": tensors " + json_quoted(found->name) + " and " +
                                json_quoted(entry.name) + " both match " + json_quoted(name) +
                                "; expected one");
      }
      found = &entry;
    }
    return {};
  }

  Status find(const std::string& name, OperandView& view) const {
    if (Status status = find(name, view.entry); !status.ok()) return status;
    if (view.entry == nullptr) {
      return invalid_argument(path_ + ": tensor " + json_quoted(name) +
                              " is missing; there are: " + known_names());
    }
    return read_sizes(view);
  }

  std::string known_names() const {
    constexpr std::size_t kMost = 8;
    std::string names;
    for (std::size_t i = 0; i < entries_.size() && i < kMost; ++i) {
      names += (names.empty() ? "" : ", ") + json_quoted(entries_[i].name);
    }
    if (entries_.size() > kMost) names += ", ...";
    return names.empty() ? "none" : names;
  }

  Status read_sizes(OperandView& view) const {
    const SafetensorsEntry& entry = *view.entry;
    constexpr std::array kTypes = {"F32", "F16", "BF16", "F8_E4M3", "F8_E5M2"};
    if (std::find(kTypes.begin(), kTypes.end(), entry.dtype) == kTypes.end()) {
      return error(view, "dtype",
                   json_quoted(entry.dtype) + "; expected F32, F16, BF16, F8_E4M3 or F8_E5M2");
    }
    const bool head_major = options_.layout == QkvLayout::kHeadMajor;
    const std::string expected =
        head_major ? "(batch, heads, seq, head_dim)" : "(batch, seq, heads, head_dim)";
    if (entry.shape.size() != kRank) {
      return error(view, "shape", show(entry.shape) + "; expected " + expected);
    }
    for (const std::uint64_t size : entry.shape) {
      if (size < 1 || size > static_cast<std::uint64_t>(std::numeric_limits<int>::max())) {
        return error(view, "shape",
                     show(entry.shape) + "; expected sizes from 1 to 2^31 - 1, " + expected);
      }
    }
    std::array<std::int64_t, kRank> size{};
    std::copy(entry.shape.begin(), entry.shape.end(), size.begin());
    view.batch = size[0];
    view.heads = head_major ? size[1] : size[2];
    view.seq = head_major ? size[2] : size[1];
    view.head_dim = size[3];
    return {};
  }

  Status check_consistency(const OperandView& q, const OperandView& k, const OperandView& v) const {
    for (const OperandView* view : {&k, &v}) {
      if (dtype_of(*view) != dtype_of(q)) {
        return error(*view, "dtype",
                     json_quoted(view->entry->dtype) + " beside " + json_quoted(q.entry->dtype) +
                         " of " + json_quoted(q.entry->name) +
                         "; FP8 tensors are all of one format");
      }
    }
    if (k.entry->shape != v.entry->shape) {
      return error(v, "shape",
                   show(v.entry->shape) + "; expected that of " + json_quoted(k.entry->name) +
                       ", " + show(k.entry->shape));
    }
    if (k.batch != q.batch || k.head_dim != q.head_dim) {
      return error(k, "shape",
                   show(k.entry->shape) + "; expected batch " + std::to_string(q.batch) +
                       " and head_dim " + std::to_string(q.head_dim) + ", as " +
                       json_quoted(q.entry->name) + " has");
    }
    if (q.heads % k.heads != 0) {
      return error(q, "shape",
                   show(q.entry->shape) + "; " + std::to_string(q.heads) +
                       " heads are no multiple of the " + std::to_string(k.heads) + " heads of " +
                       json_quoted(k.entry->name));
    }
    return {};
  }

  /// Of codes; kFloat for whatever is quantised here.
  static Dtype dtype_of(const OperandView& view) {
    if (view.entry->dtype == "F8_E4M3") return Dtype::kE4M3;
    return view.entry->dtype == "F8_E5M2" ? Dtype::kE5M2 : Dtype::kFloat;
  }

  /// Where one tensor's descales are of blocks, all are; kernels take positive ones.
  Status align_granularity(QkvCodes& codes, int head_dim) const {
    const std::array<std::pair<QuantisedTensor*, int>, 3> tensors = {
        {{&codes.q, kQueriesOfBlock}, {&codes.k, kKeysOfBlock}, {&codes.v, kKeysOfBlock}}};
    if (std::none_of(tensors.begin(), tensors.end(),
                     [](const auto& of) { return of.first->per_block > 0; })) {
      return {};
    }
    for (const auto& [tensor, rows] : tensors) {
      if (tensor->per_block == 0) {
        *tensor = in_blocks(std::move(*tensor), std::int64_t{rows} * head_dim);
      }
      if (std::all_of(tensor->descales.begin(), tensor->descales.end(),
                      [](float descale) { return descale > 0.0F; })) {
        continue;
      }
      return invalid_argument(path_ + ": a descale is not positive; where one tensor's descales " +
                              "are of blocks of rows, all must be");
    }
    return {};
  }

  /// `block_rows` is that of the tensor where its descales are of blocks.
  Status read_codes(const OperandView& view, int head_dim, int block_rows,
                    QuantisedTensor& tensor) const {
    tensor.dtype = dtype_of(view);
    tensor.codes = convert<std::uint8_t>(
        view, head_dim, [&](std::size_t index) { return view.entry->bytes[index]; });
    const auto heads = static_cast<std::size_t>(view.batch * view.heads);
    tensor.descales.assign(heads, 1.0F);
    OperandView descale;
    if (Status s = find(view.entry->name + "_descale", descale.entry); !s.ok()) return s;
    if (descale.entry == nullptr) return {};
    const SafetensorsEntry& entry = *descale.entry;
    if (entry.dtype != "F32") {
      return error(descale, "dtype", json_quoted(entry.dtype) + "; expected F32");
    }
    const std::size_t size = entry.bytes.size() / sizeof(float);
    const std::vector<std::uint64_t> of_heads = {static_cast<std::uint64_t>(view.batch),
                                                 static_cast<std::uint64_t>(view.heads)};
    std::vector<std::uint64_t> of_blocks = of_heads;
    of_blocks.push_back(
        static_cast<std::uint64_t>(descales_of_head(Granularity::kBlock, view.seq, block_rows)));
    if (entry.shape == of_blocks && size != 1) {
      tensor.per_block = std::int64_t{block_rows} * head_dim;
      tensor.per_head = view.seq * head_dim;
      tensor.descales.resize(size);
    } else if (size != 1 && entry.shape != of_heads) {
      return error(descale, "shape",
                   show(entry.shape) + "; expected one element, (batch, heads), " + show(of_heads) +
                       ", or (batch, heads, blocks of " + std::to_string(block_rows) + " rows), " +
                       show(of_blocks));
    }
    for (std::size_t i = 0; i < tensor.descales.size(); ++i) {
      const std::size_t at = size == 1 ? 0 : i;
      std::memcpy(&tensor.descales[i], entry.bytes.data() + at * sizeof(float), sizeof(float));
      if (std::isfinite(tensor.descales[i])) continue;
      return error(descale, "element " + std::to_string(at), "is not finite");
    }
    return {};
  }

  float element(const SafetensorsEntry& entry, std::size_t index) const {
    if (entry.dtype == "F32") {
      float value = 0.0F;
      std::memcpy(&value, entry.bytes.data() + index * sizeof(value), sizeof(value));
      return value;
    }
    std::uint16_t code = 0;
    std::memcpy(&code, entry.bytes.data() + index * sizeof(code), sizeof(code));
    return decode_16(code, entry.dtype == "F16" ? Dtype::kHalf : Dtype::kBFloat16);
  }

  /// (batch, heads, seq, head_dim) contiguous of what `take` says of an element of the file, zero
  /// past the tensor's own head_dim.
  template <class Element, class Take>
  std::vector<Element> convert(const OperandView& view, int head_dim, const Take& take) const {
    const bool head_major = options_.layout == QkvLayout::kHeadMajor;
    const std::int64_t rows = view.batch * view.heads * view.seq;
    std::vector<Element> values(static_cast<std::size_t>(rows) *
                                static_cast<std::size_t>(head_dim));
    for (std::int64_t row = 0; row < rows; ++row) {
      const std::int64_t s = row % view.seq;
      const std::int64_t h = row / view.seq % view.heads;
      const std::int64_t b = row / view.seq / view.heads;
      const std::int64_t source = head_major ? row : (b * view.seq + s) * view.heads + h;
      for (std::int64_t d = 0; d < view.head_dim; ++d) {
        values[static_cast<std::size_t>(row * head_dim + d)] =
            take(static_cast<std::size_t>(source * view.head_dim + d));
      }
    }
    return values;
  }

  const std::vector<SafetensorsEntry>& entries_;
  const std::string path_;
  const QkvOptions& options_;
};

}  // namespace

Result<Qkv> parse_qkv(std::span<const std::uint8_t> file, const std::string& path,
                      const QkvOptions& options) {
  try {
    const auto entries = parse_safetensors(file, path);
    if (!entries.ok()) return entries.status();
    return QkvReader(*entries, path, options).read();
  } catch (const std::bad_alloc&) {
    return Status(
        StatusCode::kOutOfMemory,
        one_line(path) + ": not enough memory to hold Q, K and V as float; use a smaller file");
  }
}

Result<Qkv> load_qkv(const std::string& path, const QkvOptions& options) {
  std::error_code failure;
  const std::uintmax_t size = std::filesystem::file_size(path, failure);
  if (failure) {
    return invalid_argument(one_line(path) + ": cannot be read: " + failure.message() +
                            "; expected a safetensors file");
  }
  try {
    std::vector<std::uint8_t> file(size);
    std::ifstream stream(path, std::ios::binary);
    stream.read(reinterpret_cast<char*>(file.data()), static_cast<std::streamsize>(size));
    if (!stream) {
      return invalid_argument(one_line(path) +
                              ": cannot be read; expected a readable safetensors file");
    }
    return parse_qkv(file, path, options);
  } catch (const std::bad_alloc&) {
    return Status(StatusCode::kOutOfMemory, one_line(path) + ": not enough memory to read " +
                                                std::to_string(size) +
                                                " bytes; use a smaller file");
  }
}

}  // namespace fp8_sdpa::reference
