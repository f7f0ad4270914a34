// Files that the build compiled in by their path, also in a build tree that was moved or copied to
// another machine.
#pragma once

#include <string>

namespace fp8_sdpa::bench {

/// The configuration: the source tree's, or ./config_forward.json where that is gone.
std::string default_config_path();

/// The folder of the JSON Schemas: the source tree's, or ./benchmarks/files/schemas.
std::string default_schema_folder();

/// The top of the source tree that the schemas are in.
std::string default_source_folder();

/// The script that draws a report's figures, in the tree that the schemas are in.
std::string default_plot_script();

/// PyTorch's attention as a second process, likewise.
std::string default_torch_script();

/// The compiler's report: the build tree's, or where it is seen from the running binary.
std::string default_ptxas_report_path();

}  // namespace fp8_sdpa::bench
