// A runner that is killed at any moment leaves whole result files or none.
#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <chrono>
#include <csignal>
#include <filesystem>
#include <string>
#include <thread>

#include "benchmarks/paths.hpp"
#include "benchmarks/validate.hpp"
#include "tests/tools/tool_fixture.hpp"

namespace fp8_sdpa::bench {
namespace {

namespace fs = std::filesystem;
using Clock = std::chrono::steady_clock;

class KilledRun : public ToolTest {
 protected:
  /// Starts the runner, which writes into `folder`.
  pid_t start(const std::string& folder) const {
    const pid_t child = fork();
    if (child != 0) return child;
    const int nowhere = open("/dev/null", O_WRONLY);
    dup2(nowhere, STDOUT_FILENO);
    dup2(nowhere, STDERR_FILENO);
    unsetenv("SDPA_REQUIRE_GPU");  // the host executor is asked for
    execl(FP8_SDPA_RUN_BINARY, FP8_SDPA_RUN_BINARY, "--backend", "host", "--shapes", "small",
          "--seeds", "0,1", "--variants", "stage_c,sm80_mma", "--out", folder.c_str(), nullptr);
    _exit(127);
  }
  static int wait_for(pid_t child) {
    int status = 0;
    EXPECT_EQ(waitpid(child, &status, 0), child);
    return status;
  }
  /// How many result files there are; each must be whole and valid.
  static int whole_files(const std::string& folder) {
    int count = 0;
    if (!fs::exists(folder)) return 0;
    for (const auto& entry : fs::directory_iterator(folder)) {
      const std::string name = entry.path().filename();
      if (name.starts_with(".")) continue;  // a temporary name: nobody reads it
      const Status status = validate_by_name(entry.path(), default_schema_folder());
      EXPECT_TRUE(status.ok()) << status.message();
      ++count;
    }
    return count;
  }
};

TEST_F(KilledRun, LeavesWholeFilesOrNone) {
  const Clock::time_point begin = Clock::now();
  const int status = wait_for(start(at("whole")));
  const auto duration = Clock::now() - begin;
  ASSERT_TRUE(WIFEXITED(status)) << status;
  ASSERT_EQ(WEXITSTATUS(status), 0);
  const int all = whole_files(at("whole"));
  ASSERT_GE(all, 2);

  constexpr int kKills = 24;
  int killed = 0;
  for (int i = 0; i < kKills; ++i) {
    // Evenly over the run, and past where it ended: the files come at its end.
    const std::string folder = at("killed_" + std::to_string(i));
    const pid_t child = start(folder);
    std::this_thread::sleep_for(duration * (i + 1) / (kKills - 4));
    kill(child, SIGKILL);
    killed += WIFSIGNALED(wait_for(child)) ? 1 : 0;
    EXPECT_LE(whole_files(folder), all);
  }
  EXPECT_GT(killed, kKills / 4) << "the kills came too late to show anything";
}

}  // namespace
}  // namespace fp8_sdpa::bench
