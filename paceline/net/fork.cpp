// SPDX-License-Identifier: Apache-2.0
#include "paceline/net/fork.h"

#include <pthread.h>

#include "paceline/net/system_error.h"

namespace paceline::net {

void around_fork(void (*before)(), void (*in_parent)(), void (*in_child)()) {
  const int code = ::pthread_atfork(before, in_parent, in_child);
  if (code != 0) throw SystemError(code, "asking to be told of forks");
}

}  // namespace paceline::net
