// SPDX-License-Identifier: Apache-2.0
#pragma once
/// @file
/// The control channel: apart from the data links, each rank has one connection to the store's hub.
/// It carries causes: why a rank refuses, aborts or leaves, and who stands where when a call
/// stalls.

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "paceline/base/deadline.h"
#include "paceline/base/error.h"

namespace paceline::store {

/// Why calls fail, on every rank alike. The first one that reaches the hub wins; a later one
/// follows only if it fails calls that the first has left running (a smaller from_sequence).
struct Cause {
  CommErrc code = CommErrc::kAborted;
  int rank = -1;                    ///< who reported it
  int peer = -1;                    ///< who is to blame, -1 if nobody in particular
  std::uint64_t from_sequence = 0;  ///< calls with this sequence number or a later one fail
  std::string text{};               ///< says what happened, where, and names ranks
};

/// Where a rank stands: the call that it has issued under a sequence number.
struct Standing {
  std::uint64_t sequence = 0;  ///< the call asked about or stalled in
  std::uint64_t issued = 0;    ///< the next sequence number this rank will issue
  std::uint64_t hash = 0;      ///< descriptor hash of call `sequence`; 0 if it is not known here
  std::string text;            ///< descriptor as text, e.g. "allreduce f32[1000] sum \"bucket 0\"";
                               ///< if call `sequence` is not known here, of the last call issued
};

/// What reaches a rank from the hub.
struct Event {
  enum class Kind : std::uint8_t {
    kCause,    ///< `cause` holds for the whole job
    kAsk,      ///< answer with publish() for call `sequence`
    kDeparted  ///< `rank` has gone, for the reason in `text`; harmful only to who still needs it
  } kind = Kind::kCause;
  Cause cause{};
  std::uint64_t sequence = 0;
  int rank = -1;
  std::string text{};
};

/// One rank's end of the control channel. Destroying it closes without a word; the hub then reports
/// the rank as departed.
///
/// Threads  publish(), report() and interrupt() from any thread; next() from one thread at a time.
class Control {
 public:
  Control() = default;
  Control(const Control&) = delete;
  Control& operator=(const Control&) = delete;
  virtual ~Control() = default;

  /// Tells the hub where this rank stands, unasked when a call stalls or a peer's descriptor
  /// differs, or as the answer to kAsk. The hub compares all ranks' standings of a call: on a
  /// difference every rank gets the same kMismatch cause, which shows each variant and the ranks
  /// that hold it.
  virtual void publish(const Standing& standing) noexcept = 0;

  /// Reports a cause. For kTimeout the hub first asks all ranks where they stand and names in the
  /// text those that have not come to `cause.from_sequence`, or do not answer.
  virtual void report(const Cause& cause) noexcept = 0;

  /// Waits for the next event; nothing when the deadline passed or interrupt() was called. If the
  /// hub itself is lost, gives one kCause (kPeerClosed) that says so, then nothing more.
  [[nodiscard]] virtual std::optional<Event> next(Deadline deadline) = 0;

  /// Makes the current or the next next() return.
  virtual void interrupt() noexcept = 0;
};

/// Controls of ranks that are threads of one process, joined by a hub in memory.
[[nodiscard]] std::vector<std::unique_ptr<Control>> make_memory_controls(int world);

}  // namespace paceline::store
