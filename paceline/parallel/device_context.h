// SPDX-License-Identifier: Apache-2.0
#pragma once
/// @file
/// What a device's thread takes over from the thread that calls DataParallel.

#include <optional>
#include <vector>

#include <ATen/ThreadLocalState.h>
#include <c10/core/Device.h>
#include <c10/core/DeviceGuard.h>
#include <c10/core/Stream.h>
#include <c10/core/StreamGuard.h>

namespace paceline {

/// How many devices of this type there are; 1 for the CPU, 0 for one that LibTorch lacks here.
[[nodiscard]] int count_of_devices(c10::DeviceType type);

/// The current stream of each device; none for the CPU, which has no streams.
[[nodiscard]] std::vector<c10::Stream> current_streams(const std::vector<c10::Device>& devices);

/// Makes `streams` current, and then `device`, for a scope.
class StreamScope {
 public:
  StreamScope(const std::vector<c10::Stream>& streams, const c10::Device& device);

 private:
  std::optional<c10::MultiStreamGuard> streams_;
  std::optional<c10::DeviceGuard> device_;
};

/// Grad mode, inference mode, autocast and the like, as they are on the thread that makes this, and
/// streams: for a scope on another thread.
struct CallerContext {
  at::ThreadLocalState state;
  std::vector<c10::Stream> streams;

  class Scope {
   public:
    Scope(const CallerContext& caller, const c10::Device& device)
        : state_(caller.state), streams_(caller.streams, device) {}

   private:
    at::ThreadLocalStateGuard state_;
    StreamScope streams_;
  };
};

}  // namespace paceline
