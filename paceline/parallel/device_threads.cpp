// SPDX-License-Identifier: Apache-2.0
#include "paceline/parallel/device_threads.h"

#include <latch>
#include <stop_token>
#include <string>
#include <system_error>
#include <thread>
#include <utility>

#include <ATen/Parallel.h>

#include "paceline/base/error.h"
#include "paceline/base/mutex.h"

namespace paceline {
namespace {

// at::set_num_threads() also sets what threads get that are started later. One of those sees what
// that was before, and puts it back: a second one might be refused by then.
class KeepDefaultThreads {
 public:
  KeepDefaultThreads()
      : thread_([this] {
          const int before = at::get_num_threads();
          seen_.count_down();
          over_.wait();
          at::set_num_threads(before);
        }) {
    seen_.wait();
  }
  ~KeepDefaultThreads() { over_.count_down(); }
  KeepDefaultThreads(const KeepDefaultThreads&) = delete;
  KeepDefaultThreads& operator=(const KeepDefaultThreads&) = delete;

 private:
  std::latch seen_{1}, over_{1};
  std::jthread thread_;
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

/// The threads and all that they wait on, in one piece that a forked child can leave as it is.
///
/// Threads  One caller at a time. Ends its threads when it is destroyed.
class DeviceThreads::Team {
 public:
  explicit Team(std::size_t count)
      : at_work_(count), tasks_(count), errors_(count), count_(count) {}

  /// All of them; a refusal leaves those that have been made.
  void start(int intra_op_threads);
  [[nodiscard]] std::size_t started() const noexcept { return threads_.size(); }
  [[nodiscard]] std::vector<std::exception_ptr> run(std::size_t count,
                                                    const Task& task,
                                                    Order order);

 private:
  void serve(const std::stop_token& stop, std::size_t device, int intra_op_threads);
  void hand_out(std::size_t first, std::size_t end, const Task& task);
  void forget(std::size_t threads);
  void wait();

  Mutex mutex_;
  ConditionVariable handed_out_;
  ConditionVariable done_;
  std::size_t at_work_ PACELINE_GUARDED_BY(mutex_);  // threads that start up or have a task
  std::vector<const Task*> tasks_ PACELINE_GUARDED_BY(mutex_);  // by device; null once it is taken
  std::vector<std::exception_ptr> errors_ PACELINE_GUARDED_BY(mutex_);
  const std::size_t count_;
  std::vector<std::jthread> threads_;
};

void DeviceThreads::Team::start(int intra_op_threads) {
  static Mutex one_at_a_time;  // else one would keep what another has set meanwhile
  const MutexLock lock(one_at_a_time);
  const KeepDefaultThreads keep;
  (void)at::get_num_threads();  // the caller's own number is settled before others set theirs
  try {
    for (std::size_t device = 0; device < count_; ++device) {
      threads_.emplace_back([this, device, intra_op_threads](const std::stop_token& stop) {
        serve(stop, device, intra_op_threads);
      });
    }
  } catch (const std::system_error&) {
    forget(count_ - threads_.size());
    wait();  // else they would set their number after that of others is put back
    throw;
  }
  wait();
}

void DeviceThreads::Team::serve(const std::stop_token& stop,
                                std::size_t device,
                                int intra_op_threads) {
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

void DeviceThreads::Team::hand_out(std::size_t first, std::size_t end, const Task& task) {
  const MutexLock lock(mutex_);
  for (std::size_t device = first; device < end; ++device) {
    tasks_[device] = &task;
    ++at_work_;
  }
  handed_out_.notify_all();
}

// That will never start.
void DeviceThreads::Team::forget(std::size_t threads) {
  const MutexLock lock(mutex_);
  at_work_ -= threads;
}

void DeviceThreads::Team::wait() {
  MutexLock lock(mutex_);
  while (at_work_ != 0) done_.wait(lock);
}

std::vector<std::exception_ptr> DeviceThreads::Team::run(std::size_t count,
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

DeviceThreads::DeviceThreads(std::size_t count, int intra_op_threads)
    : team_(std::make_unique<Team>(count)) {
  try {
    team_->start(intra_op_threads);
  } catch (const std::system_error& error) {
    throw UsageError("DataParallel: the system refuses thread " +
                     std::to_string(team_->started() + 1) + " of " + std::to_string(count) +
                     ", one for each device, and one more while they start (" +
                     error.code().message() +
                     "); raise the limit of threads (ulimit -u, or pids.max of the container), or "
                     "name fewer devices");
  }
}

// To join threads that are not there, or to destroy what they wait on, would never end.
DeviceThreads::~DeviceThreads() {
  if (!home_.is_here()) static_cast<void>(team_.release());
}

std::vector<std::exception_ptr> DeviceThreads::run(std::size_t count,
                                                   const Task& task,
                                                   Order order) {
  if (!home_.is_here()) {
    throw UsageError(
        "DataParallel: this process was forked from the one that made the wrapper, and has none of "
        "its threads; use it there, or make it after the fork");
  }
  return team_->run(count, task, order);
}

}  // namespace paceline
