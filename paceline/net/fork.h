// SPDX-License-Identifier: Apache-2.0
#pragma once
/// @file
/// What has to be done around a fork().

namespace paceline::net {

/// From now on each fork() in this process, and in its children, first runs `before`, then
/// `in_parent` and `in_child` on both sides, on the thread that forks. They may take and release
/// locks, and must not throw. For good: nothing takes them back.
///
/// Errors   SystemError.
/// Threads  Any.
void around_fork(void (*before)(), void (*in_parent)(), void (*in_child)());

/// How many forks lie between this process and the first one that asked: a number that is another
/// one in each child. From the second time on it costs a load.
///
/// Errors   SystemError.
/// Threads  Any.
[[nodiscard]] unsigned fork_depth();

}  // namespace paceline::net
