// Runs the script that draws a report's figures.
#include <cstdlib>
#include <filesystem>

#include "benchmarks/command/paths.hpp"
#include "benchmarks/command/subprocess.hpp"
#include "benchmarks/files/result_directory.hpp"
#include "benchmarks/report/figures.hpp"
#include "reference/formats/text.hpp"

namespace fp8_sdpa::bench {
namespace {

using nlohmann::json;
using reference::one_line;

/// A folder that is gone when this is.
class TemporaryFolder {
 public:
  TemporaryFolder() {
    std::error_code ignored;
    std::string pattern =
        (std::filesystem::temp_directory_path(ignored) / "fp8_sdpa_plots_").string() +
        std::string(6, 'X');  // what mkdtemp fills in
    if (mkdtemp(pattern.data()) != nullptr) path_ = pattern;
  }
  TemporaryFolder(const TemporaryFolder&) = delete;
  TemporaryFolder& operator=(const TemporaryFolder&) = delete;
  ~TemporaryFolder() {
    std::error_code ignored;
    if (!path_.empty()) std::filesystem::remove_all(path_, ignored);
  }
  /// Empty where it could not be made.
  const std::string& path() const { return path_; }

 private:
  std::string path_;
};

/// Runs the script. The last line that it said is the reason where it failed.
Status run_script(const std::string& python, const std::string& input, const std::string& folder) {
  const auto ran = run_process({python, default_plot_script(), input, folder}, Stderr::kKeep);
  if (!ran.ok()) return ran.status();
  if (ran->exit_code == 0) return {};
  std::string said = ran->output;
  while (!said.empty() && said.back() == '\n') said.pop_back();
  said = said.substr(said.rfind('\n') + 1);
  return unsupported(one_line(python) + ": " + (said.empty() ? "failed" : one_line(said)));
}

}  // namespace

Result<std::vector<Figure>> draw_plots(const std::vector<PlannedPlot>& plots,
                                       const std::string& python) {
  std::vector<Figure> figures;
  if (plots.empty()) return figures;
  const TemporaryFolder folder;
  if (folder.path().empty()) return unsupported("no temporary folder can be made");
  json input = json::array();
  for (const PlannedPlot& plot : plots) input.push_back(plot.input);
  const std::string list = folder.path() + "/plots.json";
  if (Status s = replace_file(list, file_text(input)); !s.ok()) return s;

  // The distribution's python3 has the distribution's matplotlib, whichever comes first on PATH.
  std::vector<std::string> candidates = {python};
  if (python.empty()) candidates = {find_program("python3"), find_program("/usr/bin/python3")};
  Status status = unsupported("python3 is not there");
  for (const std::string& candidate : candidates) {
    if (candidate.empty()) continue;
    status = run_script(candidate, list, folder.path());
    if (status.ok()) break;
  }
  if (!status.ok()) return status;
  for (const PlannedPlot& plot : plots) {
    constexpr std::size_t kMaxBytes = std::size_t{16} << 20;
    const auto svg = reference::read_text_file(folder.path() + "/" + plot.figure.file, kMaxBytes,
                                               "a figure from the script");
    if (!svg.ok()) return svg.status();
    figures.push_back(plot.figure);
    figures.back().svg = *svg;
  }
  return figures;
}

}  // namespace fp8_sdpa::bench
