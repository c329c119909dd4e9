// SPDX-License-Identifier: Apache-2.0
#pragma once
/// @file
/// What a person sees while the ranks train and test: one live line, or a plain line now and then.

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <iosfwd>
#include <string>

namespace example {

/// What will be done, known before the first step.
struct Course {
  std::int64_t epochs = 1;
  std::int64_t steps_per_epoch = 1;
  std::int64_t steps = 1;  ///< of all epochs, cut by --max-steps
};

/// How far it has come.
struct Standing {
  std::int64_t steps = 0;     ///< done
  double loss = 0;            ///< of the last step, the mean over all ranks
  std::uint64_t samples = 0;  ///< used by all ranks together
  std::chrono::duration<double> elapsed{0};
};

/// "epoch 1/2  step 188/1876  loss 0.6183  512 samples/s  ETA 3:27"
[[nodiscard]] std::string progress_text(const Course& course, const Standing& standing);

/// What will be tested.
struct TestCourse {
  std::uint64_t images = 0;  ///< by all ranks together
  std::int64_t batches = 1;  ///< by this rank
};

/// "test of 10,000 images  batch 12/25  ETA 0:03"
[[nodiscard]] std::string test_text(const TestCourse& course,
                                    std::int64_t batches,
                                    std::chrono::duration<double> elapsed);

/// Whether a person watches standard output, directly or through `paceline run`.
[[nodiscard]] bool is_watched();

enum class ProgressStyle : std::uint8_t {
  kNone,  ///< ranks other than 0
  kLive,  ///< one line that is written over and over, at most ten times a second
  kPlain  ///< ten lines of training, one of testing
};

/// Threads  One at a time.
class Progress {
 public:
  Progress(ProgressStyle style, std::ostream& out) : style_(style), out_(out) {}

  void begin(const Course& course) { course_ = course; }
  void step(const Standing& standing);

  void begin_test(const TestCourse& course);
  /// This rank has tested so many batches.
  void test(std::int64_t batches, std::chrono::duration<double> elapsed);

 private:
  void live(const std::string& text, std::chrono::duration<double> elapsed, bool last);

  const ProgressStyle style_;
  std::ostream& out_;
  Course course_;
  TestCourse test_course_;
  std::chrono::duration<double> shown_at_{-1};
  std::size_t shown_width_ = 0;
};

}  // namespace example
