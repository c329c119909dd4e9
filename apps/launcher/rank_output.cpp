// SPDX-License-Identifier: Apache-2.0
#include "apps/launcher/rank_output.h"

#include <fmt/format.h>

#include <utility>

#include "paceline/base/error.h"
#include "paceline/net/output.h"
#include "paceline/net/stream.h"
#include "paceline/net/system_error.h"

namespace paceline::apps {
namespace {

using net::StandardStream;

constexpr std::size_t kChunk = 64 << 10;
constexpr int kChunksAtOnce = 16;  // then the other ranks and signals get their turn

}  // namespace

RankOutput::RankOutput(int rank, const std::optional<std::string>& log_dir, Screen& screen)
    : rank_(rank),
      screen_(screen),
      streams_{make_stream(StandardStream::kOutput, log_dir, "out"),
               make_stream(StandardStream::kError, log_dir, "err")} {}

RankOutput::Stream RankOutput::make_stream(StandardStream to,
                                           const std::optional<std::string>& log_dir,
                                           const char* suffix) {
  Stream stream{to, net::Fd(), Lines([this, to](std::string_view text) { line(to, text); }), {}};
  if (!log_dir) return stream;
  const std::string path = fmt::format("{}/rank{}.{}", *log_dir, rank_, suffix);
  try {
    stream.log = Log{.path = path, .file = net::create_file(path)};
  } catch (const net::SystemError& error) {
    throw UsageError(fmt::format("--log-dir: {}", error.what()));
  }
  return stream;
}

void RankOutput::attach(net::Child& child) {
  streams_[0].pipe = std::move(child.standard_output());
  streams_[1].pipe = std::move(child.standard_error());
}

void RankOutput::line(StandardStream to, std::string_view text) {
  last_lines_.emplace_back(text);
  if (last_lines_.size() > kLastLines) last_lines_.pop_front();
  screen_.live(rank_, {});
  screen_.line(to, rank_, text);
}

void RankOutput::pump(Stream& stream) {
  std::vector<std::byte> chunk(kChunk);
  for (int i = 0; i < kChunksAtOnce && stream.pipe; ++i) {
    const net::IoResult got = net::try_read(stream.pipe, chunk);
    const std::string_view text(reinterpret_cast<const char*>(chunk.data()), got.bytes);
    if (stream.log) {
      const int error = net::write_all(stream.log->file, text);
      if (stream.log->error == 0) stream.log->error = error;
    }
    stream.lines.feed(text);
    if (got.closed) stream.pipe.reset();
    if (got.would_block) break;
  }
}

void RankOutput::show_live() {
  const std::string_view error = streams_[1].lines.live();
  screen_.live(rank_, error.empty() ? streams_[0].lines.live() : error);
}

void RankOutput::pump() {
  for (Stream& stream : streams_)
    if (stream.pipe) pump(stream);
  show_live();
}

void RankOutput::finish() {
  for (Stream& stream : streams_) {
    stream.pipe.reset();
    stream.lines.finish();
  }
  screen_.live(rank_, {});
}

std::vector<std::string> RankOutput::losses() const {
  std::vector<std::string> result;
  for (const Stream& stream : streams_) {
    if (!stream.log || stream.log->error == 0) continue;
    result.push_back(fmt::format("cannot write to '{}': {}", stream.log->path,
                                 net::errno_text(stream.log->error)));
  }
  return result;
}

}  // namespace paceline::apps
