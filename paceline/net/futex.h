// SPDX-License-Identifier: Apache-2.0
#pragma once
/// @file
/// Sleeping on a word of memory. std::atomic::wait has no deadline and does not cross processes.

#include <atomic>
#include <cstdint>

#include "paceline/base/deadline.h"

namespace paceline::net {

/// Who may wait on the word: threads of this process, or any process that maps it.
enum class FutexScope { kPrivate, kShared };

/// Sleeps while `word` holds `expected`, until a wake or the deadline; may return early.
/// @return false if the deadline passed.
bool futex_wait(const std::atomic<std::uint32_t>& word,
                std::uint32_t expected,
                Deadline deadline,
                FutexScope scope = FutexScope::kPrivate);

/// Wakes all that sleep on `word`. Change the word first.
void futex_wake_all(std::atomic<std::uint32_t>& word,
                    FutexScope scope = FutexScope::kPrivate) noexcept;

}  // namespace paceline::net
