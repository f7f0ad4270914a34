#include "benchmarks/peers/torch_peers.hpp"

#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>
#include <system_error>
#include <utility>

#include "reference/formats/text.hpp"

namespace fp8_sdpa::bench {
namespace {

using nlohmann::json;

/// A file that is gone with this.
class ScratchFile {
 public:
  ScratchFile(const std::string& folder, const std::string& name) : path_(folder + "/" + name) {}
  ~ScratchFile() {
    std::error_code ignored;
    std::filesystem::remove(path_, ignored);
  }
  ScratchFile(const ScratchFile&) = delete;
  ScratchFile& operator=(const ScratchFile&) = delete;
  const std::string& path() const { return path_; }

 private:
  std::string path_;
};

Status write_codes(const std::string& path, const std::vector<std::uint8_t>& codes) {
  std::ofstream file(path, std::ios::binary);
  file.write(reinterpret_cast<const char*>(codes.data()),
             static_cast<std::streamsize>(codes.size()));
  file.close();
  return file ? Status() : unsupported(reference::one_line(path) + " cannot be written");
}

/// What an answer lacks is the other side's fault, told in one line.
template <class T>
Result<T> member(const json& answer, const char* name) {
  try {
    return Result<T>(answer.at(name).get<T>());
  } catch (const json::exception&) {
    return unsupported("the second process answers without a usable \"" + std::string(name) + "\"");
  }
}

}  // namespace

Result<std::unique_ptr<TorchPeers>> TorchPeers::start(const std::string& python,
                                                      const std::string& script) {
  auto process = Coprocess::start({python, script});
  if (!process.ok()) return process.status();
  const auto hello = (*process)->ask({{"command", "hello"}});
  if (!hello.ok()) return hello.status();
  auto made = std::make_unique<TorchPeers>();
  made->process_ = std::move(*process);
  made->description_ =
      "PyTorch " + hello->value("torch", "unknown") + " on " + hello->value("device", "unknown");
  return made;
}

Result<std::vector<std::string>> TorchPeers::set_case(const SampledCase& sampled,
                                                      const std::string& folder,
                                                      std::vector<DeclinedPeer>& declined) {
  const reference::CaseData& data = *sampled.whole;
  const reference::Shape& shape = data.shape;
  const ScratchFile q(folder, "q.codes");
  const ScratchFile k(folder, "k.codes");
  const ScratchFile v(folder, "v.codes");
  json request = {{"command", "case"},          {"B", shape.batch},
                  {"H", shape.heads_q},         {"H_kv", shape.heads_kv},
                  {"S", shape.seq_q},           {"S_kv", shape.seq_kv},
                  {"D", shape.head_dim},        {"mask", name_of(shape.mask)},
                  {"scale", data.softmax_scale}};
  struct Entry {
    const char* name;
    const ScratchFile* file;
    const reference::QuantisedTensor* tensor;
  };
  for (const Entry& entry :
       {Entry{"q", &q, &data.q}, Entry{"k", &k, &data.k}, Entry{"v", &v, &data.v}}) {
    if (Status s = write_codes(entry.file->path(), entry.tensor->codes); !s.ok()) return s;
    request[entry.name] = {{"file", entry.file->path()},
                           {"descale", entry.tensor->descales.front()}};
  }
  const auto answer = process_->ask(request);
  if (!answer.ok()) return answer.status();
  const auto backends = member<json>(*answer, "backends");
  if (!backends.ok()) return backends.status();
  std::vector<std::string> serving;
  for (const auto& [name, reason] : backends->items()) {
    if (reason.is_null()) {
      serving.push_back(name);
    } else {
      declined.push_back({name, reference::one_line(reason.is_string() ? reason.get<std::string>()
                                                                       : reason.dump())});
    }
  }
  return serving;
}

Result<std::vector<std::uint16_t>> TorchPeers::output(const std::string& backend,
                                                      const std::string& folder) {
  const ScratchFile file(folder, "o.bits");
  const auto answer =
      process_->ask({{"command", "output"}, {"backend", backend}, {"file", file.path()}});
  if (!answer.ok()) return answer.status();
  std::error_code error;
  const auto bytes = std::filesystem::file_size(file.path(), error);
  if (error) return unsupported("the second process left no output");
  std::vector<std::uint16_t> bits(bytes / sizeof(std::uint16_t));
  std::ifstream in(file.path(), std::ios::binary);
  in.read(reinterpret_cast<char*>(bits.data()),
          static_cast<std::streamsize>(bits.size() * sizeof(std::uint16_t)));
  if (!in) return unsupported("the second process's output cannot be read");
  return bits;
}

Result<std::vector<double>> TorchPeers::time(const std::string& backend, Method method, int warmup,
                                             int samples) {
  const auto answer = process_->ask({{"command", "time"},
                                     {"backend", backend},
                                     {"method", name_of(method)},
                                     {"warmup", warmup},
                                     {"samples", samples}});
  if (!answer.ok()) return answer.status();
  return member<std::vector<double>>(*answer, "samples_us");
}

}  // namespace fp8_sdpa::bench
