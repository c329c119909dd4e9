// SPDX-License-Identifier: Apache-2.0
#pragma once
/// @file
/// The engine over links: one per process and communicator. Joins the plan, the links and the
/// control channel, and decides who advances what.

#include <atomic>
#include <cstdint>
#include <exception>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include "paceline/base/ledger_book.h"
#include "paceline/base/mutex.h"
#include "paceline/base/traffic.h"
#include "paceline/comm/call_state.h"
#include "paceline/comm/engine.h"
#include "paceline/comm/executor.h"
#include "paceline/comm/home_process.h"
#include "paceline/comm/issued_calls.h"
#include "paceline/link/link.h"
#include "paceline/store/control.h"
#include "paceline/store/join.h"

namespace paceline {

/// A rank's place in a job, as rendezvous or make_local_ranks() made it. At world 1 there is
/// neither fabric nor control.
struct ContextOptions {
  int rank = 0;
  int world = 1;
  std::uint32_t generation = 0;
  std::unique_ptr<link::Fabric> fabric = {};
  std::string link_reason = {};  ///< why the fabric is no shared memory; empty if nobody asked
  std::unique_ptr<store::Control> control = {};
  std::unique_ptr<store::Server> server = {};  ///< if this rank serves the meeting place
  std::optional<int> store_rank = {};          ///< the rank that serves it, if one does
  std::optional<Algorithm> algorithm = {};
  std::size_t segment_bytes = 512 << 10;
};

/// Calls are advanced by whoever waits for one; the progress thread advances what nobody waits for.
/// At any time at most one thread, the driver, owns the executor and the links; the role is handed
/// over under `mutex_`. A second thread only listens to the control channel.
///
/// Threads  Any, but one caller of start() at a time.
class Context final : public Engine, public std::enable_shared_from_this<Context> {
 public:
  explicit Context(ContextOptions options);
  ~Context() override;

  Work start(const Call& call, Buffer in, Buffer out) override;
  void advance() override;
  Region allocate(std::size_t bytes) override;
  [[nodiscard]] bool shares_memory() const noexcept override;
  /// Where memory from allocate() lies in this rank's segment.
  [[nodiscard]] std::uint64_t offset_of(const Region& region) const;
  /// What rank 0, which has `own`, offers at `offset` of its segment.
  [[nodiscard]] Region shared_region(Region own, std::uint64_t offset, std::size_t bytes);
  void abort(const std::string& reason) override;
  void abandon(const std::string& reason) override;

  void wait(CallState& call);
  void require_not_forked() const;

  /// Fails what is in flight and closes the links. Idempotent; never waits for a peer. In a child
  /// of the process that made it: keeps all of it for good, as the links are the parent's.
  void shut_down();

  [[nodiscard]] int rank() const noexcept { return rank_; }
  [[nodiscard]] int world() const noexcept { return world_; }
  [[nodiscard]] std::string link() const { return fabric_ ? fabric_->name() : "memory"; }
  [[nodiscard]] const std::string& link_reason() const noexcept { return link_reason_; }
  [[nodiscard]] Algorithm algorithm_for(Collective what,
                                        Dtype dtype,
                                        std::uint64_t count) const noexcept;
  [[nodiscard]] std::map<std::string, Traffic> traffic() const;
  void start_ledger(std::size_t capacity);
  [[nodiscard]] Ledger take_ledger();
  [[nodiscard]] std::uint64_t next_user_number() noexcept { return user_number_++; }
  /// What joins the ranks; null at world 1. For `paceline bench`, which measures what lies below.
  [[nodiscard]] link::Fabric* fabric() const noexcept { return fabric_.get(); }

 private:
  using CallPtr = std::shared_ptr<CallState>;
  struct Departure {
    std::string how;
    std::uint64_t bytes = 0;  // that had come from the rank when the driver last looked
    std::optional<Clock::time_point> quiet_since = {};
  };

  struct Planned {
    Algorithm algorithm = Algorithm::kTree;
    plan::Shape shape;
    plan::Schedule schedule;
  };

  // context_calls.cpp: how a call begins
  [[nodiscard]] Descriptor describe(const Call& call, const Buffer& in) const;
  [[nodiscard]] CallPtr issue(const Call& call, const Buffer& in, const Buffer& out);
  [[noreturn]] void refuse(const Descriptor& descriptor,
                           std::uint64_t sequence,
                           const std::string& why,
                           const std::exception_ptr& broken);
  [[nodiscard]] CallPtr build(const Call& call,
                              const Descriptor& descriptor,
                              CallId id,
                              const Buffer& in,
                              const Buffer& out) PACELINE_REQUIRES(mutex_);
  [[nodiscard]] const plan::Schedule& schedule_for(Algorithm algorithm, const plan::Shape& shape)
      PACELINE_REQUIRES(mutex_);
  [[nodiscard]] plan::Shape shape_of(const Descriptor& descriptor,
                                     const Buffer& in,
                                     const Buffer& out) const;
  void check_windows(const PieceList& pieces, int first_peer) const;
  void throw_if_closed(const Descriptor& descriptor) PACELINE_REQUIRES(mutex_);

