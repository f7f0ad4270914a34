// A folder that a run writes its result files into.
#pragma once

#include <ctime>
#include <filesystem>
#include <nlohmann/json_fwd.hpp>
#include <string>
#include <vector>

#include "fp8_sdpa/status.hpp"

namespace fp8_sdpa::bench {

/// Where results go unless a command line says otherwise.
inline constexpr const char* kResultRoot = "results/fp8_wmma_baseline";

/// "20261120-220710" of a point in time, in UTC: the name of a result folder.
std::string folder_name(std::time_t when);

/// `asked`, or, where that is empty, results/<YYYYMMDD-HHMMSS>-<what>.
std::string folder_or_default(const std::string& asked, const std::string& what);

/// "2026-11-20T22:07:10Z": the `timestamp` of a result file.
std::string iso_timestamp(std::time_t when);

/// Writes `text` as the file `path`, making its folders as needed: to a temporary name beside it,
/// synchronised to the disk, then renamed, so that there is always a whole file, the old one or the
/// new one. kInvalidArgument, in one line, if it cannot be written; the old one is still there
/// then.
Status replace_file(const std::string& path, const std::string& text);

bool is_there(const std::filesystem::path& path);

/// A document as result files hold it. Numbers that are not finite become null.
std::string file_text(const nlohmann::json& document);

/// A folder, proved writable when it is opened. If nothing was written into it, the folders that
/// opening it made are removed again, also where SIGINT, SIGTERM, SIGHUP or SIGPIPE ends the run.
class ResultDirectory {
 public:
  /// Opens `path`, making it and its parents as needed. An existing folder is reused, and files of
  /// the same names are replaced. kInvalidArgument, in one line, if it cannot be written.
  static Result<ResultDirectory> open(const std::string& path);

  /// The same for the results of one run: kInvalidArgument where the folder holds a JSON file,
  /// which would be another run's, or where another run has it open.
  static Result<ResultDirectory> open_empty(const std::string& path);

  /// Opens a new folder `root`/<YYYYMMDD-HHMMSS> that no other run has.
  static Result<ResultDirectory> open_new(const std::string& root);

  ResultDirectory(ResultDirectory&& other) noexcept;
  ResultDirectory& operator=(ResultDirectory&&) = delete;
  ~ResultDirectory();

  const std::string& path() const { return path_; }

  /// Writes `document` as the file `name` with replace_file(): a killed run leaves a whole file or
  /// none.
  Status write(const std::string& name, const nlohmann::json& document);

 private:
  explicit ResultDirectory(std::string path) : path_(std::move(path)) {}

  std::string path_;
  std::vector<std::string> made_;  ///< folders that did not exist before, outermost first
  int lock_ = -1;                  ///< a descriptor of the folder, locked, or -1
};

}  // namespace fp8_sdpa::bench
