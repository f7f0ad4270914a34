// PTX and SASS as text: which kernels they hold, and which instructions those are made of.
#pragma once

#include <string>
#include <vector>

namespace fp8_sdpa::tests {

/// One kernel, for one architecture.
struct KernelCode {
  std::string symbol;                     ///< mangled
  std::string variant;                    ///< of its tag type
  std::string arch;                       ///< such as sm_90a
  std::vector<std::string> instructions;  ///< one each, without labels, comments and directives

  /// Instructions that begin with the mnemonic, after a predicate if there is one.
  int count(const std::string& mnemonic) const;
  /// Whether this is the kernel that transposes V before another multiplies.
  bool pre_transposes() const { return symbol.find("PreTranspose") != std::string::npos; }
  bool orders_sequences() const { return symbol.find("OrderSequences") != std::string::npos; }
  /// Whether it is attention itself, not a kernel before it.
  bool attends() const { return !pre_transposes() && !orders_sequences(); }
  /// The code as one text in which the kernel's own name does not occur.
  std::string body() const;
};

/// The kernels of a PTX file's text.
std::vector<KernelCode> parse_ptx(const std::string& text);

/// The kernels of what "cuobjdump -sass" prints.
std::vector<KernelCode> parse_sass(const std::string& text);

}  // namespace fp8_sdpa::tests
