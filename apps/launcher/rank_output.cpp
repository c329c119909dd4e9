// SPDX-License-Identifier: Apache-2.0
#include "apps/launcher/rank_output.h"

#include <fmt/format.h>

#include <utility>
#include <vector>

#include "paceline/base/error.h"
#include "paceline/net/stream.h"

namespace paceline::apps {
namespace {

using net::StandardStream;

constexpr std::size_t kChunk = 64 << 10;
constexpr int kChunksAtOnce = 16;  // then the other ranks and signals get their turn

}  // namespace

RankOutput::RankOutput(int rank, const std::string& log_dir, Screen& screen)
    : rank_(rank),
      screen_(screen),
      streams_{make_stream(StandardStream::kOutput, log_dir, "out"),
               make_stream(StandardStream::kError, log_dir, "err")} {}

RankOutput::Stream RankOutput::make_stream(StandardStream to,
                                           const std::string& log_dir,
                                           const char* suffix) {
  Stream stream{to, net::Fd(), Lines([this, to](std::string_view text) { line(to, text); }), {}};
  if (log_dir.empty()) return stream;
  const std::string path = fmt::format("{}/rank{}.{}", log_dir, rank_, suffix);
  stream.log.open(path, std::ios::binary | std::ios::trunc);
  if (!stream.log) throw UsageError(fmt::format("--log-dir: cannot write '{}'", path));
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
    if (stream.log.is_open()) stream.log << text << std::flush;
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

}  // namespace paceline::apps
