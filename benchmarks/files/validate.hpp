// Checks result files: their form against a JSON Schema, and that figures kept in the repository
// come from the device that their folder names.
#pragma once

#include <nlohmann/json_fwd.hpp>
#include <string>

#include "benchmarks/command/paths.hpp"
#include "fp8_sdpa/status.hpp"

namespace fp8_sdpa::bench {

inline constexpr const char* kPerfSchema = "perf_baseline";

/// Reads a JSON file of at most 256 MiB.
Result<nlohmann::json> read_json(const std::string& path);

/// Reads a result file that is to be worked with: its schema_version and its form, by the schema
/// `schema_name` of `schema_folder`, are as this build writes them. kInvalidArgument otherwise, in
/// one line.
Result<nlohmann::json> read_result_file(const std::string& path, const std::string& schema_name,
                                        const std::string& schema_folder);

/// Whether `document` has the form that `schema` (JSON Schema, draft 7) asks for. kInvalidArgument
/// otherwise: one line with `name` and each finding. Schemas that it refers to are of the folder.
Status validate_document(const nlohmann::json& document, const nlohmann::json& schema,
                         const std::string& name,
                         const std::string& schema_folder = default_schema_folder());

/// Refuses a document at a path under results/h200/ whose backend is not "device" or whose
/// device.name does not contain "H200" (for what Google Benchmark writes: context.backend and
/// context.device_name).
Status check_origin(const nlohmann::json& document, const std::string& path);

/// Reads both files and applies validate_document() and check_origin().
Status validate(const std::string& file, const std::string& schema_file);

/// The same, with the schema of `schema_folder` that the file's own name asks for
/// (build_meta.json: build_meta.schema.json). A file that fp8_sdpa_bench wrote has no schema of
/// ours and is checked for its origin alone.
Status validate_by_name(const std::string& file, const std::string& schema_folder);

}  // namespace fp8_sdpa::bench
