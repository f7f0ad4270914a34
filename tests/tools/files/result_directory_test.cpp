// Result folders: whole files or none, and nothing left behind by a run that wrote nothing.
#include "benchmarks/files/result_directory.hpp"

#include <gtest/gtest.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <chrono>
#include <csignal>
#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>
#include <string>
#include <thread>

#include "tests/tools/tool_fixture.hpp"

namespace fp8_sdpa::bench {
namespace {

namespace fs = std::filesystem;
using nlohmann::json;

class ResultFolder : public ToolTest {
 protected:
  ~ResultFolder() override { fs::permissions(root, fs::perms::owner_all); }
  static std::size_t entries(const fs::path& folder) {
    std::size_t count = 0;
    for ([[maybe_unused]] const auto& entry : fs::directory_iterator(folder)) ++count;
    return count;
  }
};

TEST_F(ResultFolder, NamesFoldersAndTimesInUtc) {
  constexpr std::time_t kWhen = 1795212430;
  EXPECT_EQ(folder_name(kWhen), "20261120-220710");
  EXPECT_EQ(iso_timestamp(kWhen), "2026-11-20T22:07:10Z");
}

TEST_F(ResultFolder, WritesAndReplacesWholeFiles) {
  const fs::path folder = root / "a" / "b";
  auto directory = ResultDirectory::open(folder.string());
  ASSERT_TRUE(directory.ok()) << directory.status().message();
  ASSERT_TRUE(directory->write("x.json", {{"n", 1}}).ok());
  ASSERT_TRUE(directory->write("x.json", {{"n", 2}}).ok());
  EXPECT_EQ(read_json_file(folder / "x.json"), json({{"n", 2}}));
  EXPECT_EQ(entries(folder), 1U) << "a temporary file is left";
}

TEST_F(ResultFolder, RemovesFoldersThatItMadeForNothing) {
  {
    const auto directory = ResultDirectory::open((root / "a" / "b").string());
    ASSERT_TRUE(directory.ok());
    EXPECT_TRUE(fs::is_directory(root / "a" / "b"));
  }
  EXPECT_FALSE(fs::exists(root / "a"));
  { const auto existing = ResultDirectory::open(root.string()); }
  EXPECT_TRUE(fs::exists(root)) << "it removed a folder that it had not made";
}

TEST_F(ResultFolder, GivesEachRunItsOwnFolder) {
  const auto first = ResultDirectory::open_new(root.string());
  const auto second = ResultDirectory::open_new(root.string());
  ASSERT_TRUE(first.ok());
  ASSERT_TRUE(second.ok());
  EXPECT_NE(first->path(), second->path());
  const std::string name = fs::path(first->path()).filename().string();
  EXPECT_EQ(name.size(), std::string("20261120-220710").size());
  EXPECT_EQ(name[8], '-');
}

TEST_F(ResultFolder, RefusesWhatCannotBeWrittenInOneLine) {
  std::ofstream(root / "file") << "x";
  const auto below_file = ResultDirectory::open((root / "file" / "sub").string());
  ASSERT_FALSE(below_file.ok());
  EXPECT_EQ(below_file.status().message(),
            "result folder " + (root / "file" / "sub").string() +
                ": Not a directory, expected a folder that can be written");
  EXPECT_FALSE(ResultDirectory::open((root / "file").string()).ok());
  EXPECT_FALSE(ResultDirectory::open("/proc/no/such").ok());
  EXPECT_FALSE(ResultDirectory::open("").ok());
}

TEST_F(ResultFolder, RefusesAFolderWithoutPermission) {
  if (geteuid() == 0) GTEST_SKIP() << "root may write everywhere";
  fs::permissions(root, fs::perms::owner_read | fs::perms::owner_exec);
  EXPECT_FALSE(ResultDirectory::open(root.string()).ok());
  EXPECT_FALSE(ResultDirectory::open((root / "a").string()).ok());
}

TEST_F(ResultFolder, LeavesTheOldFileWhereTheNewOneFails) {
  auto directory = ResultDirectory::open(root.string());
  ASSERT_TRUE(directory.ok());
  ASSERT_TRUE(directory->write("x.json", {{"n", 1}}).ok());
  // A folder of that name cannot be replaced by a file.
  fs::create_directories(root / "y.json");
  const Status status = directory->write("y.json", {{"n", 2}});
  ASSERT_FALSE(status.ok());
  EXPECT_NE(status.message().find("y.json"), std::string::npos);
  EXPECT_EQ(read_json_file(root / "x.json"), json({{"n", 1}}));
  EXPECT_EQ(entries(root), 2U) << "a temporary file is left";
}

TEST_F(ResultFolder, AKilledWriterLeavesAWholeFile) {
  constexpr int kNumbers = 100'000;
  constexpr int kRounds = 5;
  for (int round = 0; round < kRounds; ++round) {
    const pid_t writer = fork();
    ASSERT_GE(writer, 0);
    if (writer == 0) {
      auto directory = ResultDirectory::open(root.string());
      const json document = {{"first", 1}, {"numbers", std::vector<int>(kNumbers, round)}};
      while (directory.ok() && directory->write("x.json", document).ok()) {
      }
      _exit(1);
    }
    std::this_thread::sleep_for(std::chrono::milliseconds(60 + 7 * round));
    kill(writer, SIGKILL);
    int status = 0;
    ASSERT_EQ(waitpid(writer, &status, 0), writer);
    ASSERT_TRUE(WIFSIGNALED(status)) << "the writer stopped by itself";
    if (!fs::exists(root / "x.json")) continue;
    const json found = read_json_file(root / "x.json");
    ASSERT_TRUE(found.is_object()) << "a torn file";
    EXPECT_EQ(found.at("numbers").size(), static_cast<std::size_t>(kNumbers));
  }
}

TEST_F(ResultFolder, OfAnotherRunIsRefused) {
  const fs::path folder = root / "run";
  {
    auto first = ResultDirectory::open_empty(folder.string());
    ASSERT_TRUE(first.ok()) << first.status().message();
    const auto at_once = ResultDirectory::open_empty(folder.string());
    ASSERT_FALSE(at_once.ok());
    EXPECT_EQ(at_once.status().message(), "result folder " + folder.string() +
                                              " is being written by another run, expected a new or "
                                              "an empty one");
    ASSERT_TRUE(first->write("x.json", {{"n", 1}}).ok());
  }
  const auto later = ResultDirectory::open_empty(folder.string());
  ASSERT_FALSE(later.ok());
  EXPECT_EQ(later.status().message(), "result folder " + folder.string() +
                                          " has the x.json of another run, expected a new or an "
                                          "empty one");
  EXPECT_EQ(read_json_file(folder / "x.json"), json({{"n", 1}}));
  fs::remove(folder / "x.json");
  write(folder / "notes.txt", "mine");
  EXPECT_TRUE(ResultDirectory::open_empty(folder.string()).ok());
}

TEST_F(ResultFolder, OfARunThatASignalEndsIsRemovedUnlessSomethingIsInIt) {
  for (const int signal : {SIGINT, SIGTERM, SIGHUP, SIGPIPE}) {
    for (const bool written : {false, true}) {
      const fs::path folder = root / "a" / std::to_string(signal);
      const pid_t run = fork();
      ASSERT_GE(run, 0);
      if (run == 0) {
        { const auto gone = ResultDirectory::open((root / "b").string()); }
        auto directory = ResultDirectory::open(folder.string());
        if (!directory.ok() || !fs::exists(folder)) _exit(1);
        if (written && !directory->write("x.json", {{"n", 1}}).ok()) _exit(1);
        raise(signal);
        _exit(2);
      }
      int status = 0;
      ASSERT_EQ(waitpid(run, &status, 0), run);
      ASSERT_TRUE(WIFSIGNALED(status)) << status;
      EXPECT_EQ(WTERMSIG(status), signal);
      EXPECT_EQ(fs::exists(root / "a"), written);
      fs::remove_all(root / "a");
    }
  }
}

}  // namespace
}  // namespace fp8_sdpa::bench
