#include "reference/formats/safetensors.hpp"

#include <gtest/gtest.h>
#include <unistd.h>

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <cstring>
#include <filesystem>
#include <functional>
#include <string>
#include <vector>

#include "reference/formats/half.hpp"
#include "reference/inputs/philox.hpp"
#include "reference/inputs/qkv.hpp"
#include "reference/oracle/case.hpp"

namespace fp8_sdpa::reference {
namespace {

using Bytes = std::vector<std::uint8_t>;

/// A tensor of the values 0, 1/8, 2/8, ... plus `first`, exact in every dtype here while small.
SafetensorsTensor make_tensor(const std::string& name, const std::string& dtype,
                              const std::vector<std::uint64_t>& shape, float first = 0.0F) {
  SafetensorsTensor tensor{name, dtype, shape, {}};
  std::uint64_t count = 1;
  for (const std::uint64_t size : shape) count *= size;
  for (std::uint64_t i = 0; i < count; ++i) {
    const float value = first + static_cast<float>(i % 64) / 8.0F;
    Bytes bytes(dtype == "F32" ? 4 : 2);
    if (dtype == "F32") {
      std::memcpy(bytes.data(), &value, bytes.size());
    } else {
      const std::uint16_t code = encode_16(value, dtype == "F16" ? Dtype::kHalf : Dtype::kBFloat16);
      std::memcpy(bytes.data(), &code, bytes.size());
    }
    tensor.bytes.insert(tensor.bytes.end(), bytes.begin(), bytes.end());
  }
  return tensor;
}

std::vector<SafetensorsTensor> valid_tensors(const std::string& dtype = "F32") {
  return {make_tensor("q", dtype, {1, 2, 3, 64}), make_tensor("k", dtype, {1, 1, 5, 64}, 1.0F),
          make_tensor("v", dtype, {1, 1, 5, 64}, 2.0F)};
}

/// A file with this header text and this many bytes of data.
Bytes raw_file(const std::string& header, std::size_t data_bytes) {
  Bytes file;
  for (int i = 0; i < 8; ++i) file.push_back(static_cast<std::uint8_t>(header.size() >> (8 * i)));
  file.insert(file.end(), header.begin(), header.end());
  file.resize(file.size() + data_bytes);
  return file;
}

void expect_refused(const Bytes& file, const std::vector<std::string>& words,
                    const QkvOptions& options = {}) {
  const auto result = parse_qkv(file, "x.safetensors", options);
  ASSERT_FALSE(result.ok()) << "expected a refusal that names " << words.front();
  const std::string& message = result.status().message();
  EXPECT_EQ(result.status().code(), StatusCode::kInvalidArgument);
  EXPECT_EQ(message.find("x.safetensors: "), 0U) << message;
  EXPECT_EQ(message.find('\n'), std::string::npos) << message;
  for (const std::string& word : words) {
    EXPECT_NE(message.find(word), std::string::npos) << "\"" << word << "\" not in: " << message;
  }
}

TEST(Safetensors, RoundTripsEveryDtypeThroughAFile) {
  for (const std::string dtype : {"F32", "F16", "BF16"}) {
    const std::string path = (std::filesystem::temp_directory_path() /
                              ("fp8_sdpa_" + dtype + "_" + std::to_string(::getpid())))
                                 .string();
    const auto tensors = valid_tensors(dtype);
    ASSERT_TRUE(write_safetensors(path, tensors).ok());
    EXPECT_FALSE(std::filesystem::exists(path + ".tmp"));
    const auto qkv = load_qkv(path);
    std::remove(path.c_str());
    ASSERT_TRUE(qkv.ok()) << qkv.status().message();
    EXPECT_EQ(qkv->sizes.heads_q, 2);
    EXPECT_EQ(qkv->sizes.heads_kv, 1);
    EXPECT_EQ(qkv->sizes.seq_q, 3);
    EXPECT_EQ(qkv->sizes.seq_kv, 5);
    EXPECT_EQ(qkv->sizes.head_dim, 64);
    EXPECT_FLOAT_EQ(qkv->softmax_scale, 0.125F);
    ASSERT_EQ(qkv->inputs.q.size(), 2U * 3 * 64);
    for (std::size_t i = 0; i < qkv->inputs.q.size(); ++i) {
      ASSERT_EQ(qkv->inputs.q[i], static_cast<float>(i % 64) / 8.0F) << dtype;
    }
    EXPECT_EQ(qkv->inputs.k[9], 1.0F + 9.0F / 8.0F);
    EXPECT_EQ(qkv->inputs.v[5 * 64 - 1], 2.0F + 63.0F / 8.0F);
  }
}

TEST(Safetensors, EntriesKeepNameShapeAndBytes) {
  const auto tensors = valid_tensors();
  const Bytes file = encode_safetensors(tensors);
  const auto entries = parse_safetensors(file, "x");
  ASSERT_TRUE(entries.ok()) << entries.status().message();
  ASSERT_EQ(entries->size(), tensors.size());
  for (const auto& entry : *entries) {
    const auto& tensor = *std::find_if(tensors.begin(), tensors.end(),
                                       [&](const auto& t) { return t.name == entry.name; });
    EXPECT_EQ(entry.shape, tensor.shape);
    EXPECT_EQ(Bytes(entry.bytes.begin(), entry.bytes.end()), tensor.bytes);
  }
}

TEST(Safetensors, SequenceMajorIsTransposed) {
  // (batch 1, seq 3, heads 2, dim 64): element (s, h, d) is at (s * 2 + h) * 64 + d.
  std::vector<SafetensorsTensor> tensors = {make_tensor("q", "F32", {1, 3, 2, 64}),
                                            make_tensor("k", "F32", {1, 5, 1, 64}),
                                            make_tensor("v", "F32", {1, 5, 1, 64})};
  for (std::size_t row = 0; row < 6; ++row) {
    const auto value = static_cast<float>(row);
    std::memcpy(&tensors[0].bytes[row * 64 * sizeof(float)], &value, sizeof(value));
  }
  QkvOptions options;
  options.layout = QkvLayout::kSequenceMajor;
  const auto qkv = parse_qkv(encode_safetensors(tensors), "x", options);
  ASSERT_TRUE(qkv.ok()) << qkv.status().message();
  EXPECT_EQ(qkv->sizes.heads_q, 2);
  EXPECT_EQ(qkv->sizes.seq_q, 3);
  for (std::size_t h = 0; h < 2; ++h) {
    for (std::size_t s = 0; s < 3; ++s) {
      EXPECT_EQ(qkv->inputs.q[(h * 3 + s) * 64], static_cast<float>(s * 2 + h));
    }
  }
}

TEST(Safetensors, SmallHeadDimIsPaddedAndKeepsItsScale) {
  const std::vector<SafetensorsTensor> tensors = {make_tensor("q", "F16", {1, 1, 2, 40}, 1.0F),
                                                  make_tensor("k", "F16", {1, 1, 3, 40}, 1.0F),
                                                  make_tensor("v", "F16", {1, 1, 3, 40}, 1.0F)};
  const auto qkv = parse_qkv(encode_safetensors(tensors), "x");
  ASSERT_TRUE(qkv.ok()) << qkv.status().message();
  EXPECT_EQ(qkv->sizes.head_dim, 64);
  EXPECT_EQ(qkv->original_head_dim, 40);
  EXPECT_FLOAT_EQ(qkv->softmax_scale, 1.0F / std::sqrt(40.0F));
  for (std::size_t row = 0; row < 2; ++row) {
    for (std::size_t d = 0; d < 64; ++d) {
      EXPECT_EQ(qkv->inputs.q[row * 64 + d] != 0.0F, d < 40) << row << ", " << d;
    }
  }
}

TEST(Safetensors, AHeadDimIsPaddedToTheNextThatKernelsServe) {
  for (const auto& [given, padded] : {std::pair(1U, 64),
                                      {64U, 64},
                                      {65U, 128},
                                      {80U, 128},
                                      {128U, 128},
                                      {192U, 256},
                                      {256U, 256},
                                      {257U, 257}}) {
    const auto tensor = [size = given](const char* name) {
      return make_tensor(name, "F32", {1, 1, 2, size});
    };
    const auto qkv =
        parse_qkv(encode_safetensors(std::vector{tensor("q"), tensor("k"), tensor("v")}), "x");
    ASSERT_TRUE(qkv.ok()) << qkv.status().message();
    EXPECT_EQ(qkv->sizes.head_dim, padded);
    EXPECT_EQ(qkv->original_head_dim, static_cast<int>(given));
  }
}

TEST(Safetensors, NamesCanBeChosen) {
  auto tensors = valid_tensors();
  tensors[0].name = "Q";
  tensors[1].name = "layer.Key";
  const Bytes file = encode_safetensors(tensors);
  expect_refused(file, {"tensor \"q\" is missing", "\"Q\"", "\"layer.Key\""});
  QkvOptions options;
  options.k = "layer.key";
  expect_refused(file, {"tensor \"q\" is missing"}, options);
  options.ignore_case = true;
  EXPECT_TRUE(parse_qkv(file, "x", options).ok());
  tensors.push_back(make_tensor("q", "F32", {1}));
  expect_refused(encode_safetensors(tensors), {"\"Q\"", "\"q\"", "both match"}, options);
}

TEST(Safetensors, OtherTensorsAndMetadataAreAllowed) {
  const std::string header =
      R"({"__metadata__":{"format":"pt"},)"
      R"("mask":{"dtype":"BOOL","shape":[3],"data_offsets":[0,3]},)"
      R"("odd":{"dtype":"F4_NEW","shape":[5],"data_offsets":[3,6]},)"
      R"("q":{"dtype":"F32","shape":[1,1,1,64],"data_offsets":[6,262]},)"
      R"("k":{"dtype":"F32","shape":[1,1,1,64],"data_offsets":[262,518]},)"
      R"("v":{"dtype":"F32","shape":[1,1,1,64],"data_offsets":[518,774]}}  )";
  const auto qkv = parse_qkv(raw_file(header, 774), "x");
  EXPECT_TRUE(qkv.ok()) << qkv.status().message();
}

TEST(Safetensors, TruncationIsRefusedAtEveryLength) {
  const Bytes file = encode_safetensors(valid_tensors());
  for (std::size_t size = 0; size < file.size(); size += size < 300 ? 1 : 37) {
    // A vector of its own, so that a sanitizer sees a read past the end.
    const Bytes cut(file.begin(), file.begin() + static_cast<std::ptrdiff_t>(size));
    EXPECT_FALSE(parse_qkv(cut, "x").ok()) << size;
  }
  expect_refused(Bytes(file.begin(), file.begin() + 5), {"header length", "5 bytes"});
  expect_refused(Bytes(file.begin(), file.begin() + 40), {"header length", "32 follow"});
  expect_refused(Bytes(file.begin(), file.end() - 1), {"tensor \"v\"", "data_offsets"});
}

TEST(Safetensors, BadHeadersAreRefused) {
  Bytes huge = raw_file("{}", 0);
  std::fill(huge.begin(), huge.begin() + 8, 0xFF);
  expect_refused(huge, {"header length", "18446744073709551615"});
  expect_refused(raw_file("{\"q\":", 0), {"header: not JSON"});
  expect_refused(raw_file("", 0), {"header: not JSON"});
  expect_refused(raw_file("\xff\xfe{}", 0), {"header: not JSON"});
  expect_refused(raw_file("[1]", 0), {"header: [1]", "expected an object"});
  expect_refused(raw_file("{}", 0), {"tensor \"q\" is missing", "none"});
  expect_refused(raw_file("{}", 4), {"data", "4 bytes"});
  expect_refused(raw_file(R"({"q":3})", 0), {"tensor \"q\": 3", "expected an object"});
  expect_refused(raw_file(R"({"__metadata__":[]})", 0), {"__metadata__", "[]"});
  expect_refused(raw_file(R"({"__metadata__":{"a":1}})", 0), {"__metadata__", "\"a\": 1"});
  expect_refused(raw_file(R"({"__metadata__":{},"__metadata__":{}})", 0),
                 {"\"__metadata__\" is there twice"});
  expect_refused(raw_file(std::string(100'000, '['), 0), {"header: not JSON"});
  expect_refused(raw_file(std::string(100'000, '[') + std::string(100'000, ']'), 0),
                 {"header: nested deeper"});
}

/// A header with one field of tensor q replaced.
std::string with_q(const std::string& fields) {
  return "{\"q\":{" + fields +
         R"(},"k":{"dtype":"F32","shape":[1,1,1,64],"data_offsets":[256,512]},)" +
         R"("v":{"dtype":"F32","shape":[1,1,1,64],"data_offsets":[512,768]}})";
}

TEST(Safetensors, NothingIsBehindTheHeadersObject) {
  const std::string header = R"({"t":{"dtype":"U8","shape":[1],"data_offsets":[0,1]}})";
  EXPECT_TRUE(parse_safetensors(raw_file(header + "   ", 1), "x.safetensors").ok());
  for (const std::string& behind :
       {std::string(1, '\0'), std::string("\0 {", 3), std::string("{")}) {
    expect_refused(raw_file(header + behind, 1), {"header: ", "JSON"});
  }
}

TEST(Safetensors, BadFieldsAreNamed) {
  const std::string shape = R"("shape":[1,1,1,64],)";
  const std::string dtype = R"("dtype":"F32",)";
  const std::string offsets = R"("data_offsets":[0,256])";
  ASSERT_TRUE(parse_qkv(raw_file(with_q(dtype + shape + offsets), 768), "x").ok());
  const auto refuse = [](const std::string& fields, std::vector<std::string> words) {
    words.insert(words.begin(), "tensor \"q\"");
    expect_refused(raw_file(with_q(fields), 768), words);
  };
  refuse(shape + offsets, {"dtype", "missing"});
  refuse(R"("dtype":32,)" + shape + offsets, {"dtype", "not a string"});
  refuse(R"("dtype":"F64",)" + shape + offsets, {"data_offsets", "256 bytes", "takes 512"});
  refuse(R"("dtype":"I32",)" + shape + offsets,
         {"dtype", "\"I32\"", "F32, F16, BF16, F8_E4M3 or F8_E5M2"});
  refuse(R"("dtype":"Q\n7",)" + shape + offsets, {"dtype", "\"Q\\n7\""});
  refuse(dtype + offsets, {"shape", "missing"});
  refuse(dtype + R"("shape":64,)" + offsets, {"shape", "not an array"});
  refuse(dtype + R"("shape":[1,1,-1,64],)" + offsets, {"shape", "-1"});
  refuse(dtype + R"("shape":[1,1,1.0,64],)" + offsets, {"shape", "1.0"});
  refuse(dtype + R"("shape":[1,1,1e30,64],)" + offsets, {"shape", "1e+30"});
  refuse(dtype + R"("shape":[1,1,"1",64],)" + offsets, {"shape", "\"1\""});
  refuse(dtype + R"("shape":[1,64],)" + offsets, {"shape", "[1, 64]", "(batch, heads, seq"});
  refuse(dtype + R"("shape":[4294967296,4294967296,1,64],)" + offsets, {"shape", "2^64"});
  refuse(dtype + R"("shape":[1,1,2,64],)" + offsets, {"data_offsets", "256 bytes", "takes 512"});
  refuse(dtype + shape + R"("x":0)", {"data_offsets", "missing"});
  refuse(dtype + shape + R"("data_offsets":[0])", {"data_offsets", "[0]", "[begin, end]"});
  refuse(dtype + shape + R"("data_offsets":[0,-1])", {"data_offsets", "[0,-1]"});
  refuse(dtype + shape + R"("data_offsets":[256,0])", {"data_offsets", "begin <= end"});
  refuse(dtype + shape + R"("data_offsets":[768,1024])", {"data_offsets", "<= 768"});
  refuse(dtype + shape + R"("data_offsets":[0,18446744073709551615])", {"data_offsets"});
  expect_refused(raw_file(with_q(dtype + shape + R"("data_offsets":[128,384])"), 768),
                 {"tensor \"q\"", "data_offsets", "hole"});
  expect_refused(raw_file(with_q(dtype + shape + R"("data_offsets":[256,512])"), 768),
                 {"data_offsets", "hole"});
  expect_refused(raw_file(with_q(dtype + shape + offsets), 800), {"data", "768", "800 bytes"});
}

TEST(Safetensors, OverlapIsRefused) {
  const std::string header = R"({"q":{"dtype":"F32","shape":[1,1,2,64],"data_offsets":[0,512]},)"
                             R"("k":{"dtype":"F32","shape":[1,1,1,64],"data_offsets":[256,512]},)"
                             R"("v":{"dtype":"F32","shape":[1,1,1,64],"data_offsets":[512,768]}})";
  expect_refused(raw_file(header, 768), {"tensor \"k\"", "data_offsets", "inside another tensor"});
}

TEST(Safetensors, SizesMustFitTogether) {
  const auto refuse = [](std::size_t which, const std::vector<std::uint64_t>& shape,
                         const std::vector<std::string>& words) {
    auto tensors = valid_tensors();
    tensors[which] = make_tensor(tensors[which].name, "F32", shape);
    expect_refused(encode_safetensors(tensors), words);
  };
  refuse(2, {1, 1, 6, 64}, {"tensor \"v\", shape", "\"k\""});
  refuse(0, {2, 2, 3, 64}, {"tensor \"k\", shape", "batch 2"});
  refuse(0, {1, 2, 3, 32}, {"tensor \"k\", shape", "head_dim 32"});
  refuse(0, {1, 0, 3, 64}, {"tensor \"q\", shape", "[1, 0, 3, 64]"});
  auto tensors = valid_tensors();
  tensors[0] = make_tensor("q", "F32", {1, 3, 3, 64});
  tensors[1] = make_tensor("k", "F32", {1, 2, 5, 64});
  tensors[2] = make_tensor("v", "F32", {1, 2, 5, 64});
  expect_refused(encode_safetensors(tensors), {"tensor \"q\", shape", "3 heads", "2 heads"});
}

/// Codes 0, 1, 2, ... of each tensor, whose element i is in the file's order.
std::vector<SafetensorsTensor> codes(const std::string& dtype) {
  std::vector<SafetensorsTensor> tensors = valid_tensors();
  for (SafetensorsTensor& tensor : tensors) {
    tensor.dtype = dtype;
    tensor.bytes.resize(tensor.bytes.size() / 4);
    for (std::uint8_t next = 0; std::uint8_t & byte : tensor.bytes) byte = next++ % 120;
  }
  return tensors;
}

SafetensorsTensor descales(const std::string& name, const std::vector<std::uint64_t>& shape,
                           const std::vector<float>& values) {
  SafetensorsTensor tensor{name, "F32", shape, Bytes(values.size() * sizeof(float))};
  std::memcpy(tensor.bytes.data(), values.data(), tensor.bytes.size());
  return tensor;
}

TEST(Safetensors, CodesAreTakenAsTheyAre) {
  for (const bool e5m2 : {false, true}) {
    auto tensors = codes(e5m2 ? "F8_E5M2" : "F8_E4M3");
    tensors.push_back(descales("q_descale", {1, 2}, {0.5F, 3.0F}));
    tensors.push_back(descales("k_descale", {}, {0.25F}));
    const auto qkv = parse_qkv(encode_safetensors(tensors), "x");
    ASSERT_TRUE(qkv.ok()) << qkv.status().message();
    ASSERT_TRUE(qkv->codes.has_value());
    EXPECT_EQ(qkv->codes->q.dtype, e5m2 ? Dtype::kE5M2 : Dtype::kE4M3);
    EXPECT_EQ(qkv->codes->q.codes, tensors[0].bytes);
    EXPECT_EQ(qkv->codes->q.descales, (std::vector{0.5F, 3.0F}));
    EXPECT_EQ(qkv->codes->k.descales, std::vector{0.25F});
    EXPECT_EQ(qkv->codes->v.descales, std::vector{1.0F}) << "there are none of V";
    const auto made = make_case(*qkv, "codes", Mask::kNone);
    ASSERT_TRUE(made.ok()) << made.status().message();
    EXPECT_EQ((*made)->q.codes, tensors[0].bytes);
    EXPECT_EQ((*made)->inputs.q, dequantise(qkv->codes->q));
    EXPECT_EQ((*made)->reference_quantised.o, (*made)->reference_kernel.o);
  }
}

TEST(Safetensors, CodesThatAreNoneAreRefused) {
  auto mixed = codes("F8_E4M3");
  mixed[1] = make_tensor("k", "F16", {1, 1, 5, 64});
  expect_refused(encode_safetensors(mixed), {"tensor \"k\", dtype", "F16", "all of one"});
  const auto with = [](const SafetensorsTensor& tensor) {
    auto tensors = codes("F8_E4M3");
    tensors.push_back(tensor);
    return encode_safetensors(tensors);
  };
  expect_refused(with(descales("q_descale", {1, 3}, {1, 1, 1})),
                 {"tensor \"q_descale\", shape", "[1, 3]", "[1, 2]"});
  expect_refused(with(make_tensor("v_descale", "F16", {1, 1})), {"v_descale", "dtype", "F32"});
  expect_refused(with(descales("q_descale", {1, 2}, {1, NAN})),
                 {"q_descale", "element 1", "is not finite"});
}

TEST(Safetensors, FilesThatCannotBeReadOrWrittenAreNamed) {
  const auto missing = load_qkv("/no/such/file");
  ASSERT_FALSE(missing.ok());
  EXPECT_EQ(missing.status().message().find("/no/such/file: cannot be read"), 0U);
  EXPECT_FALSE(load_qkv(std::filesystem::temp_directory_path().string()).ok()) << "a folder";
  const Status status = write_safetensors("/no/such/folder/file", valid_tensors());
  ASSERT_FALSE(status.ok());
  EXPECT_EQ(status.message().find("/no/such/folder/file: cannot be written"), 0U);
}

// Mutated files: every one is either refused or read, and under a sanitizer without a bad access.
TEST(Safetensors, SurvivesMutation) {
  const Bytes file = encode_safetensors(valid_tensors("BF16"));
  std::uint64_t header_size = 0;
  std::memcpy(&header_size, file.data(), sizeof(header_size));
  const PhiloxStream random(9, 0);
  int refused = 0;
  constexpr int kRounds = 20'000;
  for (std::uint64_t round = 0; round < kRounds; ++round) {
    Bytes mutated = file;
    const PhiloxCounter words = random.block(round);
    for (std::size_t i = 0; i <= words[0] % 3; ++i) {
      const std::size_t place = words[1 + i] % (8 + header_size);
      constexpr std::string_view kBytes = "0123456789,:[]{}\"-.e \\\xff";
      mutated[place] = static_cast<std::uint8_t>(kBytes[(words[1 + i] >> 16) % kBytes.size()]);
    }
    if (words[0] % 5 == 0) mutated.resize(words[3] % mutated.size());
    mutated.shrink_to_fit();
    const auto result = parse_qkv(mutated, "x");
    if (!result.ok()) {
      ++refused;
      EXPECT_FALSE(result.status().message().empty());
    }
  }
  EXPECT_GT(refused, kRounds / 2);
}

}  // namespace
}  // namespace fp8_sdpa::reference
