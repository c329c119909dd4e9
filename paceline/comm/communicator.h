// SPDX-License-Identifier: Apache-2.0
#pragma once
/// @file
/// The typed door of comm: collectives on spans, blocking and asynchronous.

#include <chrono>
#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <span>
#include <string>

#include "paceline/base/ledger.h"
#include "paceline/base/traffic.h"
#include "paceline/base/types.h"
#include "paceline/comm/engine.h"
#include "paceline/comm/work.h"

namespace paceline {

/// How a call is made, beyond its data.
struct CallOptions {
  std::string label = {};  ///< shown in errors and in traffic(); the same on all ranks
  std::optional<Algorithm> algorithm = {};  ///< none: algorithm_for(); the same on all ranks
  std::chrono::milliseconds timeout = kDefaultTimeout;  ///< positive; each rank's own
};

/// One rank of a group that computes together. Movable; owns its place in the group.
///
/// Destroying it never waits or sends: calls that are still in flight are aborted, and peers that
/// still need this rank get CommError.
///
/// Errors   UsageError from every member of a communicator that was moved from, and from every call
///          in a process that was forked from the one that made it: there abort() and the
///          destructor do nothing.
/// Threads  One caller at a time. Work handles may be waited for on any thread.
class Communicator {
 public:
  explicit Communicator(std::shared_ptr<Context> context) noexcept;
  Communicator(Communicator&&) noexcept;
  Communicator& operator=(Communicator&&) noexcept;
  Communicator(const Communicator&) = delete;
  Communicator& operator=(const Communicator&) = delete;
  ~Communicator();

  [[nodiscard]] int rank() const;
  [[nodiscard]] int world_size() const;
  /// What joins the ranks: "shm" (memory that processes share), "tcp", or "memory" (threads, and a
  /// world of one).
  [[nodiscard]] std::string link() const;
  /// Why processes that could have tried do not share memory ("rank 3 runs on another host …"), the
  /// same on all ranks; else empty.
  [[nodiscard]] std::string link_reason() const;

  /// Reduces `data` elementwise over all ranks, in place, and leaves the same bits on every rank.
  ///
  /// Shape     Flat [n] of T; n, T, op and label agree on all ranks. n == 0 is legal: headers only.
  /// Order     Collective: every rank calls it at the same place among this communicator's
  ///           collectives. Blocks until `data` may be read and written again.
  /// Numerics  Element e of chunk c is added in the order c+1, ..., c+N (mod N) by all algorithms
  ///           but relay, so bits depend on (N, n) only. 16-bit floats are added in F32 and rounded
  ///           once. kMean divides by N once, after the sum. NaN wins in every op.
  /// Cost      ring: 2(N-1) steps, rank r sends 2M - c[r] - c[(r+1) mod N] bytes; the others:
  ///           docs/algorithms.md.
  /// Errors    UsageError, before anything is sent, if op is kMean and T is an integer, or if the
  ///           algorithm has no all-reduce: harmless if all ranks do the same, else kMismatch on
  ///           all. UsageError too if the timeout is not positive or `data` overlaps a call in
  ///           flight: the others then get kRefused. CommError kTimeout, kPeerClosed, kMismatch,
  ///           kRefused, kAborted: `data` is then unspecified and the communicator poisoned.
  /// Source    Patarasuk, Yuan: Bandwidth optimal all-reduce algorithms for clusters of
  ///           workstations, JPDC 69(2), 117-124, 2009.
  template <Reducible T>
  void allreduce(std::span<T> data, ReduceOp op, const CallOptions& options = {}) {
    start_in_place(Collective::kAllReduce, op, 0, dtype_of<T>(), data.data(), data.size(), options,
                   Progress::kCaller)
        .wait();
  }
  template <Reducible T>
  [[nodiscard]] Work allreduce_async(std::span<T> data,
                                     ReduceOp op,
                                     const CallOptions& options = {}) {
    return start_in_place(Collective::kAllReduce, op, 0, dtype_of<T>(), data.data(), data.size(),
                          options, Progress::kThread);
  }

  /// Reduces `in` over all ranks; `out` receives this rank's shard of the result.
  ///
  /// Shape   in [n]; out [shard(n).size()], which does not overlap `in`.
  /// Errors  As allreduce; sizes that do not fit are refused like a bad timeout.
  template <Reducible T>
  void reduce_scatter(std::span<const T> in,
                      std::span<T> out,
                      ReduceOp op,
                      const CallOptions& options = {}) {
    start(Collective::kReduceScatter, op, dtype_of<T>(), in.size(), in.data(), in.size(),
          out.data(), out.size(), options, Progress::kCaller)
        .wait();
  }
  template <Reducible T>
  [[nodiscard]] Work reduce_scatter_async(std::span<const T> in,
                                          std::span<T> out,
                                          ReduceOp op,
                                          const CallOptions& options = {}) {
    return start(Collective::kReduceScatter, op, dtype_of<T>(), in.size(), in.data(), in.size(),
                 out.data(), out.size(), options, Progress::kThread);
  }

  /// Gathers each rank's shard into `out` on every rank.
  ///
  /// Shape   out [n]; in [shard(n).size()], which does not overlap `out`.
  /// Errors  As reduce_scatter.
  template <Reducible T>
  void allgather(std::span<const T> in, std::span<T> out, const CallOptions& options = {}) {
    start(Collective::kAllGather, ReduceOp::kSum, dtype_of<T>(), out.size(), in.data(), in.size(),
          out.data(), out.size(), options, Progress::kCaller)
        .wait();
  }
  template <Reducible T>
  [[nodiscard]] Work allgather_async(std::span<const T> in,
                                     std::span<T> out,
                                     const CallOptions& options = {}) {
    return start(Collective::kAllGather, ReduceOp::kSum, dtype_of<T>(), out.size(), in.data(),
                 in.size(), out.data(), out.size(), options, Progress::kThread);
  }

