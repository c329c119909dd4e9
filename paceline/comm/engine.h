// SPDX-License-Identifier: Apache-2.0
#pragma once
/// @file
/// The untyped door of comm, which other engines can implement later.

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>

#include "paceline/base/types.h"
#include "paceline/comm/work.h"

namespace paceline {

/// How long a collective may stand still before it fails.
inline constexpr std::chrono::milliseconds kDefaultTimeout = std::chrono::minutes(5);

/// A contiguous part of a logical buffer, any alignment.
struct Piece {
  std::byte* data = nullptr;
  std::size_t bytes = 0;
};

/// Pieces that make one logical buffer of `count` elements. No element lies across two pieces; cuts
/// and addresses may differ from rank to rank.
struct Buffer {
  Dtype dtype = Dtype::kF32;
  std::uint64_t count = 0;
  std::span<const Piece> pieces;
};

/// Who advances a call that has been started.
enum class Progress : std::uint8_t {
  kThread,  ///< a thread of the engine, while nobody waits
  kCaller   ///< nobody until the caller waits, as it does soon: no thread takes a core from it
};

/// What is to be done. All but `timeout`, `keeps`, `progress` and `adds`, which are each rank's
/// own, agrees on all ranks.
struct Call {
  Collective what = Collective::kAllReduce;
  ReduceOp op = ReduceOp::kSum;
  int root = 0;             ///< kBroadcast
  std::uint64_t count = 0;  ///< elements of the whole logical buffer, over all ranks
  std::string label = {};   ///< shown in errors and traffic(); part of the descriptor
  std::optional<Algorithm> algorithm = {};  ///< none: the communicator's override, else compiled in
  std::chrono::milliseconds timeout = kDefaultTimeout;
  std::shared_ptr<const void> keeps = {};  ///< lives until the call has ended: the memory's owner
  Progress progress = Progress::kThread;
  /// Adds to the output instead of replacing it: kReduceScatter by kDirect of F32 or F64, on two or
  /// more ranks. The output must not overlap the input. It may lie in memory of
  /// Communicator::share(), if nobody else uses these elements from the call's start on the last
  /// rank to its end on this one. After a CommError some elements have been added to.
  std::optional<ScaledAdd> adds = {};
};

/// Memory from Engine::allocate(); it goes back with its last copy.
struct Region {
  std::shared_ptr<std::byte> data = {};
  std::size_t bytes = 0;
};

/// Starts collectives on buffers.
class Engine {
 public:
  Engine() = default;
  Engine(const Engine&) = delete;
  Engine& operator=(const Engine&) = delete;
  virtual ~Engine() = default;

  /// Starts `call`; `in` and `out` are the same memory, piece by piece, or do not overlap.
  ///
  /// Shape   `in` and `out` hold the elements that plan::Schedule says: all-reduce both [0, count);
  ///         reduce-scatter's out and all-gather's in are chunk(rank); broadcast's in only on root.
  /// Order   Collective: every rank starts the same calls in the same order.
  /// Errors  Nothing is sent, and the call's place in the order is used up, by
  ///         UsageError for what `call` and the type say (op undefined for the type, no such root,
  ///         an algorithm that does not do this): if all ranks do the same nothing happened, else
  ///         every rank gets CommError kMismatch, at this call or at its next;
  ///         UsageError for what this rank alone decides (no positive timeout, sizes that do not
  ///         add up, overlap with another call in flight, `adds` where it cannot be): the peers get
  ///         CommError kRefused with the text.
  ///         CommError if the engine is poisoned: the cause's code at first, then kAborted.
  virtual Work start(const Call& call, Buffer in, Buffer out) = 0;

  /// Moves calls in flight as far as they go without waiting for anybody: for callers that have
  /// other work to do. Does nothing while another thread moves them. If a peer fails it stays until
  /// the cause is known, some seconds at most. Where ranks share memory it looks for peers that have
  /// gone in every 64th turn only.
  ///
  /// Errors   None: a call that fails says so when it is waited for.
  /// Threads  Any.
  virtual void advance() = 0;

  /// Memory that the links reach without a copy, if they can reach any; else ordinary memory.
  /// Aligned to 64 bytes; not cleared. Each rank's own business: nothing is sent. It outlives the
  /// engine.
  ///
  /// Errors   UsageError, which names the limit, if there is no room for it.
  /// Threads  Any.
  [[nodiscard]] virtual Region allocate(std::size_t bytes) = 0;
  /// Whether memory from allocate() saves copies: all ranks of this engine share memory.
  [[nodiscard]] virtual bool shares_memory() const noexcept = 0;

  /// Poisons the engine on every rank: all calls in flight and to come fail with `reason`.
  virtual void abort(const std::string& reason) = 0;

  /// The same for destructors: poisons this rank and closes its links, so that peers fail too.
  /// Neither sends nor waits; they hear of `reason` from a thread of the engine, if it still can.
  virtual void abandon(const std::string& reason) = 0;
};

}  // namespace paceline
