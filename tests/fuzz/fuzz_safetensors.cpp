// Any bytes as a safetensors file: tensors that lie within the file, or one line that says why not.
// What a writer makes of them reads back the same. Then the same bytes as Q, K and V.
#include <span>
#include <string>
#include <vector>

#include "reference/formats/safetensors.hpp"
#include "reference/inputs/qkv.hpp"
#include "tests/fuzz/target.hpp"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using fp8_sdpa::fuzz::expect;
  namespace reference = fp8_sdpa::reference;
  const std::span<const std::uint8_t> file(data, size);
  const auto parsed = reference::parse_safetensors(file, "fuzz.safetensors");
  const auto tensors = reference::parse_qkv(file, "fuzz.safetensors");
  for (const auto* status : {&parsed.status(), &tensors.status()}) {
    expect(status->ok() ||
           (!status->message().empty() && status->message().find('\n') == std::string::npos));
  }
  if (tensors.ok()) {
    const auto& sizes = tensors->sizes;
    const auto elements =
        static_cast<std::size_t>(sizes.batch) * static_cast<std::size_t>(sizes.heads_kv) *
        static_cast<std::size_t>(sizes.seq_kv) * static_cast<std::size_t>(sizes.head_dim);
    if (tensors->codes) {
      for (const auto* tensor : {&tensors->codes->k, &tensors->codes->v}) {
        expect(tensor->codes.size() == elements &&
               tensor->descale_of(elements - 1) + 1 == tensor->descales.size());
      }
    } else {
      expect(tensors->inputs.k.size() == elements && tensors->inputs.v.size() == elements);
    }
  }
  if (!parsed.ok()) {
    expect(!tensors.ok());
    return 0;
  }
  std::vector<reference::SafetensorsTensor> copies;
  for (const auto& entry : *parsed) {
    expect(entry.bytes.empty() ||
           (entry.bytes.data() >= data && entry.bytes.data() + entry.bytes.size() <= data + size));
    copies.push_back({entry.name, entry.dtype, entry.shape,
                      std::vector<std::uint8_t>(entry.bytes.begin(), entry.bytes.end())});
  }
  const auto again = reference::encode_safetensors(copies);
  const auto reread = reference::parse_safetensors(again, "again.safetensors");
  expect(reread.ok() && reread->size() == parsed->size());
  return 0;
}