  /// Copies root's `data` to every rank.
  ///
  /// Errors  As allreduce; a root that is no rank counts like a bad op.
  template <Reducible T>
  void broadcast(std::span<T> data, int root, const CallOptions& options = {}) {
    start_in_place(Collective::kBroadcast, ReduceOp::kSum, root, dtype_of<T>(), data.data(),
                   data.size(), options, Progress::kCaller)
        .wait();
  }
  template <Reducible T>
  [[nodiscard]] Work broadcast_async(std::span<T> data, int root, const CallOptions& options = {}) {
    return start_in_place(Collective::kBroadcast, ReduceOp::kSum, root, dtype_of<T>(), data.data(),
                          data.size(), options, Progress::kThread);
  }

  /// Returns once every rank has come here.
  ///
  /// Cost  ceil(log2 N) header-only messages per rank.
  void barrier(const CallOptions& options = {});
  [[nodiscard]] Work barrier_async(const CallOptions& options = {});

  /// The elements of a [count] buffer that reduce_scatter leaves on this rank.
  [[nodiscard]] Range shard(std::uint64_t count) const;
  /// The same for any rank.
  [[nodiscard]] Range shard_of(int rank, std::uint64_t count) const;

  /// Memory that exists once: every rank gets its own address of the same bytes, all zero. Who
  /// writes where, and when others may read it, is the callers' business: barrier() makes what was
  /// written before it seen after it. It cannot be the buffer of a collective but on rank 0 or as
  /// the output of a call that adds to it (Call::adds). It stays as long as any rank has it or rank
  /// 0's communicator lives.
  ///
  /// Order   Collective, like a broadcast; all ranks ask for the same number of bytes.
  /// Errors  UsageError if the ranks share no memory, or, on all ranks, if rank 0 has no room for
  ///         it; as broadcast.
  [[nodiscard]] Region share(std::size_t bytes, const CallOptions& options = {});

  /// Fails every call in flight and to come, on every rank, with `reason`.
  void abort(const std::string& reason);

  /// The untyped door: buffers made of pieces. Valid as long as the communicator.
  ///
  /// Errors  UsageError in a forked process, before anything of the parent's can be touched.
  [[nodiscard]] Engine& engine();
  /// The same door for those who may outlive the communicator; its end still ends all calls.
  [[nodiscard]] std::shared_ptr<Engine> share_engine();

  /// The algorithm that a call without a choice of its own uses.
  [[nodiscard]] Algorithm algorithm_for(Collective what, Dtype dtype, std::uint64_t count) const;

  /// Payload bytes that this rank sends in one such call, in closed form; `root` is that of a
  /// broadcast and means nothing elsewhere.
  ///
  /// Errors  UsageError if the algorithm does not do this, or root is no rank.
  [[nodiscard]] std::uint64_t formula_bytes_sent(Collective what,
                                                 Dtype dtype,
                                                 std::uint64_t count,
                                                 std::optional<Algorithm> algorithm = {},
                                                 int root = 0) const;

  /// The same, and over shared memory also what this rank reads in the others' memory:
  /// Traffic::payload_bytes_moved() of one such call.
  [[nodiscard]] std::uint64_t formula_bytes_moved(Collective what,
                                                  Dtype dtype,
                                                  std::uint64_t count) const;

  /// Numbers those who share this communicator: 0, 1, 2, ... Ranks that ask in the same order get
  /// the same numbers, so labels can tell the users' calls apart. Sends nothing.
  [[nodiscard]] std::uint64_t next_user_number();

  /// What has crossed this rank's links so far, per label of the calls ("" for unlabelled ones).
  [[nodiscard]] std::map<std::string, Traffic> traffic() const;

  /// Writes down each call that is issued from now on: what it moved to and from each peer, from
  /// when to when. Starts anew, from nothing, if the ledger is on already. Each rank's own.
  ///
  /// Cost    Off: a load per call. On: two looks at the clock and an entry per peer and call.
  /// Errors  UsageError if `capacity`, the records that are kept, is 0.
  void start_ledger(std::size_t capacity = kLedgerCapacity);

  /// The calls that were issued since start_ledger() and have ended, well or badly, in the order in
  /// which they were issued; switches the ledger off. A call still in flight is in no ledger, nor
  /// is one that was refused. `copies` and `phases` are empty.
  ///
  /// Errors  UsageError if the ledger is off.
  [[nodiscard]] Ledger take_ledger();

 private:
  [[nodiscard]] Work start(Collective what,
                           ReduceOp op,
                           Dtype dtype,
                           std::uint64_t count,
                           const void* in,
                           std::size_t in_count,
                           void* out,
                           std::size_t out_count,
                           const CallOptions& options,
                           Progress progress);
  [[nodiscard]] Work start_in_place(Collective what,
                                    ReduceOp op,
                                    int root,
                                    Dtype dtype,
                                    void* data,
                                    std::size_t count,
                                    const CallOptions& options,
                                    Progress progress);

  [[nodiscard]] Context& context() const;

  std::shared_ptr<Context> context_;
};

}  // namespace paceline
