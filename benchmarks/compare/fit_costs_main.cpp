// fp8_sdpa_fit_costs RECORD: writes kernels/sm90/costs.def. Exit code 0, or 2 where something is
// refused; the file that was there is then as it was.
#include <cstdio>
#include <iterator>
#include <string>

#include "benchmarks/command/tool.hpp"
#include "benchmarks/compare/fit_costs.hpp"
#include "benchmarks/files/result_directory.hpp"
#include "reference/formats/text.hpp"

namespace {

using namespace fp8_sdpa;
using namespace fp8_sdpa::bench;

struct Arguments {
  std::string record;
  std::string judge;
  std::string costs = "kernels/sm90/costs.def";
};

Result<std::vector<TimedKernel>> record_in(const std::string& path) {
  constexpr std::size_t kMostBytes = 16 << 20;
  const auto text = reference::read_text_file(path, kMostBytes, "a record of times");
  if (!text.ok()) return text.status();
  auto record = read_record(*text);
  if (!record.ok()) return invalid_argument(path + ": " + record.status().message());
  return record;
}

void print_loss(const std::string& path, const std::vector<TimedKernel>& record,
                const std::vector<sm90::Cost>& costs) {
  const ChoiceLoss loss = choice_loss(record, costs);
  std::printf(
      "%s: by these costs the chosen kernel takes %.4f of the fastest one's time, geometric mean "
      "of "
      "%d shapes; %d are above 1.03, the worst %.3f (%s)\n",
      path.c_str(), loss.mean, loss.shapes, loss.above_3_percent, loss.worst,
      loss.worst_shape.c_str());
}

Result<int> run(const Arguments& arguments) {
  const auto record = record_in(arguments.record);
  if (!record.ok()) return record.status();
  std::vector<sm90::Cost> costs;
  for (std::size_t i = 0; i < std::size(sm90::kTileShapes); ++i) {
    costs.push_back(fit_cost(*record, i));
  }
  if (Status s = replace_file(arguments.costs, costs_text(costs)); !s.ok()) return s;
  print_loss(arguments.record, *record, costs);
  if (arguments.judge.empty()) return kExitPass;
  const auto judge = record_in(arguments.judge);
  if (!judge.ok()) return judge.status();
  print_loss(arguments.judge, *judge, costs);
  return kExitPass;
}

}  // namespace

int main(int argc, char** argv) {
  CommandLine line("Fits what launches of the sm90 kernels take to a record of them.",
                   "fp8_sdpa_fit_costs");
  Arguments arguments;
  line.add("RECORD", arguments.record, "shape,kernel,us lines; variant_times.py writes them")
      .required();
  line.add("--judge", arguments.judge,
           "Another record, of shapes that the costs were not fitted to");
  line.add("--costs", arguments.costs, "The table to write");
  if (const auto code = parse_or_exit(line, argc, argv)) return *code;
  return run_guarded(line, [&] { return run(arguments); });
}
