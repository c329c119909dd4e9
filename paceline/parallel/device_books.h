// SPDX-License-Identifier: Apache-2.0
#pragma once
/// @file
/// What moves between the devices of DataParallel, and what each of them holds.

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include <ATen/core/Tensor.h>

#include "paceline/base/ledger_book.h"
#include "paceline/base/mutex.h"

namespace paceline {

/// The memory of its elements; of indices and values if it is sparse; 0 if it is undefined.
[[nodiscard]] std::uint64_t bytes_of(const at::Tensor& tensor);
[[nodiscard]] std::uint64_t bytes_of(std::span<const at::Tensor> tensors);

/// Threads  Any.
class DeviceBooks {
 public:
  explicit DeviceBooks(std::size_t devices) : held_(devices), peak_(devices) {}

  [[nodiscard]] LedgerBook& ledger() noexcept { return ledger_; }

  /// Counts bytes on a device until it is destroyed.
  class Holding {
   public:
    Holding(DeviceBooks& books, std::size_t device, std::uint64_t bytes);
    Holding(Holding&& other) noexcept;
    Holding& operator=(Holding&& other) noexcept;
    ~Holding();

   private:
    DeviceBooks* books_;
    std::size_t device_;
    std::uint64_t bytes_;
  };

  [[nodiscard]] std::vector<std::uint64_t> peaks() const;

 private:
  void hold(std::size_t device, std::uint64_t bytes);
  void release(std::size_t device, std::uint64_t bytes);

  LedgerBook ledger_;
  mutable Mutex mutex_;
  std::vector<std::uint64_t> held_ PACELINE_GUARDED_BY(mutex_);
  std::vector<std::uint64_t> peak_ PACELINE_GUARDED_BY(mutex_);
};

/// Writes one copy down: from its construction to the call of done(). Costs nothing if the ledger
/// is off.
class CopyTimer {
 public:
  CopyTimer(DeviceBooks& books, Copy what, std::size_t from, std::size_t to);
  void done(std::uint64_t bytes);

 private:
  LedgerBook* ledger_ = nullptr;
  CopyRecord record_;
};

/// Writes one phase down: the scope it lives in, if nothing is thrown there.
class PhaseTimer {
 public:
  PhaseTimer(DeviceBooks& books, Phase what, std::size_t device);
  void done();

 private:
  LedgerBook* ledger_ = nullptr;
  PhaseRecord record_;
};

}  // namespace paceline
