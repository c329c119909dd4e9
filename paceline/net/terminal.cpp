// SPDX-License-Identifier: Apache-2.0
#include "paceline/net/terminal.h"

#include <fcntl.h>
#include <sys/ioctl.h>
#include <unistd.h>

#include <cerrno>

#include "paceline/net/output.h"

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

int write_standard(StandardStream stream, std::string_view text) noexcept {
  Fd borrowed(static_cast<int>(stream));
  const int error = write_all(borrowed, text);
  (void)borrowed.release();
  return error;
}

}  // namespace paceline::net
