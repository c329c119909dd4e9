// SPDX-License-Identifier: Apache-2.0
#pragma once
/// @file
/// One thread for each device of DataParallel.

#include <cstddef>
#include <exception>
#include <functional>
#include <memory>
#include <vector>

#include "paceline/comm/home_process.h"

namespace paceline {

/// Threads that wait for work. None of them is LibTorch's or OpenMP's.
///
/// Threads  One caller at a time. Ends its threads when it is destroyed where it was made.
class DeviceThreads {
 public:
  using Task = std::function<void(std::size_t device)>;
  enum class Order {
    kTogether,
    kInTurn,
    kFirstOnCaller  ///< together, device 0's on the calling thread
  };

  /// On each thread, LibTorch's operators use `intra_op_threads` threads. Other threads keep what
  /// they have, also those that are started later, but for those that start while this is made.
  ///
  /// Errors  UsageError if the system refuses a thread.
  DeviceThreads(std::size_t count, int intra_op_threads);
  ~DeviceThreads();
  DeviceThreads(const DeviceThreads&) = delete;
  DeviceThreads& operator=(const DeviceThreads&) = delete;

  /// Runs task(0) … task(count - 1), each on its device's thread, and waits for all of them.
  ///
  /// @return  What each has thrown; null where nothing was.
  /// Errors   UsageError in a process that was forked from the one that made this.
  [[nodiscard]] std::vector<std::exception_ptr> run(std::size_t count,
                                                    const Task& task,
                                                    Order order);

 private:
  class Team;

  const HomeProcess home_;
  std::unique_ptr<Team> team_;  // abandoned in a forked child, which has none of its threads
};

}  // namespace paceline
