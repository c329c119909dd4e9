// SPDX-License-Identifier: Apache-2.0
#pragma once
/// @file
/// One thread for each device of DataParallel.

#include <cstddef>
#include <exception>
#include <functional>
#include <stop_token>
#include <thread>
#include <vector>

#include "paceline/base/mutex.h"

namespace paceline {

/// Threads that wait for work. None of them is LibTorch's or OpenMP's.
///
/// Threads  One caller at a time. Ends its threads when it is destroyed.
class DeviceThreads {
 public:
  using Task = std::function<void(std::size_t device)>;
  enum class Order {
    kTogether,
    kInTurn,
    kFirstOnCaller  ///< together, device 0's on the calling thread
  };

  /// On each thread, LibTorch's operators use `intra_op_threads` threads. Other threads keep what
  /// they have, also those that are started later.
  DeviceThreads(std::size_t count, int intra_op_threads);
  ~DeviceThreads();
  DeviceThreads(const DeviceThreads&) = delete;
  DeviceThreads& operator=(const DeviceThreads&) = delete;

  /// Runs task(0) … task(count - 1), each on its device's thread, and waits for all of them.
  ///
  /// @return  What each has thrown; null where nothing was.
  [[nodiscard]] std::vector<std::exception_ptr> run(std::size_t count,
                                                    const Task& task,
                                                    Order order);

 private:
  void serve(const std::stop_token& stop, std::size_t device, int intra_op_threads);
  void hand_out(std::size_t first, std::size_t end, const Task& task);
  void wait();

  Mutex mutex_;
  ConditionVariable handed_out_;
  ConditionVariable done_;
  std::size_t at_work_ PACELINE_GUARDED_BY(mutex_);  // threads that start up or have a task
  std::vector<const Task*> tasks_ PACELINE_GUARDED_BY(mutex_);  // by device; null once it is taken
  std::vector<std::exception_ptr> errors_ PACELINE_GUARDED_BY(mutex_);
  std::vector<std::jthread> threads_;
};

}  // namespace paceline
