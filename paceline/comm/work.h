// SPDX-License-Identifier: Apache-2.0
#pragma once
/// @file
/// The handle of a collective in flight.

#include <memory>

namespace paceline {

class Context;
struct CallState;

/// A collective that was started. Cheap to copy. It keeps the engine alive, not the caller's
/// buffers: those must stay untouched until the call is done.
///
/// Threads  wait() and done() from any thread.
class [[nodiscard]] Work {
 public:
  Work() = default;  ///< done from the start
  Work(std::shared_ptr<Context> context, std::shared_ptr<CallState> call) noexcept;

  /// Blocks until the call is done; whoever waits advances it.
  ///
  /// Errors  The call's CommError, each time it is called.
  void wait();

  /// Whether the call has ended, well or badly. Never blocks.
  [[nodiscard]] bool done() const;

 private:
  std::shared_ptr<Context> context_;
  std::shared_ptr<CallState> call_;
};

}  // namespace paceline
