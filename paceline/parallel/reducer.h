// SPDX-License-Identifier: Apache-2.0
#pragma once
/// @file
/// Averages gradients over all ranks while backward runs.

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "paceline/comm/communicator.h"
#include "paceline/parallel/bucket.h"
#include "paceline/parallel/bucket_assignment.h"
#include "paceline/parallel/distributed_data_parallel.h"
#include "paceline/parallel/gradient_arena.h"
#include "paceline/parallel/phase_log.h"

namespace paceline {

/// Who advances buckets. They leave as soon as they are complete.
enum class Driver : std::uint8_t {
  kByThread,  ///< one of the engine, while backward goes on
  kByHooks  ///< the thread of backward: at each gradient what the other ranks are ready for, and at
            ///< the end the rest
};

struct ReducerOptions {
  BucketCaps caps = {};
  std::chrono::milliseconds timeout = kDefaultTimeout;
  Gradients gradients = Gradients::kAuto;
  /// None: by hooks if ranks share memory. They share the cores too, and a thread would take them
  /// from backward.
  std::optional<Driver> driver = {};
};

/// Hooks the parameters' gradients, puts each into its bucket, starts buckets strictly in order as
/// they are complete, and waits for them at the end of the outermost backward.
///
/// With one rank it leaves gradients alone, and only watches.
///
/// Threads  Runs on the threads that run backward, one at a time. Must not outlive `comm`.
class Reducer : public std::enable_shared_from_this<Reducer> {
 public:
  /// `name` starts the labels of its calls; nobody else on `comm` has it.
  [[nodiscard]] static std::shared_ptr<Reducer> make(std::string name,
                                                     std::vector<NamedTensor> parameters,
                                                     Communicator& comm,
                                                     const ReducerOptions& options);
  Reducer(std::string name,
          std::vector<NamedTensor> parameters,
          Communicator& comm,
          const ReducerOptions& options);
  Reducer(const Reducer&) = delete;
  Reducer& operator=(const Reducer&) = delete;
  ~Reducer();

  /// Lets the backward that starts at `output` be recognised as the outermost one.
  void watch(const at::Tensor& output);

  void expect_backwards(int count);

  /// Throws if the last backward left a step half done.
  void require_settled();

  // reducer_report.cpp
  [[nodiscard]] std::vector<BucketInfo> buckets() const;
  [[nodiscard]] DdpStatistics statistics() const;
  [[nodiscard]] GradientStats stats() const;
  /// The reducer writes down backward and wait.
  [[nodiscard]] PhaseLog& phases() noexcept { return phases_; }

 private:
  struct Entry {
    std::shared_ptr<void> hook;
    std::size_t bucket = 0;
    std::size_t slot = 0;
    std::uint64_t last_backward = 0;  // number of the backward in which a gradient came last
    bool has_gradient = false;        // in this step
    bool arrived = false;             // in the last backward of this step
    bool ready = false;               // its bucket holds the gradient of this step
  };

  [[nodiscard]] std::string label_of(std::size_t bucket) const;
  void lay_out(const BucketLayout& layout);
  void attach();
  void enter_backward(bool outermost);
  void leave_backward(int backward);
  void on_gradient(std::size_t index, const at::Tensor& passing);
  [[nodiscard]] bool may_leave_now() const;
  void note_arrival(std::size_t index);
  void make_ready(std::size_t index, const at::Tensor& passing);
  void require_usable(std::size_t index);
  void put_into_bucket(std::size_t index, const at::Tensor& passing);
  void count(std::size_t index, CopyReason reason);
  void start_complete_buckets();
  void end_backward();
  void require_all_gradients();
  void finish_step();
  void rebuild(std::vector<std::int64_t> order);
  void reset_step();
  void stop_serving() noexcept;
  void give_up() noexcept;
  [[noreturn]] void fail(const std::string& what);
  template <typename F>
  void guarded(F&& step);

  const std::string name_;
  Communicator& comm_;
  const std::shared_ptr<Engine> engine_;  // the destructor cannot know whether comm_ still is there
  const BucketCaps caps_;
  const std::chrono::milliseconds timeout_;
  const Driver driver_;
  const bool alone_;  // the only rank
  const std::vector<NamedTensor> parameters_;
  std::vector<GradientShape> shapes_;
  std::vector<Entry> entries_;
  std::unique_ptr<GradientArena> arena_;  // none: every gradient is copied
  BucketLayout layout_;
  std::vector<Bucket> buckets_;
  std::vector<std::size_t> missing_in_;  // per bucket: gradients that it still waits for
  std::size_t next_start_ = 0;
  std::vector<std::size_t> arrival_;  // order in which gradients came in the first step
  bool rebuilt_ = false;

  std::vector<int> running_;      // backwards that will tell us their end
  bool from_outside_ = false;     // the first of them is known to be within no other one
  std::uint64_t backward_ = 1;    // number of this backward
  std::size_t arrived_ = 0;       // parameters with a gradient in this backward
  int backwards_done_ = 0;        // in this step
  int expected_backwards_ = 1;    // in this step
  std::size_t most_buckets_ = 0;  // of all layouts so far
  bool ending_ = false;
  DdpStatistics statistics_;
  GradientStats stats_;
  GradientBytes step_bytes_;  // of the step under way
  PhaseLog phases_;
};

}  // namespace paceline
