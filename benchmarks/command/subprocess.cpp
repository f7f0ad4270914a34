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

void close_both(int a, int b) {
  if (a >= 0) close(a);
  if (b >= 0) close(b);
}

}  // namespace

Result<Child> spawn(const std::vector<std::string>& arguments, Stdin input, Stderr errors) {
  std::vector<char*> argv;
  for (const std::string& word : arguments) argv.push_back(const_cast<char*>(word.c_str()));
  argv.push_back(nullptr);
  // Closed when a program is started, but for what it is given: else it would not see the end.
  int in[2] = {-1, -1};
  int out[2] = {-1, -1};
  if (pipe2(out, O_CLOEXEC) != 0 || (input == Stdin::kPipe && pipe2(in, O_CLOEXEC) != 0)) {
    const int error = errno;
    close_both(out[0], out[1]);
    return not_started(arguments.front(), error);
  }
  posix_spawn_file_actions_t actions;
  posix_spawn_file_actions_init(&actions);
  if (in[0] >= 0) posix_spawn_file_actions_adddup2(&actions, in[0], STDIN_FILENO);
  posix_spawn_file_actions_adddup2(&actions, out[1], STDOUT_FILENO);
  if (errors == Stderr::kKeep) {
    posix_spawn_file_actions_adddup2(&actions, out[1], STDERR_FILENO);
  } else if (errors == Stderr::kDrop) {
    posix_spawn_file_actions_addopen(&actions, STDERR_FILENO, "/dev/null", O_WRONLY, 0);
  }
  Child child{-1, in[1], out[0]};
  const int error = posix_spawn(&child.process, argv[0], &actions, nullptr, argv.data(), environ);
  posix_spawn_file_actions_destroy(&actions);
  close_both(in[0], out[1]);
  if (error == 0) return child;
  close_both(in[1], out[0]);
  return not_started(arguments.front(), error);
}

Result<ProcessResult> run_process(const std::vector<std::string>& arguments, Stderr errors) {
  const auto child = spawn(arguments, Stdin::kOurs, errors);
  if (!child.ok()) return child.status();
  ProcessResult result;
  result.output = read_all(child->output);
  close(child->output);
  int state = 0;
  while (waitpid(child->process, &state, 0) < 0 && errno == EINTR) {
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
