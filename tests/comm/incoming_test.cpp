// SPDX-License-Identifier: Apache-2.0
#include "paceline/comm/incoming.h"

#include <algorithm>
#include <memory>

#include <gtest/gtest.h>

#include "paceline/comm/link_error.h"
#include "paceline/plan/schedule.h"

namespace paceline {
namespace {

/// Gives flags of calls `first`, first + 1, … for ever.
class Flags final : public link::Link {
 public:
  explicit Flags(std::uint64_t first) : next_(first) {}
  std::size_t try_send(std::span<const std::span<const std::byte>>) override { return 0; }
  std::size_t try_recv(std::span<std::byte> into) override {
    const auto bytes = encode({.type = FrameType::kFlag, .sequence = next_++});
    std::copy(bytes.begin(), bytes.end(), into.begin());
    return bytes.size();
  }
  void close() noexcept override {}

 private:
  std::uint64_t next_;
};

/// Gives one frame, then the end of the stream.
class OneFrame final : public link::Link {
 public:
  explicit OneFrame(const FrameHeader& header) : bytes_(encode(header)) {}
  std::size_t try_send(std::span<const std::span<const std::byte>>) override { return 0; }
  std::size_t try_recv(std::span<std::byte> into) override {
    if (given_) throw link::LinkClosed("closed by the peer");
    given_ = true;
    std::copy(bytes_.begin(), bytes_.end(), into.begin());
    return bytes_.size();
  }
  void close() noexcept override {}

 private:
  FrameBytes bytes_;
  bool given_ = false;
};

class NothingIssued final : public CallHistory {
 public:
  std::optional<std::uint64_t> issued_hash(std::uint64_t) const override { return {}; }
};

std::shared_ptr<CallState> barrier(std::uint64_t sequence) {
  const auto algorithm = plan::choose_algorithm(Collective::kBarrier, Dtype::kU8, 2, 0);
  const auto schedule = plan::make_schedule(
      algorithm, {.what = Collective::kBarrier, .rank = 0, .world = 2, .root = 0, .count = 0});
  const Buffer nothing{Dtype::kU8, 0, {}};
  CallMemory memory(schedule, 0, 2, Dtype::kU8, 0, PieceList(nothing, schedule.in),
                    PieceList(nothing, schedule.out));
  const Descriptor descriptor{.algorithm = algorithm};
  return std::make_shared<CallState>(descriptor, CallId{sequence, hash_of(descriptor)}, 2, schedule,
                                     0, std::move(memory), kDefaultTimeout);
}

TEST(Incoming, does_not_take_old_bytes_again_when_the_link_ends) {
  OneFrame link({.type = FrameType::kFlag, .sequence = 4, .message = 0});
  Folder folder(0, 2);
  Incoming incoming(1, link, {}, folder);
  const CallList calls{barrier(5)};  // waits for a later flag than the one that comes
  EXPECT_TRUE(incoming.move(calls, NothingIssued(), false));
  EXPECT_THROW((void)incoming.move(calls, NothingIssued(), false), PeerLost);
}

TEST(Incoming, forgets_the_flags_of_calls_that_have_ended) {
  Flags link(0);
  Folder folder(0, 2);
  Incoming incoming(1, link, {}, folder);
  for (std::uint64_t call = 0; call < 10000; ++call) {
    const CallList calls{barrier(call)};
    EXPECT_TRUE(incoming.move(calls, NothingIssued(), false));
  }
  EXPECT_EQ(incoming.posts_kept(0), 1U);
}

}  // namespace
}  // namespace paceline
