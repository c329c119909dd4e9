// SPDX-License-Identifier: Apache-2.0
#pragma once
/// @file
/// Memory that processes of one host share: a file that has no name, never changes its size, so
/// that no access faults, and is gone with its last holder.

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>

#include "paceline/net/fd.h"

namespace paceline::net {

/// One mapping of such a file, whole, from a multiple of kHugePage on.
///
/// Threads  Any; commit() and give_back() of ranges that do not overlap.
class SharedMemory {
 public:
  /// Bytes that one entry of a page table can map, where the system allows it.
  static constexpr std::size_t kHugePage = std::size_t{2} << 20;

  /// Makes a file of `bytes` (a multiple of the page size), all zero, and maps it. Address space is
  /// reserved, memory is not. `name` shows up in /proc only.
  ///
  /// Errors  SystemError; if it comes from `ulimit -f` or `ulimit -v`, it says so.
  [[nodiscard]] static SharedMemory create(const std::string& name, std::size_t bytes);

  /// Maps the file that another process has made with create().
  ///
  /// Errors  SystemError if it is no file in memory, its size may change, or is not `bytes`; and if
  ///         `ulimit -v` leaves no room.
  [[nodiscard]] static SharedMemory map(const Fd& file, std::size_t bytes);

  SharedMemory(SharedMemory&& other) noexcept;
  SharedMemory& operator=(SharedMemory&&) = delete;
  ~SharedMemory();

  [[nodiscard]] std::span<std::byte> bytes() const noexcept { return bytes_; }
  /// The file; empty if it was another process's.
  [[nodiscard]] const Fd& file() const noexcept { return file_; }

  /// Gives pages to a range of the file that create() made, and touches them: from then on it costs
  /// no fault, and nobody dies of it. `offset` and `bytes` are multiples of the page size. Each
  /// whole kHugePage in it is one page, from Linux 6.1 on and if the machine has one left.
  ///
  /// Errors  SystemError ENOMEM that names the limit, what it leaves and what was asked for, if
  ///         memory is short; then nothing is kept.
  /// Cost    0.15 to 0.4 ms per MiB; ten times that where the machine has to gather huge pages.
  void commit(std::size_t offset, std::size_t bytes) const;
  /// Gives them back to the machine: the range is zero again, for all who map it.
  void give_back(std::size_t offset, std::size_t bytes) const noexcept;

 private:
  SharedMemory(Fd file, std::span<std::byte> bytes) : file_(std::move(file)), bytes_(bytes) {}
  void commit_piece(std::size_t offset, std::size_t bytes) const;
  [[nodiscard]] bool take_pages(std::size_t offset, std::size_t bytes) const noexcept;
  void take_huge_pages(std::size_t offset, std::size_t bytes) const noexcept;

  Fd file_;
  std::span<std::byte> bytes_;
};

[[nodiscard]] std::size_t page_bytes() noexcept;

}  // namespace paceline::net
