// SPDX-License-Identifier: Apache-2.0
#pragma once
/// @file
/// A rank's way to the store: one connection, on which both ends have proved that they belong to
/// the job. What they say to each other then is join.cpp's.

#include <string>

#include "paceline/base/deadline.h"
#include "paceline/base/error.h"
#include "paceline/store/channel.h"
#include "paceline/store/join.h"

namespace paceline::store {

/// Whether the store is on this host, at an abstract UNIX socket.
[[nodiscard]] bool is_local(const JoinOptions& options);

/// "node7:29500", "@name".
[[nodiscard]] std::string name_of_store(const JoinOptions& options);

/// Why a rank does not get into its job. Its number goes before `text`.
[[nodiscard]] CommError join_error(const JoinOptions& options,
                                   CommErrc code,
                                   int peer,
                                   const std::string& text);

/// Dials again and again, until the store lets this rank in.
///
/// Errors  CommError kConnectFailed if nobody answers before `deadline`, or something else than a
///         store does; kRefused if one end does not accept the other.
[[nodiscard]] Channel dial_store(const JoinOptions& options, Deadline deadline);

}  // namespace paceline::store
