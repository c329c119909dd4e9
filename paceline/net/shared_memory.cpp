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
#include <cstdint>
#include <utility>

#include "paceline/net/memory_limits.h"
#include "paceline/net/system_error.h"

namespace paceline::net {
namespace {

constexpr int kFixedSize = F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL;
constexpr std::size_t kPiece = 2 * SharedMemory::kHugePage;  // at once: others take memory too
constexpr std::uint64_t kSpare = 16 << 20;  // left for page tables, and for what others take
constexpr int kCollapse = 25;               // MADV_COLLAPSE, which headers before Linux 6.1 lack

rlim_t limit_of(decltype(RLIMIT_AS) resource) {
  rlimit limit{};
  return ::getrlimit(resource, &limit) == 0 ? limit.rlim_cur : RLIM_INFINITY;
}

std::size_t up_to_huge(std::uintptr_t at) noexcept {
  return (at + SharedMemory::kHugePage - 1) / SharedMemory::kHugePage * SharedMemory::kHugePage;
}

/// Maps the file over the first aligned part of a reservation; what is over goes back.
std::byte* map_aligned(const Fd& file, std::size_t bytes) noexcept {
  const std::size_t reserved = bytes + SharedMemory::kHugePage;
  void* room =
      ::mmap(nullptr, reserved, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (room == MAP_FAILED) return nullptr;
  const auto begin = reinterpret_cast<std::uintptr_t>(room);
  auto* const first = static_cast<std::byte*>(room);
  auto* const aligned = first + (up_to_huge(begin) - begin);
  if (::mmap(aligned, bytes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_NORESERVE | MAP_FIXED,
             file.raw(), 0) == MAP_FAILED) {
    const int code = errno;
    ::munmap(room, reserved);
    errno = code;
    return nullptr;
  }
  if (aligned != first) ::munmap(first, static_cast<std::size_t>(aligned - first));
  ::munmap(aligned + bytes, reserved - bytes - static_cast<std::size_t>(aligned - first));
  return aligned;
}

std::span<std::byte> map_whole(const Fd& file, std::size_t bytes) {
  if (std::byte* const at = map_aligned(file, bytes)) return {at, bytes};
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
  const std::size_t end = offset + bytes;
  try {
    for (std::size_t at = offset, next = 0; at < end; at = next) {
      next = std::min(end, up_to_huge(at + kPiece - SharedMemory::kHugePage + 1));
      if (at != offset) check_headroom(next - at);
      commit_piece(at, next - at);
    }
  } catch (...) {
    give_back(offset, bytes);
    throw;
  }
}

void SharedMemory::commit_piece(std::size_t offset, std::size_t bytes) const {
  take_huge_pages(offset, bytes);
  if (!take_pages(offset, bytes)) {
    const int code = errno == ENOSPC ? ENOMEM : errno;
    throw SystemError(code, fmt::format("taking {} of shared memory", name_bytes(bytes)));
  }
  touch(bytes_.subspan(offset, bytes));
}

bool SharedMemory::take_pages(std::size_t offset, std::size_t bytes) const noexcept {
  while (::fallocate(file_.raw(), 0, static_cast<off_t>(offset), static_cast<off_t>(bytes)) != 0) {
    if (errno != EINTR) return false;
  }
  return true;
}

/// What it does not get comes as small pages: the same bytes, more slowly.
void SharedMemory::take_huge_pages(std::size_t offset, std::size_t bytes) const noexcept {
  for (std::size_t at = up_to_huge(offset); at + kHugePage <= offset + bytes; at += kHugePage) {
    // Linux makes none of an extent that has no page at all.
    if (!take_pages(at, page_bytes())) return;
    if (::madvise(&bytes_[at], kHugePage, kCollapse) != 0) return;
  }
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
