// SPDX-License-Identifier: Apache-2.0
#include "paceline/net/private_file.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>

#include "paceline/net/system_error.h"

namespace paceline::net {
namespace {

/// Checks the open file, not its name, so that nobody can swap it in between.
void check_private(const Fd& fd, const std::string& path) {
  struct stat info {};
  if (::fstat(fd.raw(), &info) != 0) throw_errno(fmt::format("looking at '{}'", path));
  const std::string doing = fmt::format("reading the private file '{}'", path);
  if (!S_ISREG(info.st_mode)) throw SystemError(EINVAL, doing, "it is no regular file");
  if (info.st_uid != ::geteuid() && info.st_uid != 0)
    throw SystemError(EPERM, doing, "it belongs to another user");
  if ((info.st_mode & (S_IRWXG | S_IRWXO)) != 0)
    throw SystemError(EPERM, doing,
                      fmt::format("its mode is {:04o}, open to others: chmod 600 '{}'",
                                  info.st_mode & 07777U, path));
}

std::vector<std::byte> read_from_start(const Fd& fd, std::size_t limit, const std::string& doing) {
  std::vector<std::byte> content(limit);
  std::size_t size = 0;
  while (size < limit) {
    const ssize_t got =
        ::pread(fd.raw(), content.data() + size, limit - size, static_cast<off_t>(size));
    if (got == 0) break;
    if (got > 0) size += static_cast<std::size_t>(got);
    if (got < 0 && errno != EINTR) throw_errno(doing);
  }
  content.resize(size);
  return content;
}

}  // namespace

std::vector<std::byte> read_private_file(const std::string& path, std::size_t limit_bytes) {
  const std::string doing = fmt::format("reading the private file '{}'", path);
  const Fd fd(::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK));
  if (!fd) throw_errno(doing);
  check_private(fd, path);
  auto content = read_from_start(fd, limit_bytes + 1, doing);
  if (content.size() > limit_bytes)
    throw SystemError(EFBIG, doing, fmt::format("at most {} bytes are expected", limit_bytes));
  return content;
}

Fd make_sealed_memory(const std::string& name, std::span<const std::byte> content) {
  const std::string doing = "making a file in memory";
  Fd fd(::memfd_create(name.c_str(), MFD_CLOEXEC | MFD_ALLOW_SEALING));
  if (!fd) throw_errno(doing);
  std::size_t done = 0;
  while (done < content.size()) {
    const ssize_t put = ::write(fd.raw(), content.data() + done, content.size() - done);
    if (put > 0) done += static_cast<std::size_t>(put);
    if (put < 0 && errno != EINTR) throw_errno(doing);
  }
  if (::fcntl(fd.raw(), F_ADD_SEALS, F_SEAL_WRITE | F_SEAL_GROW | F_SEAL_SHRINK | F_SEAL_SEAL) != 0)
    throw_errno(doing);
  return fd;
}

std::vector<std::byte> read_sealed_memory(const Fd& fd, std::size_t limit_bytes) {
  return read_from_start(fd, limit_bytes, "reading a file in memory");
}

}  // namespace paceline::net
