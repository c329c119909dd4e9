// SPDX-License-Identifier: Apache-2.0
#include "paceline/net/terminal.h"

#include <fcntl.h>
#include <poll.h>
#include <sys/ioctl.h>
#include <unistd.h>

#include <cerrno>

namespace paceline::net {

void open_missing_standard_streams() noexcept {
  for (int fd = 0; fd <= 2; ++fd) {
    if (::fcntl(fd, F_GETFD) != -1 || errno != EBADF) continue;
    (void)::open("/dev/null", fd == 0 ? O_RDONLY : O_WRONLY);  // takes the lowest free number: fd
  }
}

bool is_terminal(StandardStream stream) noexcept { return ::isatty(static_cast<int>(stream)) == 1; }

std::optional<std::size_t> terminal_columns(StandardStream stream) noexcept {
  winsize size{};
  if (!is_terminal(stream) || ::ioctl(static_cast<int>(stream), TIOCGWINSZ, &size) != 0 ||
      size.ws_col == 0)
    return std::nullopt;
  return size.ws_col;
}

bool write_standard(StandardStream stream, std::string_view text) noexcept {
  const int fd = static_cast<int>(stream);
  while (!text.empty()) {
    const ssize_t put = ::write(fd, text.data(), text.size());
    if (put >= 0) {
      text.remove_prefix(static_cast<std::size_t>(put));
    } else if (errno == EAGAIN) {  // somebody else made the terminal non-blocking
      pollfd item{.fd = fd, .events = POLLOUT, .revents = 0};
      (void)::poll(&item, 1, -1);
    } else if (errno != EINTR) {
      return false;
    }
  }
  return true;
}

}  // namespace paceline::net
