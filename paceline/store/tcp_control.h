// SPDX-License-Identifier: Apache-2.0
#pragma once
/// @file
/// A rank's end of the control channel over a socket. Says that it is alive inside next(), so the
/// owner calls next() again and again with deadlines of a second or less.

#include <chrono>
#include <deque>
#include <memory>
#include <string>

#include "paceline/store/channel.h"
#include "paceline/store/control.h"

namespace paceline::store {

inline constexpr std::chrono::milliseconds kTickInterval{1000};

/// `channel` has met the hub; `early` are events that it sent meanwhile. `store` names it in
/// errors. Inside next() the hub hears of this rank every `tick_interval`.
[[nodiscard]] std::unique_ptr<Control> make_tcp_control(
    Channel channel,
    std::deque<Event> early,
    const std::string& store,
    std::chrono::milliseconds tick_interval = kTickInterval);

}  // namespace paceline::store
