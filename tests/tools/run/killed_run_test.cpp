// A runner that is killed at any moment leaves whole result files or none.
#include <fcntl.h>
#include <gtest/gtest.h>
#include <poll.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <chrono>
#include <csignal>
#include <cstdint>
#include <filesystem>
#include <string>
#include <vector>

#include "benchmarks/command/paths.hpp"
#include "benchmarks/files/validate.hpp"
#include "tests/tools/tool_fixture.hpp"

namespace fp8_sdpa::bench {
namespace {

namespace fs = std::filesystem;
using Clock = std::chrono::steady_clock;

class KilledRun : public ToolTest {
 protected:
  /// A runner that writes into `folder`. `ended` can be read from when it has ended.
  struct Runner {
    pid_t pid;
    int ended;
  };

  /// Starts the runner; a file of more than `file_bytes` kills it at the first byte that is too
  /// many.
  static Runner start(const std::string& folder, rlim_t file_bytes = RLIM_INFINITY) {
    std::array<int, 2> ends{};
    EXPECT_EQ(pipe2(ends.data(), O_CLOEXEC), 0);
    const pid_t child = fork();
    if (child != 0) {
      close(ends[1]);
      return {child, ends[0]};
    }
    dup(ends[1]);  // stays open until the runner has ended
    const int nowhere = open("/dev/null", O_WRONLY);
    dup2(nowhere, STDOUT_FILENO);
    dup2(nowhere, STDERR_FILENO);
    const rlimit no_core{0, 0}, largest_file{file_bytes, file_bytes};
    setrlimit(RLIMIT_CORE, &no_core);
    setrlimit(RLIMIT_FSIZE, &largest_file);
    unsetenv("SDPA_REQUIRE_GPU");  // the host executor is asked for
    execl(FP8_SDPA_RUN_BINARY, FP8_SDPA_RUN_BINARY, "--backend", "host", "--shapes", "small",
          "--seeds", "0,1", "--variants", "stage_c,sm80_mma", "--out", folder.c_str(), nullptr);
    _exit(127);
  }
  static int wait_for(const Runner& runner) {
    int status = 0;
    EXPECT_EQ(waitpid(runner.pid, &status, 0), runner.pid);
    close(runner.ended);
    return status;
  }
  /// Kills the runner unless it ends before; whether it had to.
  static bool kill_after(const Runner& runner, Clock::duration moment) {
    pollfd ended{runner.ended, POLLIN, 0};
    const auto ms = std::chrono::duration_cast<std::chrono::milliseconds>(moment).count();
    if (poll(&ended, 1, static_cast<int>(ms)) == 0) kill(runner.pid, SIGKILL);
    return WIFSIGNALED(wait_for(runner));
  }
  /// The sizes of the result files; each must be whole and valid.
  static std::vector<std::uintmax_t> whole_files(const std::string& folder) {
    std::vector<std::uintmax_t> sizes;
    if (!fs::exists(folder)) return sizes;
    for (const auto& entry : fs::directory_iterator(folder)) {
      const std::string name = entry.path().filename();
      if (name.starts_with(".")) continue;  // a temporary name: nobody reads it
      const Status status = validate_by_name(entry.path(), default_schema_folder());
      EXPECT_TRUE(status.ok()) << status.message();
      sizes.push_back(entry.file_size());
    }
    return sizes;
  }
};

TEST_F(KilledRun, LeavesWholeFilesOrNone) {
  const Clock::time_point begin = Clock::now();
  const int status = wait_for(start(at("whole")));
  Clock::duration duration = Clock::now() - begin;
  ASSERT_TRUE(WIFEXITED(status)) << status;
  ASSERT_EQ(WEXITSTATUS(status), 0);
  const std::size_t all = whole_files(at("whole")).size();
  ASSERT_GE(all, 2U);

  // Evenly over the shortest run so far, for how long one takes depends on what else the machine
  // does; the files come at its end.
  constexpr int kKills = 20, kRuns = 10 * kKills;
  int killed = 0;
  for (int run = 0; killed < kKills && run < kRuns; ++run) {
    const std::string folder = at("killed_" + std::to_string(run));
    const Clock::time_point start_of_run = Clock::now();
    if (kill_after(start(folder), duration * (killed + 1) / kKills)) {
      ++killed;
    } else {
      duration = std::min(duration, Clock::now() - start_of_run);
    }
    EXPECT_LE(whole_files(folder).size(), all);
  }
  EXPECT_EQ(killed, kKills) << "the kills came too late to show anything";
}

TEST_F(KilledRun, InTheMiddleOfAFileLeavesWholeFilesOrNone) {
  wait_for(start(at("whole")));
  const std::vector<std::uintmax_t> sizes = whole_files(at("whole"));
  ASSERT_GE(sizes.size(), 2U);
  const std::uintmax_t largest = *std::max_element(sizes.begin(), sizes.end());

  constexpr int kKills = 8;
  for (int i = 0; i < kKills; ++i) {
    const std::string folder = at("killed_" + std::to_string(i));
    const int status = wait_for(start(folder, largest * i / kKills));
    ASSERT_TRUE(WIFSIGNALED(status)) << status;
    EXPECT_EQ(WTERMSIG(status), SIGXFSZ);
    EXPECT_LT(whole_files(folder).size(), sizes.size());
  }
}

}  // namespace
}  // namespace fp8_sdpa::bench
