// SPDX-License-Identifier: Apache-2.0
#include "paceline/net/output.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <poll.h>
#include <signal.h>
#include <unistd.h>

#include <cerrno>

#include "paceline/net/system_error.h"

namespace paceline::net {

Fd create_file(const std::string& path) {
  Fd file(::open(path.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0666));
  if (!file) throw_errno(fmt::format("writing '{}'", path));
  return file;
}

int write_all(const Fd& fd, std::string_view text) noexcept {
  while (!text.empty()) {
    const ssize_t put = ::write(fd.raw(), text.data(), text.size());
    if (put >= 0) {
      text.remove_prefix(static_cast<std::size_t>(put));
    } else if (errno == EAGAIN) {  // somebody else made the terminal non-blocking
      pollfd item{.fd = fd.raw(), .events = POLLOUT, .revents = 0};
      (void)::poll(&item, 1, -1);
    } else if (errno != EINTR) {
      return errno;
    }
  }
  return 0;
}

void turn_write_signals_into_errors() noexcept {
  for (const int number : {SIGPIPE, SIGXFSZ}) (void)::signal(number, SIG_IGN);
}

}  // namespace paceline::net