  // context_driver.cpp: the driver's side, without the lock
  /// Whether a driver that cannot move anything rests until it can, or gives up its role.
  enum class Patience : std::uint8_t { kWaits, kNone };
  [[nodiscard]] std::exception_ptr drive_with_role(MutexLock& lock,
                                                   const CallState* target,
                                                   Patience patience)
      PACELINE_REQUIRES(mutex_) PACELINE_NO_THREAD_SAFETY_ANALYSIS;
  void drive(const CallState* target, Patience patience);
  void excuse_absence();
  void progress();
  [[nodiscard]] bool progress_needed() const PACELINE_REQUIRES(mutex_);
  void take_intake();
  [[nodiscard]] bool drive_once(const CallState* target, Patience patience);
  void on_failure(std::exception_ptr error);
  void retire(const std::vector<CallPtr>& calls);
  [[nodiscard]] Executor::Reach next_reach();
  void rest(Executor::Reach reach);
  [[nodiscard]] Deadline look_at_stalls(Clock::time_point now);
  [[nodiscard]] Clock::time_point look_at_departures(Clock::time_point now);

  // context_failure.cpp
  void listen();
  void report_unsaid();
  void handle(const store::Event& event);
  void on_hub_lost(store::Cause cause);
  void poison(store::Cause cause) PACELINE_EXCLUDES(mutex_);
  [[nodiscard]] bool nothing_owed() const PACELINE_REQUIRES(mutex_);
  void obey_cause();
  void on_departed(int peer, const std::string& how);
  void on_peer_lost(int peer, const std::string& how);
  void on_descriptor_differs(int peer, std::uint64_t sequence);
  void on_timeout(const CallState& call);
  void adopt_cause();
  [[nodiscard]] std::string why_gone(int peer, const std::string& how) const;
  [[nodiscard]] bool blames_a_rank() const PACELINE_REQUIRES(mutex_);
  void fail_all(CommErrc code, int peer, const std::string& text);
  /// Waits until a cause is known that blames a rank and ends call `covering`, or until none can
  /// come any more, or `peer` has departed.
  /// @return whether such a cause is known.
  bool await_cause(std::chrono::milliseconds limit, std::uint64_t covering, int peer = -1);
  void report(const store::Cause& cause);
  [[nodiscard]] std::string name_of_call(const CallState& call) const;

  /// Whether this is a child of the process that made it, to which links and threads do not belong.
  [[nodiscard]] bool forked() const { return world_ > 1 && !home_.is_here(); }

  const HomeProcess home_;
  const int rank_;
  const int world_;
  const std::optional<int> store_rank_;
  const std::optional<Algorithm> algorithm_;
  const std::unique_ptr<link::Fabric> fabric_;
  const std::string link_reason_;
  link::Windows* const windows_;  // of the fabric; null where ranks share no memory
  const std::unique_ptr<store::Server> server_;
  std::unique_ptr<store::Control> control_;  // until shut_down()
  IssuedCalls issued_;
  Clock::duration spin_{};
  bool crowded_ = false;  // more ranks than cores

  // the driver's
  Executor executor_;
  std::vector<CallPtr> taken_;  // from the intake, not in the executor yet
  unsigned turns_ = 0;
  unsigned busy_turns_ = 0;
  unsigned idle_turns_ = 0;
  bool links_next_ = false;   // the next turn looks at links, too
  Clock::time_point left_{};  // when the last driver that waits gave up its role
  bool idle_ = false;         // nothing has moved since idle_since_
  Clock::time_point idle_since_{};

  // flags that the driver polls without the lock
  std::atomic<bool> intake_pending_ = false;
  std::atomic<bool> cause_pending_ = false;
  std::atomic<bool> somebody_departed_ = false;
  std::atomic<int> waiting_ = 0;

  std::atomic<std::uint64_t> user_number_ = 0;
  std::vector<Region> shared_ PACELINE_GUARDED_BY(mutex_);  // rank 0's, while others may use them
  LedgerBook ledger_;

  mutable Mutex mutex_;
  ConditionVariable changed_;  // a call finished, the role is free, a cause came
  ConditionVariable work_;     // for the progress thread
  bool driving_ PACELINE_GUARDED_BY(mutex_) = false;
  bool stopped_ PACELINE_GUARDED_BY(mutex_) = false;
  bool progress_wanted_ PACELINE_GUARDED_BY(mutex_) = false;
  std::vector<CallPtr> intake_ PACELINE_GUARDED_BY(mutex_);
  std::optional<Planned> planned_ PACELINE_GUARDED_BY(mutex_);  // last: the next is often the same
  std::vector<CallPtr> open_ PACELINE_GUARDED_BY(mutex_);       // issued and not finished
  std::optional<store::Cause> cause_ PACELINE_GUARDED_BY(mutex_);
  std::optional<store::Cause> unsaid_ PACELINE_GUARDED_BY(mutex_);  // for the listener to report
  bool told_ PACELINE_GUARDED_BY(mutex_) = false;                   // the caller has met the cause
  bool hub_lost_ PACELINE_GUARDED_BY(mutex_) = false;
  std::map<int, Departure> departed_ PACELINE_GUARDED_BY(mutex_);
  std::map<std::string, Traffic> traffic_ PACELINE_GUARDED_BY(mutex_);
  std::uint64_t first_recorded_ PACELINE_GUARDED_BY(mutex_) = 0;  // call that the ledger may hold

  std::jthread progress_thread_;
  std::jthread listener_;
};

}  // namespace paceline
