// What the tests of the command lines share: a folder of their own, files of times in it, and
// running a binary.
#pragma once

#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <cstdio>
#include <filesystem>
#include <fstream>
#include <map>
#include <nlohmann/json.hpp>
#include <sstream>
#include <string>
#include <vector>

#include "benchmarks/command/paths.hpp"
#include "benchmarks/command/selection.hpp"
#include "benchmarks/files/results.hpp"

namespace fp8_sdpa::bench {

/// One series of a made-up run: every sample is the same, so every statistic is, in as many
/// repetitions.
struct MadeSeries {
  const char* variant;
  const char* shape;
  double us;
  Method method = Method::kEventsWarm;
  bool pass = true;
};

/// An environment of these variables alone.
inline Environment environment_of(const std::map<std::string, std::string>& values) {
  return [values](const char* name) -> const char* {
    const auto found = values.find(name);
    return found == values.end() ? nullptr : found->second.c_str();
  };
}

inline Device made_gpu() {
  Device device;
  device.backend = Backend::kDevice;
  device.name = "NVIDIA H200";
  device.sm_count = 132;
  return device;
}

inline RunInfo made_run() {
  RunInfo run;
  run.start = 0;
  run.backend = Backend::kDevice;
  run.build = this_build();
  run.build.git_sha = "0123456789abcdef";
  run.build.git_branch = "main";
  run.build.git_dirty = false;
  DeviceInfo device;
  device.name = "NVIDIA H200";
  device.cuda_version = device.cuda_driver_version = "13.0";
  device.sm_version = 90;
  device.sm_count = 132;
  run.device = device;
  return run;
}

inline reference::Shape made_shape(const std::string& name) {
  reference::Shape shape;
  shape.name = name;
  shape.batch = 1;
  shape.heads_q = shape.heads_kv = 8;
  shape.seq_q = shape.seq_kv = 512;
  shape.head_dim = 64;
  return shape;
}

inline CorrectnessRecord made_verdict(const std::string& variant, const std::string& shape,
                                      bool pass) {
  CorrectnessRecord record{made_shape(shape), Dtype::kE4M3, {}};
  record.result.shape = shape;
  record.result.variant = variant;
  reference::GateResult gate;
  gate.name = "rel_l2";
  gate.pass = pass;
  gate.detail = "too far off";
  record.result.gates = {gate};
  record.result.pass = pass;
  return record;
}

class ToolTest : public testing::Test {
 protected:
  ToolTest() {
    const auto* test = testing::UnitTest::GetInstance()->current_test_info();
    root = std::filesystem::path(testing::TempDir()) /
           (std::string("fp8_sdpa_") + test->test_suite_name() + test->name() +
            std::to_string(getpid()));
    std::filesystem::create_directories(root);
  }
  ~ToolTest() override { std::filesystem::remove_all(root); }

  std::string at(const std::string& name) const { return (root / name).string(); }

  static std::string read(const std::string& path) {
    std::ifstream file(path);
    std::stringstream text;
    text << file.rdbuf();
    return text.str();
  }
  static void write(const std::string& path, const std::string& text) {
    std::filesystem::create_directories(std::filesystem::path(path).parent_path());
    std::ofstream(path) << text;
  }
  static nlohmann::json read_json_file(const std::string& path) {
    return nlohmann::json::parse(read(path), nullptr, /*allow_exceptions=*/false);
  }

  /// Writes the three files of a run into the folder `name` and returns the perf file's path.
  std::string make_run(const std::string& name, const std::vector<MadeSeries>& made,
                       bool interleaved = false) const {
    const RunInfo run = made_run();
    std::vector<CorrectnessRecord> judged;
    std::vector<PerfRecord> perf;
    for (const MadeSeries& series : made) {
      judged.push_back(made_verdict(series.variant, series.shape, series.pass));
      perf.push_back({made_shape(series.shape), 0, series.variant, series.method, 100,
                      std::vector<double>(kRepetitions, series.us), interleaved,
                      split_into_repetitions(kRepetitions)});
    }
    const std::string folder = at(name) + "/";
    write(folder + kBuildMetaFile, build_meta(run, {{}, "none"}, {}).dump());
    write(folder + kCorrectnessFile, correctness_summary(run, judged).dump());
    write(folder + kPerfFile, perf_baseline(run, perf).dump());
    return folder + kPerfFile;
  }

  struct Ran {
    int exit_code;
    std::string out;
    std::string err;
  };

  /// Runs a binary in the test's folder, with `environment` (NAME=value words) on top.
  Ran run(const std::string& binary, const std::vector<std::string>& arguments,
          const std::string& environment = "") const {
    std::string command = "cd '" + root.string() + "' && env " + environment + " '" + binary + "'";
    for (const std::string& argument : arguments) command += " '" + argument + "'";
    command += " 2>'" + at("stderr.txt") + "'";
    std::FILE* pipe = popen(command.c_str(), "r");
    Ran ran{-1, "", ""};
    if (pipe == nullptr) return ran;
    std::array<char, 4096> piece{};
    while (const std::size_t count = std::fread(piece.data(), 1, piece.size(), pipe)) {
      ran.out.append(piece.data(), count);
    }
    const int state = pclose(pipe);
    ran.exit_code = WIFEXITED(state) ? WEXITSTATUS(state) : -1;
    ran.err = read(at("stderr.txt"));
    return ran;
  }

  /// The launcher prints `help.txt` in place of the binary's help, to need no build for it.
  void expect_help_in_file(const std::string& binary, const std::string& verb) const {
    const std::string file = read(default_source_folder() + "/benchmarks/command/help.txt");
    const std::string help = run(binary, {"--help"}).out;
    EXPECT_NE(file.find("== " + verb + "\n" + help + "\n== "), std::string::npos)
        << "benchmarks/command/help.txt has not what --help says:\n== " << verb << "\n"
        << help;
    for (const char* word :
         {"TEXT", "INT", "FLOAT", "BOOLEAN", " in [", "fp8_sdpa_run [", "/config_forward"}) {
      EXPECT_EQ(help.find(word), std::string::npos) << word << " is the parser's: " << help;
    }
  }

  std::filesystem::path root;
};

}  // namespace fp8_sdpa::bench
