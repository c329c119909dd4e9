// SPDX-License-Identifier: Apache-2.0
#include "progress.h"

#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <ostream>

#include "text.h"

namespace example {
namespace {

constexpr std::int64_t kPlainLines = 10;
constexpr std::chrono::duration<double> kBetweenLiveLines{0.1};

/// "0:07", "12:30", "1:02:03"
std::string clock_text(double seconds) {
  const auto all = static_cast<std::int64_t>(std::ceil(seconds));
  const std::int64_t hours = all / 3600;
  const std::int64_t minutes = all / 60 % 60;
  if (hours == 0) return fmt::format("{}:{:02}", minutes, all % 60);
  return fmt::format("{}:{:02}:{:02}", hours, minutes, all % 60);
}

}  // namespace

std::string progress_text(const Course& course, const Standing& standing) {
  const std::int64_t epoch = (standing.steps - 1) / course.steps_per_epoch + 1;
  const double seconds = std::max(standing.elapsed.count(), 1e-9);
  const double per_step = seconds / static_cast<double>(standing.steps);
  const double left = per_step * static_cast<double>(course.steps - standing.steps);
  return fmt::format("epoch {}/{}  step {}/{}  loss {:.4f}  {:.0f} samples/s  ETA {}", epoch,
                     course.epochs, standing.steps, course.steps, standing.loss,
                     static_cast<double>(standing.samples) / seconds, clock_text(left));
}

std::string test_text(const TestCourse& course,
                      std::int64_t batches,
                      std::chrono::duration<double> elapsed) {
  const double per_batch = elapsed.count() / static_cast<double>(batches);
  const double left = per_batch * static_cast<double>(course.batches - batches);
  return fmt::format("test of {} images  batch {}/{}  ETA {}", grouped(course.images), batches,
                     course.batches, clock_text(left));
}

bool is_watched() {
  // The launcher reads what ranks write from pipes and says so if it shows them on a terminal.
  const char* told = std::getenv("PACELINE_TERMINAL");
  return (told != nullptr && std::string(told) == "1") || isatty(STDOUT_FILENO) == 1;
}

void Progress::step(const Standing& standing) {
  const bool last = standing.steps == course_.steps;
  if (style_ == ProgressStyle::kLive) {
    live(progress_text(course_, standing), standing.elapsed, last);
  }
  if (style_ != ProgressStyle::kPlain) return;
  const std::int64_t stride = (course_.steps + kPlainLines - 1) / kPlainLines;
  if (standing.steps % stride != 0 && !last) return;
  out_ << progress_text(course_, standing) << '\n' << std::flush;
}

void Progress::begin_test(const TestCourse& course) {
  test_course_ = course;
  shown_at_ = std::chrono::duration<double>(-1);
  shown_width_ = 0;
  if (style_ != ProgressStyle::kPlain) return;
  out_ << fmt::format("test of {} images\n", grouped(course.images)) << std::flush;
}

void Progress::test(std::int64_t batches, std::chrono::duration<double> elapsed) {
  if (style_ != ProgressStyle::kLive) return;
  live(test_text(test_course_, batches, elapsed), elapsed, batches == test_course_.batches);
}

void Progress::live(const std::string& text, std::chrono::duration<double> elapsed, bool last) {
  const bool first = shown_at_.count() < 0;
  if (!first && !last && elapsed - shown_at_ < kBetweenLiveLines) return;
  const std::size_t width = std::max(text.size(), shown_width_);  // covers a longer line before
  out_ << '\r' << text << std::string(width - text.size(), ' ') << (last ? "\n" : "") << std::flush;
  shown_at_ = elapsed;
  shown_width_ = text.size();
}

}  // namespace example
