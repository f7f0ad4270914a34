#define VALIJSON_USE_EXCEPTIONS 1  // else it aborts on a schema that it cannot use

#include "benchmarks/files/validate.hpp"

#include <algorithm>
#include <array>
#include <exception>
#include <filesystem>
#include <nlohmann/json.hpp>
#include <valijson/adapters/nlohmann_json_adapter.hpp>
#include <valijson/schema.hpp>
#include <valijson/schema_parser.hpp>
#include <valijson/validation_results.hpp>
#include <valijson/validator.hpp>

#include "benchmarks/files/results.hpp"
#include "reference/formats/json_reader.hpp"

namespace fp8_sdpa::bench {
namespace {

using nlohmann::json;
using reference::one_line;

/// The member there, or null.
json member(const json& document, const char* pointer) {
  const json::json_pointer at(pointer);
  return document.contains(at) ? document.at(at) : json();
}

/// The version of the files that a schema is for.
int version_of(const std::string& schema_name) {
  return schema_name == kPerfSchema ? kPerfSchemaVersion : kResultSchemaVersion;
}

/// A schema that another one refers to by its name alone, or nullptr.
const json* fetch_schema(const std::string& folder, const std::string& name) {
  if (name.find_first_of("/:") != std::string::npos) return nullptr;
  auto schema = read_json(folder + "/" + name);
  return schema.ok() ? new json(std::move(*schema)) : nullptr;
}

/// Every finding, innermost places included, on one line.
std::string findings(valijson::ValidationResults& results) {
  std::string out;
  valijson::ValidationResults::Error error;
  while (results.popError(error)) {
    std::string place;
    for (const std::string& part : error.context) place += part;
    out += (out.empty() ? "" : "; ") + one_line(place) + " " + one_line(error.description);
  }
  return out;
}

}  // namespace

Result<json> read_json(const std::string& path) {
  constexpr std::size_t kMaxBytes = std::size_t{256} << 20;
  const auto text = reference::read_text_file(path, kMaxBytes, "a readable JSON file");
  if (!text.ok()) return text.status();
  return reference::parse_json(*text, path);
}

Result<json> read_result_file(const std::string& path, const std::string& schema_name,
                              const std::string& schema_folder) {
  Result<json> document = read_json(path);
  if (!document.ok()) return document.status();
  // First and by its name: to a file of another version the rest of the schema says nothing.
  const json version = member(*document, "/schema_version");
  if (const int expected = version_of(schema_name); version != expected) {
    return invalid_argument(one_line(path) + ": /schema_version: got " + version.dump() +
                            ", expected " + std::to_string(expected));
  }
  const Result<json> schema = read_json(schema_folder + "/" + schema_name + ".schema.json");
  if (!schema.ok()) return schema.status();
  Status status = validate_document(*document, *schema, path, schema_folder);
  if (!status.ok()) return status;
  return document;
}

Status validate_document(const json& document, const json& schema, const std::string& name,
                         const std::string& schema_folder) {
  try {
    const valijson::adapters::NlohmannJsonAdapter schema_adapter(schema);
    const valijson::adapters::NlohmannJsonAdapter document_adapter(document);
    valijson::Schema parsed;
    valijson::SchemaParser(valijson::SchemaParser::kDraft7)
        .populateSchema(
            schema_adapter, parsed,
            [&](const std::string& uri) { return fetch_schema(schema_folder, uri); },
            [](const json* fetched) { delete fetched; });
    valijson::Validator validator;
    valijson::ValidationResults results;
    if (validator.validate(parsed, document_adapter, &results)) return {};
    return invalid_argument(one_line(name) + ": not of its schema: " + findings(results));
  } catch (const std::exception& error) {
    // valijson reports a schema that it cannot use by throwing.
    return invalid_argument(one_line(name) +
                            ": its schema cannot be used: " + one_line(error.what()));
  }
}

Status check_origin(const json& document, const std::string& path) {
  std::error_code ignored;
  const std::filesystem::path whole =
      std::filesystem::weakly_canonical(std::filesystem::absolute(path, ignored), ignored);
  const std::array<std::filesystem::path, 2> folder = {"results", "h200"};
  if (std::search(whole.begin(), whole.end(), folder.begin(), folder.end()) == whole.end()) {
    return {};
  }
  // A Google Benchmark file says the same in its context, where every value is text.
  const bool context = document.contains("/context/backend"_json_pointer);
  const json backend = member(document, context ? "/context/backend" : "/backend");
  const json name = member(document, context ? "/context/device_name" : "/device/name");
  if (backend != "device") {
    return invalid_argument(one_line(path) + ": /backend: got " + backend.dump() +
                            ", expected \"device\" for a file under results/h200/");
  }
  if (!name.is_string() || name.get_ref<const std::string&>().find("H200") == std::string::npos) {
    return invalid_argument(one_line(path) + ": /device/name: got " + name.dump() +
                            ", expected an H200 for a file under results/h200/");
  }
  return {};
}

Status validate(const std::string& file, const std::string& schema_file) {
  const Result<json> document = read_json(file);
  if (!document.ok()) return document.status();
  const Result<json> schema = read_json(schema_file);
  if (!schema.ok()) return schema.status();
  if (Status origin = check_origin(*document, file); !origin.ok()) return origin;
  return validate_document(*document, *schema, file,
                           std::filesystem::path(schema_file).parent_path().string());
}

Status validate_by_name(const std::string& file, const std::string& schema_folder) {
  const std::filesystem::path path(file);
  std::string known;
  for (const char* file_name : {kBuildMetaFile, kCorrectnessFile, kPerfFile, kEliteFile,
                                kProfileVerdictFile, kCeilingsFile, kSweepFile, kKillMatrixFile}) {
    known += file_name + std::string(", ");
    if (path.filename() != file_name) continue;
    return validate(file, schema_folder + "/" + path.stem().string() + ".schema.json");
  }
  const Result<json> document = read_json(file);
  if (!document.ok()) return document.status();
  if (document->contains("/context/backend"_json_pointer)) return check_origin(*document, file);
  known.replace(known.size() - 2, 2, " or a file that fp8_sdpa_bench wrote");
  return invalid_argument(one_line(file) + ": no schema for this name, expected " + known);
}

}  // namespace fp8_sdpa::bench
