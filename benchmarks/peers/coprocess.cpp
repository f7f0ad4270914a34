#include "benchmarks/peers/coprocess.hpp"

#include <poll.h>
#include <signal.h>
#include <sys/wait.h>

#include <cerrno>
#include <cstdlib>
#include <nlohmann/json.hpp>

#include "benchmarks/command/subprocess.hpp"
#include "reference/formats/text.hpp"

namespace fp8_sdpa::bench {
namespace {

using nlohmann::json;
using reference::one_line;

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
  // A program that has ended must be an answer, not our end.
  signal(SIGPIPE, SIG_IGN);
  std::vector<std::string> words = arguments;
  words.front() = program;
  const auto child = spawn(words, Stdin::kPipe, Stderr::kOurs);
  if (!child.ok()) return child.status();
  std::unique_ptr<Coprocess> made(new Coprocess());
  made->process_ = child->process;
  made->requests_ = fdopen(child->input, "w");
  made->answers_ = fdopen(child->output, "r");
  return made;
}

Coprocess::~Coprocess() {
  // The end of its input is the program's end.
  std::fclose(requests_);
  waitpid(process_, nullptr, 0);
  std::fclose(answers_);
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
