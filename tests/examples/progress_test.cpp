// SPDX-License-Identifier: Apache-2.0
#include "progress.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <sstream>

namespace example::tests {
namespace {

constexpr Course kCourse{.epochs = 2, .steps_per_epoch = 938, .steps = 1876};

Standing after(std::int64_t steps, double seconds) {
  return {.steps = steps,
          .loss = 0.5,
          .samples = static_cast<std::uint64_t>(steps) * 64,
          .elapsed = std::chrono::duration<double>(seconds)};
}

/// Everything that is shown while all steps are made, each in `seconds`.
std::string show(ProgressStyle style, double seconds) {
  std::stringstream out;
  Progress progress(style, out);
  progress.begin(kCourse);
  for (std::int64_t step = 1; step <= kCourse.steps; ++step) {
    progress.step(after(step, seconds * static_cast<double>(step)));
  }
  return out.str();
}

TEST(Progress, tells_step_loss_rate_and_time_left) {
  EXPECT_EQ(progress_text(kCourse, after(938, 60)),
            "epoch 1/2  step 938/1876  loss 0.5000  1001 samples/s  ETA 1:00");
  EXPECT_EQ(progress_text(kCourse, after(939, 60)).substr(0, 9), "epoch 2/2");
  EXPECT_NE(progress_text(kCourse, after(1, 10)).find("ETA 5:12:30"), std::string::npos);
  EXPECT_NE(progress_text(kCourse, after(1876, 10)).find("ETA 0:00"), std::string::npos);
}

TEST(Progress, without_a_terminal_is_ten_plain_lines) {
  const std::string shown = show(ProgressStyle::kPlain, 0.1);
  EXPECT_EQ(std::ranges::count(shown, '\n'), 10);
  EXPECT_EQ(std::ranges::count(shown, '\r'), 0);
  EXPECT_NE(shown.find("step 1876/1876"), std::string::npos);
}

TEST(Progress, on_a_terminal_is_one_line_ten_times_a_second) {
  const std::string shown = show(ProgressStyle::kLive, 0.01);
  EXPECT_EQ(std::ranges::count(shown, '\n'), 1);
  EXPECT_EQ(shown.back(), '\n');
  EXPECT_LE(std::ranges::count(shown, '\r'), 190);
  EXPECT_GE(std::ranges::count(shown, '\r'), 150);
}

TEST(Progress, on_a_terminal_covers_a_longer_line) {
  std::stringstream out;
  Progress progress(ProgressStyle::kLive, out);
  progress.begin(kCourse);
  progress.step(after(1, 1000));
  const std::size_t first = out.str().size();
  progress.step(after(1876, 1001));
  EXPECT_GE(out.str().size() - first, first);
}

/// Everything that is shown while 25 batches are tested, each in `seconds`.
std::string show_test(ProgressStyle style, double seconds) {
  std::stringstream out;
  Progress progress(style, out);
  progress.begin_test({.images = 10000, .batches = 25});
  for (int batch = 1; batch <= 25; ++batch) {
    progress.test(batch, std::chrono::duration<double>(seconds * batch));
  }
  return out.str();
}

TEST(Progress, of_the_test_tells_batch_and_time_left) {
  EXPECT_EQ(test_text({.images = 10000, .batches = 25}, 10, std::chrono::duration<double>(4)),
            "test of 10,000 images  batch 10/25  ETA 0:06");
}

TEST(Progress, of_the_test_is_one_line) {
  EXPECT_EQ(show_test(ProgressStyle::kPlain, 0.1), "test of 10,000 images\n");
  const std::string shown = show_test(ProgressStyle::kLive, 0.2);
  EXPECT_EQ(std::ranges::count(shown, '\n'), 1);
  EXPECT_EQ(std::ranges::count(shown, '\r'), 25);
  EXPECT_TRUE(shown.ends_with("batch 25/25  ETA 0:00\n") || shown.ends_with(" \n")) << shown;
}

TEST(Progress, of_other_ranks_is_silent) {
  EXPECT_EQ(show(ProgressStyle::kNone, 1), "");
  EXPECT_EQ(show_test(ProgressStyle::kNone, 1), "");
}

}  // namespace
}  // namespace example::tests
