#include "benchmarks/command/subprocess.hpp"

#include <fcntl.h>
#include <spawn.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <filesystem>

#include "reference/formats/text.hpp"

namespace fp8_sdpa::bench {
namespace {

Status not_started(const std::string& program, int error) {
  return unsupported(reference::one_line(program) + " cannot be started: " + std::strerror(error));
}

bool is_program(const std::filesystem::path& path) {
  std::error_code ignored;
  return std::filesystem::is_regular_file(path, ignored) && access(path.c_str(), X_OK) == 0;
}

std::string read_all(int fd) {
  constexpr std::size_t kPiece = 4096;
  std::array<char, kPiece> piece{};
  std::string text;
  for (;;) {
    const ssize_t count = read(fd, piece.data(), piece.size());
    if (count < 0 && errno == EINTR) continue;
    if (count <= 0) return text;
    text.append(piece.data(), static_cast<std::size_t>(count));
  }
}

}  // namespace

Result<ProcessResult> run_process(const std::vector<std::string>& arguments, Stderr errors) {
  std::vector<std::string> copies = arguments;
  std::vector<char*> argv;
  for (std::string& argument : copies) argv.push_back(argument.data());
  argv.push_back(nullptr);
  int ends[2];
  if (pipe2(ends, O_CLOEXEC) != 0) return not_started(arguments.front(), errno);
  posix_spawn_file_actions_t actions;
  posix_spawn_file_actions_init(&actions);
  posix_spawn_file_actions_adddup2(&actions, ends[1], STDOUT_FILENO);
  if (errors == Stderr::kKeep) {
    posix_spawn_file_actions_adddup2(&actions, ends[1], STDERR_FILENO);
  } else {
    posix_spawn_file_actions_addopen(&actions, STDERR_FILENO, "/dev/null", O_WRONLY, 0);
  }
  pid_t child = 0;
  const int error = posix_spawn(&child, argv[0], &actions, nullptr, argv.data(), environ);
  posix_spawn_file_actions_destroy(&actions);
  close(ends[1]);
  if (error != 0) {
    close(ends[0]);
    return not_started(arguments.front(), error);
  }
  ProcessResult result;
  result.output = read_all(ends[0]);
  close(ends[0]);
  int state = 0;
  while (waitpid(child, &state, 0) < 0 && errno == EINTR) {
  }
  constexpr int kSignalBase = 128;  // as shells count
  result.exit_code = WIFEXITED(state) ? WEXITSTATUS(state) : kSignalBase + WTERMSIG(state);
  return result;
}

std::string find_program(const std::string& name) {
  if (name.find('/') != std::string::npos) return is_program(name) ? name : "";
  const char* variable = std::getenv("PATH");
  const std::string path = variable == nullptr ? "" : variable;
  for (std::size_t at = 0; at <= path.size();) {
    const std::size_t end = std::min(path.find(':', at), path.size());
    const std::filesystem::path candidate = std::filesystem::path(path.substr(at, end - at)) / name;
    if (is_program(candidate)) return candidate.string();
    at = end + 1;
  }
  return "";
}

}  // namespace fp8_sdpa::bench
