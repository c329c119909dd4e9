// SPDX-License-Identifier: Apache-2.0
#pragma once
/// @file
/// std::mutex with clang's thread-safety annotations, which libstdc++'s own does not carry.

#include <condition_variable>
#include <mutex>

#if defined(__clang__)
#define PACELINE_THREAD_ATTRIBUTE(x) __attribute__((x))
#else
#define PACELINE_THREAD_ATTRIBUTE(x)
#endif
#define PACELINE_GUARDED_BY(x) PACELINE_THREAD_ATTRIBUTE(guarded_by(x))
#define PACELINE_REQUIRES(...) PACELINE_THREAD_ATTRIBUTE(requires_capability(__VA_ARGS__))
#define PACELINE_NO_THREAD_SAFETY_ANALYSIS PACELINE_THREAD_ATTRIBUTE(no_thread_safety_analysis)
#define PACELINE_EXCLUDES(...) PACELINE_THREAD_ATTRIBUTE(locks_excluded(__VA_ARGS__))

namespace paceline {

class PACELINE_THREAD_ATTRIBUTE(capability("mutex")) Mutex {
 public:
  void lock() PACELINE_THREAD_ATTRIBUTE(acquire_capability()) { mutex_.lock(); }
  void unlock() PACELINE_THREAD_ATTRIBUTE(release_capability()) { mutex_.unlock(); }

 private:
  std::mutex mutex_;
};

/// Holds a Mutex for a scope. BasicLockable, so ConditionVariable can wait on it.
class PACELINE_THREAD_ATTRIBUTE(scoped_lockable) MutexLock {
 public:
  explicit MutexLock(Mutex& mutex) PACELINE_THREAD_ATTRIBUTE(acquire_capability(mutex))
      : mutex_(mutex) {
    mutex_.lock();
  }
  ~MutexLock() PACELINE_THREAD_ATTRIBUTE(release_capability()) {
    if (held_) mutex_.unlock();
  }
  MutexLock(const MutexLock&) = delete;
  MutexLock& operator=(const MutexLock&) = delete;
  void lock() PACELINE_THREAD_ATTRIBUTE(acquire_capability()) {
    mutex_.lock();
    held_ = true;
  }
  void unlock() PACELINE_THREAD_ATTRIBUTE(release_capability()) {
    held_ = false;
    mutex_.unlock();
  }

 private:
  Mutex& mutex_;
  bool held_ = true;
};

using ConditionVariable = std::condition_variable_any;

}  // namespace paceline
