// SPDX-License-Identifier: Apache-2.0
#include "paceline/net/shared_memory.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <utility>

#include "paceline/net/memory_limits.h"
#include "paceline/net/system_error.h"

namespace paceline::net {
namespace {

constexpr int kFixedSize = F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL;
constexpr std::size_t kPiece = 4 << 20;     // looked at and committed at once: others take too
constexpr std::uint64_t kSpare = 16 << 20;  // left for page tables, and for what others take

rlim_t limit_of(decltype(RLIMIT_AS) resource) {
  rlimit limit{};
  return ::getrlimit(resource, &limit) == 0 ? limit.rlim_cur : RLIM_INFINITY;
}

std::span<std::byte> map_whole(const Fd& file, std::size_t bytes) {
  void* at =
      ::mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_NORESERVE, file.raw(), 0);
  if (at != MAP_FAILED) return {static_cast<std::byte*>(at), bytes};
  const int code = errno;
  const std::string doing = fmt::format("mapping {} of shared memory", name_bytes(bytes));
  const rlim_t limit = limit_of(RLIMIT_AS);
  if (code != ENOMEM || limit == RLIM_INFINITY) throw SystemError(code, doing);
  throw SystemError(
      code, doing,
      fmt::format("the limit of address space (ulimit -v) is {}: raise it", name_bytes(limit)));
}

/// ftruncate() beyond this limit would end the process by SIGXFSZ.
void check_file_limit(std::size_t bytes) {
  const rlim_t limit = limit_of(RLIMIT_FSIZE);
  if (limit == RLIM_INFINITY || bytes <= limit) return;
  throw SystemError(
      EFBIG, fmt::format("making {} of shared memory", name_bytes(bytes)),
      fmt::format("the limit of file sizes (ulimit -f) is {}: raise it", name_bytes(limit)));
}

void check_headroom(std::size_t bytes) {
  const MemoryHeadroom headroom = memory_headroom();
  if (headroom.free_bytes >= kSpare && bytes <= headroom.free_bytes - kSpare) return;
  throw SystemError(ENOMEM, fmt::format("taking {} of shared memory", name_bytes(bytes)),
                    fmt::format("{} is {}, of which {} are free, and {} of these are spared",
                                headroom.limit, name_bytes(headroom.limit_bytes),
                                name_bytes(headroom.free_bytes), name_bytes(kSpare)));
}

void touch(std::span<std::byte> pages) {
  int code = 0;
  do {
    code = ::madvise(pages.data(), pages.size(), MADV_POPULATE_WRITE) == 0 ? 0 : errno;
  } while (code == EINTR || code == EAGAIN);
  if (code == 0) return;
  // Before Linux 5.14. The pages are there, so this cannot fail; peers do not know of them yet.
  for (std::size_t at = 0; at < pages.size(); at += page_bytes()) {
    auto& byte = *static_cast<volatile std::byte*>(&pages[at]);
    byte = byte;
  }
}

}  // namespace

std::size_t page_bytes() noexcept {
  static const auto size = static_cast<std::size_t>(::sysconf(_SC_PAGESIZE));
  return size;
}

SharedMemory SharedMemory::create(const std::string& name, std::size_t bytes) {
  const std::string doing = fmt::format("making {} of shared memory", name_bytes(bytes));
  check_file_limit(bytes);
  Fd file(::memfd_create(name.c_str(), MFD_CLOEXEC | MFD_ALLOW_SEALING));
  if (!file) throw_errno(doing);
  if (::ftruncate(file.raw(), static_cast<off_t>(bytes)) != 0) throw_errno(doing);
  if (::fcntl(file.raw(), F_ADD_SEALS, kFixedSize) != 0) throw_errno(doing);
  const auto mapped = map_whole(file, bytes);
  return {std::move(file), mapped};
}

SharedMemory SharedMemory::map(const Fd& file, std::size_t bytes) {
  constexpr std::string_view kDoing = "mapping another process's shared memory";
  const int seals = ::fcntl(file.raw(), F_GET_SEALS);
  if (seals < 0) throw_errno(kDoing, "it is no file in memory");
  if ((seals & kFixedSize) != kFixedSize || (seals & F_SEAL_WRITE) != 0)
    throw SystemError(EPERM, kDoing, "its size may change, or it cannot be written");
  struct stat info {};
  if (::fstat(file.raw(), &info) != 0) throw_errno(kDoing);
  if (std::cmp_not_equal(info.st_size, bytes))
    throw SystemError(EINVAL, kDoing,
                      fmt::format("it has {} bytes instead of {}", info.st_size, bytes));
  return {Fd(), map_whole(file, bytes)};
}

SharedMemory::SharedMemory(SharedMemory&& other) noexcept
    : file_(std::move(other.file_)), bytes_(std::exchange(other.bytes_, {})) {}

SharedMemory::~SharedMemory() {
  if (!bytes_.empty()) ::munmap(bytes_.data(), bytes_.size());
}

void SharedMemory::commit(std::size_t offset, std::size_t bytes) const {
  check_headroom(bytes);
  std::size_t done = 0;
  try {
    while (done < bytes) {
      const std::size_t piece = std::min(bytes - done, kPiece);
      if (done != 0) check_headroom(piece);
      commit_piece(offset + done, piece);
      done += piece;
    }
  } catch (...) {
    give_back(offset, bytes);
    throw;
  }
}

void SharedMemory::commit_piece(std::size_t offset, std::size_t bytes) const {
  const std::string doing = fmt::format("taking {} of shared memory", name_bytes(bytes));
  while (::fallocate(file_.raw(), 0, static_cast<off_t>(offset), static_cast<off_t>(bytes)) != 0) {
    if (errno == ENOSPC) throw SystemError(ENOMEM, doing);
    if (errno != EINTR) throw_errno(doing);
  }
  touch(bytes_.subspan(offset, bytes));
}

void SharedMemory::give_back(std::size_t offset, std::size_t bytes) const noexcept {
  constexpr int kPunch = FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE;
  while (bytes != 0 &&
         ::fallocate(file_.raw(), kPunch, static_cast<off_t>(offset), static_cast<off_t>(bytes)) !=
             0 &&
         errno == EINTR) {
  }
}

}  // namespace paceline::net
