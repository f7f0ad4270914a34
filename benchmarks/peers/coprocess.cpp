#include "benchmarks/peers/coprocess.hpp"

#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <spawn.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <cstring>
#include <nlohmann/json.hpp>

#include "benchmarks/command/subprocess.hpp"
#include "reference/formats/text.hpp"

extern char** environ;

namespace fp8_sdpa::bench {
namespace {

using nlohmann::json;
using reference::one_line;

/// A pipe's two ends, closed when a program is started but for the one that it is given.
struct Pipe {
  std::array<int, 2> ends = {-1, -1};
  bool open() { return pipe2(ends.data(), O_CLOEXEC) == 0; }
  int reader() const { return ends[0]; }
  int writer() const { return ends[1]; }
};

/// Whether there is something to read, or its end. An answer is one line, so nothing of it can lie
/// in the stream's buffer.
bool wait_for(std::FILE* file, int seconds) {
  constexpr int kMilliseconds = 1000;
  pollfd wanted = {fileno(file), POLLIN, 0};
  int ready = 0;
  do {
    ready = poll(&wanted, 1, seconds * kMilliseconds);
  } while (ready < 0 && errno == EINTR);
  return ready != 0;
}

std::string line_of(std::FILE* file) {
  char* text = nullptr;
  std::size_t size = 0;
  const ssize_t length = getline(&text, &size, file);
  std::string line(text, length > 0 ? static_cast<std::size_t>(length) : 0);
  std::free(text);
  return line;
}

}  // namespace

Result<std::unique_ptr<Coprocess>> Coprocess::start(const std::vector<std::string>& arguments) {
  const std::string program = find_program(arguments.front());
  if (program.empty()) return unsupported(one_line(arguments.front()) + " is not on PATH");
  Pipe in;
  Pipe out;
  if (!in.open()) return unsupported("no pipe: " + std::string(std::strerror(errno)));
  if (!out.open()) {
    close(in.reader());
    close(in.writer());
    return unsupported("no pipe: " + std::string(std::strerror(errno)));
  }
  // A program that has ended must be an answer, not our end.
  signal(SIGPIPE, SIG_IGN);
  posix_spawn_file_actions_t actions;
  posix_spawn_file_actions_init(&actions);
  posix_spawn_file_actions_adddup2(&actions, in.reader(), STDIN_FILENO);
  posix_spawn_file_actions_adddup2(&actions, out.writer(), STDOUT_FILENO);
  std::vector<char*> words;
  for (const std::string& word : arguments) words.push_back(const_cast<char*>(word.c_str()));
  words.push_back(nullptr);
  std::unique_ptr<Coprocess> made(new Coprocess());
  const int error =
      posix_spawn(&made->process_, program.c_str(), &actions, nullptr, words.data(), environ);
  posix_spawn_file_actions_destroy(&actions);
  close(in.reader());
  close(out.writer());
  made->requests_ = fdopen(in.writer(), "w");
  made->answers_ = fdopen(out.reader(), "r");
  if (error != 0) {
    made->process_ = -1;
    return unsupported(one_line(program) + " cannot be started: " + std::strerror(error));
  }
  return made;
}

Coprocess::~Coprocess() {
  // The end of its input is the program's end.
  if (requests_ != nullptr) std::fclose(requests_);
  if (process_ > 0) waitpid(process_, nullptr, 0);
  if (answers_ != nullptr) std::fclose(answers_);
}

Result<json> Coprocess::ask(const json& request, int timeout_seconds) {
  const std::string line = request.dump() + "\n";
  const bool sent = std::fwrite(line.data(), 1, line.size(), requests_) == line.size() &&
                    std::fflush(requests_) == 0;
  if (sent && !wait_for(answers_, timeout_seconds)) {
    kill(process_, SIGKILL);
    return unsupported("the second process has not answered for " +
                       std::to_string(timeout_seconds) + " s and was ended");
  }
  const std::string text = sent ? line_of(answers_) : "";
  if (text.empty()) return unsupported("the second process has ended");
  const json answer = json::parse(text, nullptr, /*allow_exceptions=*/false);
  if (!answer.is_object()) return unsupported("the second process answers " + one_line(text));
  if (answer.contains("error")) {
    const json& error = answer.at("error");
    return unsupported(error.is_string() ? one_line(error.get<std::string>())
                                         : "the second process answers an error");
  }
  return answer;
}

}  // namespace fp8_sdpa::bench
