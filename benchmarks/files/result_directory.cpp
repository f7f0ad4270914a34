#include "benchmarks/files/result_directory.hpp"

#include <fcntl.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include <array>
#include <atomic>
#include <cerrno>
#include <csignal>
#include <cstdio>
#include <cstring>
#include <filesystem>
#include <nlohmann/json.hpp>
#include <utility>

#include "reference/formats/text.hpp"

namespace fp8_sdpa::bench {
namespace {

using reference::one_line;

constexpr mode_t kFolderMode = 0777;  // the umask decides
constexpr mode_t kFileMode = 0666;

Status unwritable(const std::string& path, int error) {
  return invalid_argument("result folder " + one_line(path) + ": " + std::strerror(error) +
                          ", expected a folder that can be written");
}

std::string format_time(std::time_t when, const char* format) {
  std::tm parts{};
  gmtime_r(&when, &parts);
  std::array<char, 32> text{};
  std::strftime(text.data(), text.size(), format, &parts);
  return text.data();
}

/// Closes a file descriptor at the end of a scope.
struct Descriptor {
  explicit Descriptor(int value) : fd(value) {}
  Descriptor(const Descriptor&) = delete;
  Descriptor& operator=(const Descriptor&) = delete;
  ~Descriptor() {
    if (fd >= 0) close(fd);
  }
  int fd;
};

/// errno of the first step that failed, or 0.
int write_whole(const std::string& path, const std::string& text) {
  const Descriptor file(open(path.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, kFileMode));
  if (file.fd < 0) return errno;
  for (std::size_t done = 0; done < text.size();) {
    const ssize_t count = ::write(file.fd, text.data() + done, text.size() - done);
    if (count < 0 && errno == EINTR) continue;
    if (count < 0) return errno;
    done += static_cast<std::size_t>(count);
  }
  return fsync(file.fd) == 0 ? 0 : errno;
}

/// Makes a rename durable. Some file systems cannot do this to a folder; the rename is whole there
/// too.
void sync_folder(const std::string& path) {
  const Descriptor folder(open(path.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC));
  if (folder.fd >= 0) fsync(folder.fd);
}

std::string temporary_name(const std::string& folder, const std::string& name) {
  return folder + "/." + name + ".tmp-" + std::to_string(getpid());
}

/// Makes `path` and its parents; appends those that were not there to `made`. errno, or 0.
int make_folders(const std::filesystem::path& path, std::vector<std::string>& made) {
  std::filesystem::path built;
  for (const auto& part : path) {
    built /= part;
    if (mkdir(built.c_str(), kFolderMode) == 0) {
      made.push_back(built.string());
    } else if (errno != EEXIST) {
      const int error = errno;
      std::error_code ignored;
      if (!std::filesystem::is_directory(built, ignored)) return error;
    }
  }
  std::error_code ignored;
  return std::filesystem::is_directory(path, ignored) ? 0 : ENOTDIR;
}

/// Folders to remove, if they are empty, when a signal ends the process: text that whoever made
/// them keeps where it is. A handler may read this and call rmdir().
constexpr std::size_t kMostFolders = 64;
std::array<std::atomic<const char*>, kMostFolders> empty_folders{};

extern "C" void remove_empty_folders(int signal) {
  for (auto folder = empty_folders.rbegin(); folder != empty_folders.rend(); ++folder) {
    if (const char* path = folder->load()) rmdir(path);
  }
  raise(signal);  // as it would have ended: the handler is there once
}

void remove_when_ended(const std::vector<std::string>& folders) {
  for (const std::string& path : folders) {
    for (auto& place : empty_folders) {
      const char* nothing = nullptr;
      if (place.compare_exchange_strong(nothing, path.c_str())) break;
    }
  }
  for (const int signal : {SIGINT, SIGTERM, SIGHUP, SIGPIPE}) {
    struct sigaction action {};
    if (sigaction(signal, nullptr, &action) != 0 || action.sa_handler != SIG_DFL) continue;
    action.sa_handler = remove_empty_folders;
    action.sa_flags = static_cast<int>(SA_RESETHAND);
    sigaction(signal, &action, nullptr);
  }
}

void forget(const std::string& folder) {
  for (auto& place : empty_folders) {
    const char* path = folder.c_str();
    if (place.compare_exchange_strong(path, nullptr)) return;
  }
}

}  // namespace

std::string folder_name(std::time_t when) { return format_time(when, "%Y%m%d-%H%M%S"); }

std::string folder_or_default(const std::string& asked, const std::string& what) {
  return asked.empty() ? "results/" + folder_name(std::time(nullptr)) + "-" + what : asked;
}

std::string iso_timestamp(std::time_t when) { return format_time(when, "%Y-%m-%dT%H:%M:%SZ"); }

bool is_there(const std::filesystem::path& path) {
  std::error_code ignored;
  return std::filesystem::exists(path, ignored);
}

std::string file_text(const nlohmann::json& document) {
  constexpr int kIndent = 2;
  return document.dump(kIndent, ' ', false, nlohmann::json::error_handler_t::replace) + "\n";
}

Status replace_file(const std::string& path, const std::string& text) {
  const std::filesystem::path target(path);
  const std::string folder = target.has_parent_path() ? target.parent_path().string() : ".";
  const std::string temporary = temporary_name(folder, target.filename().string());
  std::vector<std::string> made;
  int error = make_folders(folder, made);
  if (error == 0) error = write_whole(temporary, text);
  if (error == 0 && std::rename(temporary.c_str(), path.c_str()) != 0) error = errno;
  if (error != 0) {
    unlink(temporary.c_str());
    return invalid_argument("result file " + one_line(path) + ": " + std::strerror(error) +
                            ", expected a folder that can be written");
  }
  sync_folder(folder);
  return {};
}

Result<ResultDirectory> ResultDirectory::open(const std::string& path) {
  if (path.empty()) return unwritable("\"\"", ENOENT);
  ResultDirectory directory(path);
  const int failed = make_folders(path, directory.made_);
  remove_when_ended(directory.made_);
  if (failed != 0) return unwritable(path, failed);
  const std::string probe = temporary_name(path, "probe");
  const int error = write_whole(probe, "");
  unlink(probe.c_str());
  if (error != 0) return unwritable(path, error);
  return directory;
}

Result<ResultDirectory> ResultDirectory::open_empty(const std::string& path) {
  auto directory = open(path);
  if (!directory.ok()) return directory;
  const auto refused = [&](const std::string& why) {
    return invalid_argument("result folder " + one_line(path) + " " + why +
                            ", expected a new or an empty one");
  };
  // File systems without locks are no reason not to run.
  directory->lock_ = ::open(path.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC);
  if (flock(directory->lock_, LOCK_EX | LOCK_NB) != 0 && errno == EWOULDBLOCK) {
    return refused("is being written by another run");
  }
  std::error_code ignored;
  for (const auto& entry : std::filesystem::directory_iterator(path, ignored)) {
    const std::string name = entry.path().filename();
    if (entry.path().extension() == ".json" && !name.starts_with(".")) {
      return refused("has the " + one_line(name) + " of another run");
    }
  }
  return directory;
}

Result<ResultDirectory> ResultDirectory::open_new(const std::string& root) {
  // Two runs may start within one second: the later one takes the next name.
  constexpr std::time_t kTries = 100;
  const std::time_t now = std::time(nullptr);
  for (std::time_t shift = 0; shift < kTries; ++shift) {
    const std::string path = root + "/" + folder_name(now + shift);
    auto directory = open(path);
    if (!directory.ok()) return directory.status();
    if (!directory->made_.empty()) return directory;
  }
  return unwritable(root, EEXIST);
}

ResultDirectory::ResultDirectory(ResultDirectory&& other) noexcept
    : path_(std::move(other.path_)),
      made_(std::exchange(other.made_, {})),  // its texts stay where they are
      lock_(std::exchange(other.lock_, -1)) {}

ResultDirectory::~ResultDirectory() {
  // rmdir refuses folders that hold something.
  for (auto folder = made_.rbegin(); folder != made_.rend(); ++folder) {
    rmdir(folder->c_str());
    forget(*folder);
  }
  if (lock_ >= 0) close(lock_);
}

Status ResultDirectory::write(const std::string& name, const nlohmann::json& document) {
  return replace_file(path_ + "/" + name, file_text(document));
}

}  // namespace fp8_sdpa::bench
