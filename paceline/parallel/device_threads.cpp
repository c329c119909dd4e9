// SPDX-License-Identifier: Apache-2.0
#include "paceline/parallel/device_threads.h"

#include <utility>

#include <ATen/Parallel.h>

namespace paceline {
namespace {

// at::set_num_threads() also sets what threads get that are started later. One of those tells what
// that was before, and puts it back.
class KeepDefaultThreads {
 public:
  KeepDefaultThreads() {
    std::jthread([this] { before_ = at::get_num_threads(); }).join();
  }
  ~KeepDefaultThreads() {
    std::jthread([this] { at::set_num_threads(before_); }).join();
  }
  KeepDefaultThreads(const KeepDefaultThreads&) = delete;
  KeepDefaultThreads& operator=(const KeepDefaultThreads&) = delete;

 private:
  int before_ = 0;
};

std::exception_ptr thrown_by(const DeviceThreads::Task& task, std::size_t device) {
  try {
    task(device);
  } catch (...) {  // carried to the caller
    return std::current_exception();
  }
  return nullptr;
}

}  // namespace

DeviceThreads::DeviceThreads(std::size_t count, int intra_op_threads)
    : tasks_(count), errors_(count) {
  const KeepDefaultThreads keep;
  (void)at::get_num_threads();  // the caller's own number is settled before others set theirs
  for (std::size_t device = 0; device < count; ++device) {
    threads_.emplace_back([this, device, intra_op_threads](const std::stop_token& stop) {
      serve(stop, device, intra_op_threads);
    });
  }
  MutexLock lock(mutex_);
  while (ready_ < count) done_.wait(lock);
}

DeviceThreads::~DeviceThreads() = default;

void DeviceThreads::serve(const std::stop_token& stop, std::size_t device, int intra_op_threads) {
  at::set_num_threads(intra_op_threads);
  const std::stop_callback wake(stop, [this] {
    const MutexLock lock(mutex_);
    handed_out_.notify_all();
  });
  MutexLock lock(mutex_);
  ++ready_;
  done_.notify_all();
  while (true) {
    while (tasks_[device] == nullptr && !stop.stop_requested()) handed_out_.wait(lock);
    if (tasks_[device] == nullptr) return;
    const Task& task = *tasks_[device];
    lock.unlock();
    std::exception_ptr error = thrown_by(task, device);
    lock.lock();
    errors_[device] = std::move(error);
    tasks_[device] = nullptr;
    done_.notify_all();
  }
}

void DeviceThreads::hand_out(std::size_t device, const Task& task) {
  const MutexLock lock(mutex_);
  tasks_[device] = &task;
  handed_out_.notify_all();
}

std::exception_ptr DeviceThreads::await(std::size_t device) {
  MutexLock lock(mutex_);
  while (tasks_[device] != nullptr) done_.wait(lock);
  return std::exchange(errors_[device], nullptr);
}

std::vector<std::exception_ptr> DeviceThreads::run(std::size_t count,
                                                   const Task& task,
                                                   Order order) {
  std::vector<std::exception_ptr> errors(count);
  if (order == Order::kInTurn) {
    for (std::size_t device = 0; device < count; ++device) {
      hand_out(device, task);
      errors[device] = await(device);
    }
    return errors;
  }
  const std::size_t first = order == Order::kFirstOnCaller ? 1 : 0;
  for (std::size_t device = first; device < count; ++device) hand_out(device, task);
  if (first == 1) errors.front() = thrown_by(task, 0);
  for (std::size_t device = first; device < count; ++device) errors[device] = await(device);
  return errors;
}

}  // namespace paceline
