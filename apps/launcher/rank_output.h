// SPDX-License-Identifier: Apache-2.0
#pragma once
/// @file
/// What one rank writes: to the screen line by line, to its log files as it is, and the last lines
/// kept for the report.

#include <array>
#include <deque>
#include <optional>
#include <string>
#include <vector>

#include "apps/launcher/lines.h"
#include "apps/launcher/screen.h"
#include "paceline/net/child.h"
#include "paceline/net/fd.h"

namespace paceline::apps {

/// Threads  One at a time.
class RankOutput {
 public:
  static constexpr std::size_t kLastLines = 10;

  /// `log_dir` is an existing folder, if there is one.
  /// Errors  UsageError that names --log-dir and why a file cannot be made.
  RankOutput(int rank, const std::optional<std::string>& log_dir, Screen& screen);
  RankOutput(const RankOutput&) = delete;
  RankOutput& operator=(const RankOutput&) = delete;

  /// Takes over the read ends of the child's pipes.
  void attach(net::Child& child);
  /// The pipes to wait on; empty once their writers are gone.
  [[nodiscard]] const net::Fd& pipe(std::size_t which) const { return streams_[which].pipe; }
  static constexpr std::size_t kPipes = 2;

  /// Passes on all that is there now.
  void pump();
  [[nodiscard]] bool closed() const noexcept { return !streams_[0].pipe && !streams_[1].pipe; }
  /// No more will come: what is left becomes lines.
  void finish();

  [[nodiscard]] const std::deque<std::string>& last_lines() const noexcept { return last_lines_; }
  /// "cannot write to 'logs/rank0.out': No space left on device".
  [[nodiscard]] std::vector<std::string> losses() const;

 private:
  struct Log {
    std::string path;
    net::Fd file;
    int error = 0;  ///< errno of the first write that failed
  };
  struct Stream {
    net::StandardStream to;
    net::Fd pipe;
    Lines lines;
    std::optional<Log> log;
  };

  Stream make_stream(net::StandardStream to,
                     const std::optional<std::string>& log_dir,
                     const char* suffix);
  void pump(Stream& stream);
  void show_live();
  void line(net::StandardStream to, std::string_view text);

  int rank_;
  Screen& screen_;
  std::deque<std::string> last_lines_;
  std::array<Stream, kPipes> streams_;
};

}  // namespace paceline::apps
