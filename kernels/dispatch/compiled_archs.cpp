#include "dispatch/compiled_archs.hpp"

#include <algorithm>

namespace fp8_sdpa::detail {
namespace {

struct Entry {
  int version = 0;
  bool exact = false;  ///< 90a
  bool ptx = false;
};

Entry parse(std::string_view text) {
  Entry entry;
  std::size_t i = 0;
  for (; i < text.size() && text[i] >= '0' && text[i] <= '9'; ++i) {
    entry.version = 10 * entry.version + (text[i] - '0');
  }
  entry.exact = i < text.size() && text[i] == 'a';
  entry.ptx = text.ends_with("-virtual");
  return entry;
}

bool serves(const Entry& entry, int sm) {
  if (entry.exact) return entry.version == sm;
  if (entry.ptx) return entry.version <= sm;
  return entry.version / 10 == sm / 10 && entry.version <= sm;
}

}  // namespace

int CompiledArchs::code_for(int sm) const {
  int machine_code = 0;
  int ptx = 0;
  for (std::size_t begin = 0; begin < list.size();) {
    const std::size_t end = std::min(list.find(',', begin), list.size());
    const Entry entry = parse(list.substr(begin, end - begin));
    begin = end + 1;
    if (!serves(entry, sm)) continue;
    int& best = entry.ptx ? ptx : machine_code;
    best = std::max(best, entry.version);
  }
  return machine_code != 0 ? machine_code : ptx;
}

CompiledArchs compiled_archs() { return {FP8_SDPA_CUDA_ARCHS}; }

Status check_has_code(const std::string& name, int least, const Device& device) {
  if (device.backend == Backend::kHost) {
#if FP8_SDPA_HAS_HOST
    return {};
#else
    return unsupported("this build has no host executor");
#endif
  }
  const auto sm = [](int version) { return "sm_" + std::to_string(version); };
  if (device.sm_version < least) {
    return unsupported(name + " needs " + sm(least) + " or newer; " + device.name + " is " +
                       sm(device.sm_version));
  }
  const CompiledArchs archs = compiled_archs();
  if (archs.code_for(device.sm_version) >= least) return {};
  return unsupported(name + " was not compiled for " + sm(device.sm_version) + " (" + device.name +
                     "): this build has device code for " +
                     (archs.list.empty() ? "nothing" : std::string(archs.list)) +
                     "; set SDPA_CUDA_ARCHS");
}

}  // namespace fp8_sdpa::detail
