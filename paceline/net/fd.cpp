// SPDX-License-Identifier: Apache-2.0
#include "paceline/net/fd.h"

#include <unistd.h>

namespace paceline::net {
void Fd::reset() noexcept {
  if (raw_ >= 0) ::close(std::exchange(raw_, -1));
}
}  // namespace paceline::net
