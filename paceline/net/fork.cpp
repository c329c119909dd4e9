// SPDX-License-Identifier: Apache-2.0
#include "paceline/net/fork.h"

#include <pthread.h>

#include <atomic>

#include "paceline/net/system_error.h"

namespace paceline::net {

void around_fork(void (*before)(), void (*in_parent)(), void (*in_child)()) {
  const int code = ::pthread_atfork(before, in_parent, in_child);
  if (code != 0) throw SystemError(code, "asking to be told of forks");
}

unsigned fork_depth() {
  static std::atomic<unsigned> depth = 0;
  [[maybe_unused]] static const bool told = [] {
    around_fork(nullptr, nullptr, [] { depth.fetch_add(1, std::memory_order_relaxed); });
    return true;
  }();
  return depth.load(std::memory_order_relaxed);
}

}  // namespace paceline::net
