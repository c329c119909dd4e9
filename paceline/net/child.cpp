// SPDX-License-Identifier: Apache-2.0
#include "paceline/net/child.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <utility>

#include "paceline/base/error.h"
#include "paceline/net/poll.h"
#include "paceline/net/socket.h"
#include "paceline/net/system_error.h"

namespace paceline::net {
namespace {

/// All that the child needs between fork and exec, where it may neither allocate nor lock.
struct Launch {
  std::string path;
  std::vector<char*> arguments;
  std::vector<char*> environment;
  std::vector<int> inherit;
  Fd input, output, error, report;
  pid_t parent = 0;
};

struct Pipe {
  Fd read, write;
};

/// Keeps clear of 0, 1 and 2, which the child will overwrite.
Fd above_standard(Fd fd) {
  if (fd.raw() > STDERR_FILENO) return fd;
  Fd copy(::fcntl(fd.raw(), F_DUPFD_CLOEXEC, STDERR_FILENO + 1));
  if (!copy) throw_errno("copying a descriptor");
  return copy;
}

Pipe make_pipe() {
  std::array<int, 2> ends{};
  if (::pipe2(ends.data(), O_CLOEXEC) != 0)
    throw_errno("making a pipe", "raise the limit of open files if it is reached");
  Pipe raw{Fd(ends[0]), Fd(ends[1])};
  return {above_standard(std::move(raw.read)), above_standard(std::move(raw.write))};
}

/// 0 if `path` is a program that may run, else the errno value that says why not.
int why_not_executable(const std::string& path) {
  struct stat info {};
  if (::stat(path.c_str(), &info) != 0) return errno;
  if (S_ISDIR(info.st_mode)) return EISDIR;
  return ::access(path.c_str(), X_OK) == 0 ? 0 : errno;
}

std::string advice_for(const std::string& program, int code) {
  switch (code) {
    case ENOENT:
      return program.find('/') == std::string::npos
                 ? fmt::format("no such program on PATH; write ./{} if it lies here", program)
                 : "check the path, and the interpreter on its first line if it is a script";
    case EACCES: return fmt::format("is it executable? try chmod +x {}", program);
    case ENOEXEC: return "it is no program of this machine, and no script that starts with #!";
    default: return {};
  }
}

[[noreturn]] void throw_not_started(const std::string& program, int code) {
  throw SystemError(code, fmt::format("starting '{}'", program), advice_for(program, code));
}

std::string path_variable(const std::vector<std::string>& environment) {
  for (const std::string& entry : environment)
    if (entry.starts_with("PATH=")) return entry.substr(5);
  return "/usr/local/bin:/usr/bin:/bin";
}

std::vector<char*> to_c(const std::vector<std::string>& texts) {
  std::vector<char*> result;
  result.reserve(texts.size() + 2);
  for (const std::string& text : texts) result.push_back(const_cast<char*>(text.c_str()));
  result.push_back(nullptr);
  return result;
}

// From here to run_child(): only async-signal-safe calls. Another thread may have held any lock.

[[noreturn]] void give_up(const Launch& launch) noexcept {
  const int code = errno;
  (void)!::write(launch.report.raw(), &code, sizeof code);
  ::_exit(127);
}

/// Exec resets handlers but keeps what is ignored; these are what libraries like to ignore.
constexpr bool gets_default(int signal) { return signal == SIGPIPE || signal == SIGXFSZ; }

void reset_signals() noexcept {
  struct sigaction action {};
  for (int signal = 1; signal < NSIG; ++signal) {
    if (::sigaction(signal, nullptr, &action) != 0) continue;
    if (action.sa_handler == SIG_DFL || (action.sa_handler == SIG_IGN && !gets_default(signal)))
      continue;
    action = {};
    action.sa_handler = SIG_DFL;
    (void)::sigaction(signal, &action, nullptr);
  }
  sigset_t none;
  sigemptyset(&none);
  (void)::sigprocmask(SIG_SETMASK, &none, nullptr);
}

[[noreturn]] void run_child(const Launch& launch) noexcept {
  if (::setpgid(0, 0) != 0 || ::prctl(PR_SET_PDEATHSIG, SIGKILL) != 0) give_up(launch);
  if (::getppid() != launch.parent) ::_exit(127);  // it died before the line above could tell
  if (::dup2(launch.input.raw(), STDIN_FILENO) < 0) give_up(launch);
  if (launch.output && ::dup2(launch.output.raw(), STDOUT_FILENO) < 0) give_up(launch);
  if (launch.error && ::dup2(launch.error.raw(), STDERR_FILENO) < 0) give_up(launch);
  for (const int fd : launch.inherit)
    if (::fcntl(fd, F_SETFD, 0) != 0) give_up(launch);
  reset_signals();
  ::execve(launch.path.c_str(), launch.arguments.data(), launch.environment.data());
  give_up(launch);
}

/// Forks with all signals blocked, so that no handler of the parent runs in the child.
pid_t fork_and_run(const Launch& launch) {
  sigset_t all;
  sigset_t previous;
  sigfillset(&all);
  (void)::pthread_sigmask(SIG_SETMASK, &all, &previous);
  const pid_t pid = ::fork();
  const int code = errno;
  if (pid == 0) run_child(launch);
  (void)::pthread_sigmask(SIG_SETMASK, &previous, nullptr);
  if (pid < 0)
    throw SystemError(code, "making a child process", "is the limit of processes reached?");
  return pid;
}

void reap(pid_t pid) noexcept {
  while (::waitpid(pid, nullptr, 0) < 0 && errno == EINTR) {
  }
}

/// Blocks until the child runs its program or gives up. @return errno of its failure, or 0.
int read_report(const Fd& report) {
  int code = 0;
  for (;;) {
    const ssize_t got = ::read(report.raw(), &code, sizeof code);
    if (got == sizeof code) return code;
    if (got >= 0) return 0;
    if (errno != EINTR) throw_errno("waiting for a child process to start");
  }
}

Fd open_pidfd(pid_t pid) {
  Fd fd(static_cast<int>(::syscall(SYS_pidfd_open, pid, 0U)));  // close-on-exec by itself
  if (!fd) throw_errno("watching a child process", "Linux 5.3 or later is needed");
  return fd;
}

std::vector<int> inherited_numbers(const SpawnOptions& options) {
  std::vector<int> numbers;
  for (const Fd* fd : options.inherit) {
    if (fd == nullptr || fd->raw() <= STDERR_FILENO)
      throw UsageError("a child can inherit only open descriptors above 2");
    numbers.push_back(fd->raw());
  }
  return numbers;
}

Fd open_nothing() {
  Fd fd(::open("/dev/null", O_RDONLY | O_CLOEXEC));
  if (!fd) throw_errno("opening /dev/null");
  return above_standard(std::move(fd));
}

}  // namespace

std::string find_program(const std::string& program, const std::vector<std::string>& environment) {
  int code = ENOENT;
  if (program.find('/') != std::string::npos) {
    code = why_not_executable(program);
    if (code == 0) return program;
  } else if (!program.empty()) {
    const std::string path = path_variable(environment);
    for (std::size_t begin = 0; begin <= path.size();) {
      const std::size_t end = std::min(path.find(':', begin), path.size());
      const std::string folder = path.substr(begin, end - begin);
      std::string candidate = (folder.empty() ? "." : folder) + '/' + program;
      const int why = why_not_executable(candidate);
      if (why == 0) return candidate;
      if (why == EACCES) code = EACCES;  // as execvp: found, but not allowed, beats not found
      begin = end + 1;
    }
  }
  throw_not_started(program, code);
}

Child spawn(const std::string& program,
            const std::vector<std::string>& arguments,
            const std::vector<std::string>& environment,
            const SpawnOptions& options) {
  Launch launch;
  launch.path = find_program(program, environment);
  launch.inherit = inherited_numbers(options);
  launch.arguments = to_c(arguments);
  launch.arguments.insert(launch.arguments.begin(), const_cast<char*>(program.c_str()));
  launch.environment = to_c(environment);
  launch.input = open_nothing();
  launch.parent = ::getpid();
  Pipe report = make_pipe();
  launch.report = std::move(report.write);
  Pipe output;
  Pipe error;
  if (options.output == ChildOutput::kPipes) {
    output = make_pipe();
    error = make_pipe();
    make_nonblocking(output.read);
    make_nonblocking(error.read);
    launch.output = std::move(output.write);
    launch.error = std::move(error.write);
  }
  const pid_t pid = fork_and_run(launch);
  launch.report.reset();
  Fd pidfd;
  try {
    pidfd = open_pidfd(pid);
    if (const int code = read_report(report.read); code != 0) throw_not_started(program, code);
  } catch (...) {
    (void)::kill(pid, SIGKILL);
    reap(pid);
    throw;
  }
  return Child(pid, std::move(pidfd), std::move(output.read), std::move(error.read));
}

Child::Child(int pid, Fd pidfd, Fd output, Fd error) noexcept
    : pid_(pid), pidfd_(std::move(pidfd)), output_(std::move(output)), error_(std::move(error)) {}

Child::Child(Child&& other) noexcept
    : pid_(std::exchange(other.pid_, -1)),
      pidfd_(std::move(other.pidfd_)),
      output_(std::move(other.output_)),
      error_(std::move(other.error_)),
      status_(other.status_) {}

Child& Child::operator=(Child&& other) noexcept {
  if (this != &other) {
    end();
    pid_ = std::exchange(other.pid_, -1);
    pidfd_ = std::move(other.pidfd_);
    output_ = std::move(other.output_);
    error_ = std::move(other.error_);
    status_ = other.status_;
  }
  return *this;
}

Child::~Child() { end(); }

void Child::end() noexcept {
  if (pid_ < 0) return;
  signal_group(SIGKILL);
  reap(pid_);
  pid_ = -1;
}

std::optional<ExitStatus> Child::try_wait() {
  if (status_ || pid_ < 0) return status_;
  siginfo_t info{};
  // WNOWAIT leaves the zombie, and with it the number, until the destructor.
  while (::waitid(P_PID, static_cast<id_t>(pid_), &info, WEXITED | WNOHANG | WNOWAIT) != 0)
    if (errno != EINTR) throw_errno(fmt::format("waiting for child process {}", pid_));
  if (info.si_pid == 0) return std::nullopt;
  status_ = info.si_code == CLD_EXITED ? ExitStatus{.code = info.si_status}
                                       : ExitStatus{.signal = info.si_status};
  return status_;
}

std::optional<ExitStatus> Child::wait(Deadline deadline) {
  for (;;) {
    if (const auto status = try_wait()) return status;
    if (pid_ < 0 || !wait_readable(pidfd_, deadline)) return try_wait();
  }
}

std::optional<int> Child::stopped_by() const {
  if (status_ || pid_ < 0) return std::nullopt;
  siginfo_t info{};
  while (::waitid(P_PID, static_cast<id_t>(pid_), &info, WSTOPPED | WNOHANG | WNOWAIT) != 0) {
    if (errno == ECHILD) return std::nullopt;  // it has ended
    if (errno != EINTR) throw_errno(fmt::format("looking at child process {}", pid_));
  }
  if (info.si_pid == 0 || info.si_code != CLD_STOPPED) return std::nullopt;
  return info.si_status;
}

void Child::signal(int signal) noexcept {
  if (pid_ > 0) (void)::kill(pid_, signal);
}

void Child::signal_group(int signal) noexcept {
  if (pid_ > 0) (void)::killpg(pid_, signal);
}

}  // namespace paceline::net
