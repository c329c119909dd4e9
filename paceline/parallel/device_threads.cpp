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
    : at_work_(count), tasks_(count), errors_(count) {
  const KeepDefaultThreads keep;
  (void)at::get_num_threads();  // the caller's own number is settled before others set theirs
  for (std::size_t device = 0; device < count; ++device) {
    threads_.emplace_back([this, device, intra_op_threads](const std::stop_token& stop) {
      serve(stop, device, intra_op_threads);
    });
  }
  wait();
}

DeviceThreads::~DeviceThreads() = default;

void DeviceThreads::serve(const std::stop_token& stop, std::size_t device, int intra_op_threads) {
  (void)at::get_num_threads();  // else the first use would put the default back
  at::set_num_threads(intra_op_threads);
  const std::stop_callback wake(stop, [this] {
    const MutexLock lock(mutex_);
    handed_out_.notify_all();
  });
  MutexLock lock(mutex_);
  while (true) {
    if (--at_work_ == 0) done_.notify_one();
    while (tasks_[device] == nullptr && !stop.stop_requested()) handed_out_.wait(lock);
    if (tasks_[device] == nullptr) return;
    const Task& task = *std::exchange(tasks_[device], nullptr);
    lock.unlock();
    std::exception_ptr error = thrown_by(task, device);
    lock.lock();
    errors_[device] = std::move(error);
  }
}

void DeviceThreads::hand_out(std::size_t first, std::size_t end, const Task& task) {
  const MutexLock lock(mutex_);
  for (std::size_t device = first; device < end; ++device) {
    tasks_[device] = &task;
    ++at_work_;
  }
  handed_out_.notify_all();
}

void DeviceThreads::wait() {
  MutexLock lock(mutex_);
  while (at_work_ != 0) done_.wait(lock);
}

std::vector<std::exception_ptr> DeviceThreads::run(std::size_t count,
                                                   const Task& task,
                                                   Order order) {
  std::exception_ptr of_caller;
  if (order == Order::kInTurn) {
    for (std::size_t device = 0; device < count; ++device) {
      hand_out(device, device + 1, task);
      wait();
    }
  } else {
    hand_out(order == Order::kFirstOnCaller ? 1 : 0, count, task);
    if (order == Order::kFirstOnCaller) of_caller = thrown_by(task, 0);
    wait();
  }
  const MutexLock lock(mutex_);
  std::vector<std::exception_ptr> errors(count);
  for (std::size_t i = 0; i < count; ++i) errors[i] = std::exchange(errors_[i], nullptr);
  if (of_caller) errors.front() = of_caller;
  return errors;
}

}  // namespace paceline
