// SPDX-License-Identifier: Apache-2.0
#include "paceline/base/error.h"

namespace paceline {
CommError::CommError(CommErrc code, int rank, int peer, const std::string& what)
    : std::runtime_error(what), code_(code), rank_(rank), peer_(peer) {}
}  // namespace paceline
