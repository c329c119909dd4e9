// SPDX-License-Identifier: Apache-2.0
#include "paceline/parallel/device_books.h"

#include <algorithm>
#include <utility>

namespace paceline {

std::uint64_t bytes_of(const at::Tensor& tensor) {
  if (!tensor.defined()) return 0;
  if (tensor.is_sparse()) return tensor._indices().nbytes() + tensor._values().nbytes();
  return tensor.nbytes();
}

std::uint64_t bytes_of(std::span<const at::Tensor> tensors) {
  std::uint64_t bytes = 0;
  for (const auto& tensor : tensors) bytes += bytes_of(tensor);
  return bytes;
}

DeviceBooks::Holding::Holding(DeviceBooks& books, std::size_t device, std::uint64_t bytes)
    : books_(&books), device_(device), bytes_(bytes) {
  books_->hold(device_, bytes_);
}

DeviceBooks::Holding::Holding(Holding&& other) noexcept
    : books_(std::exchange(other.books_, nullptr)), device_(other.device_), bytes_(other.bytes_) {}

DeviceBooks::Holding& DeviceBooks::Holding::operator=(Holding&& other) noexcept {
  std::swap(books_, other.books_);
  std::swap(device_, other.device_);
  std::swap(bytes_, other.bytes_);
  return *this;
}

DeviceBooks::Holding::~Holding() {
  if (books_ != nullptr) books_->release(device_, bytes_);
}

void DeviceBooks::hold(std::size_t device, std::uint64_t bytes) {
  const MutexLock lock(mutex_);
  held_[device] += bytes;
  peak_[device] = std::max(peak_[device], held_[device]);
}

void DeviceBooks::release(std::size_t device, std::uint64_t bytes) {
  const MutexLock lock(mutex_);
  held_[device] -= bytes;
}

std::vector<std::uint64_t> DeviceBooks::peaks() const {
  const MutexLock lock(mutex_);
  return peak_;
}

CopyTimer::CopyTimer(DeviceBooks& books, Copy what, std::size_t from, std::size_t to) {
  if (!books.ledger().on()) return;
  ledger_ = &books.ledger();
  record_ = {.what = what,
             .from = static_cast<int>(from),
             .to = static_cast<int>(to),
             .begin = std::chrono::steady_clock::now()};
}

void CopyTimer::done(std::uint64_t bytes) {
  if (ledger_ == nullptr || bytes == 0) return;
  record_.bytes = bytes;
  record_.end = std::chrono::steady_clock::now();
  ledger_->add(record_);
}

PhaseTimer::PhaseTimer(DeviceBooks& books, Phase what, std::size_t device) {
  if (!books.ledger().on()) return;
  ledger_ = &books.ledger();
  record_ = {
      .what = what, .device = static_cast<int>(device), .begin = std::chrono::steady_clock::now()};
}

void PhaseTimer::done() {
  if (ledger_ == nullptr) return;
  record_.end = std::chrono::steady_clock::now();
  ledger_->add(record_);
}

}  // namespace paceline
