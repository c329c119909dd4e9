// SPDX-License-Identifier: Apache-2.0
#include "paceline/store/message.h"

#include <gtest/gtest.h>

#include <random>

namespace paceline::store {
namespace {

const Key kKey{std::byte{1}, std::byte{2}};

Message round_trip(const Message& message) {
  const auto type = static_cast<std::uint16_t>(message.index());
  return decode(type, encode(message));
}

std::vector<Message> one_of_each() {
  Event event{.kind = Event::Kind::kDeparted, .sequence = 5, .rank = 2, .text = "gone"};
  event.cause = {
      .code = CommErrc::kRefused, .rank = -1, .peer = 3, .from_sequence = 9, .text = "no"};
  Table table{.generation = 77, .first = 64, .entries = {{"a", "1.2.3.4:5"}, {"b", "[::1]:6"}}};
  return {Hello{std::chrono::milliseconds(59'998), std::chrono::seconds(60), "node", "1.2.3.4:5",
                "ring"},
          table,
          Ready{},
          Start{},
          Tick{},
          Standing{.sequence = 1, .issued = 2, .hash = 3, .text = "barrier"},
          Cause{.code = CommErrc::kTimeout, .rank = 1, .peer = -1, .from_sequence = 8, .text = "x"},
          event,
          HostReport{.ranks = 3, .host = "node", .problem = "none"},
          HostVerdict{.world = 7, .first_rank = 4, .problem = "no"}};
}

std::vector<std::byte> sealed(const std::vector<Message>& messages) {
  Sealer sealer(kKey, Side::kInitiator);
  std::vector<std::byte> bytes;
  for (const auto& message : messages) sealer.append(message, bytes);
  return bytes;
}

TEST(Message, comes_back_as_it_went) {
  const auto all = one_of_each();
  EXPECT_EQ(std::get<Hello>(round_trip(all[0])), std::get<Hello>(all[0]));
  EXPECT_EQ(std::get<Table>(round_trip(all[1])), std::get<Table>(all[1]));
  EXPECT_TRUE(std::holds_alternative<Ready>(round_trip(all[2])));
  EXPECT_TRUE(std::holds_alternative<Start>(round_trip(all[3])));
  EXPECT_TRUE(std::holds_alternative<Tick>(round_trip(all[4])));
  const auto standing = std::get<Standing>(round_trip(all[5]));
  EXPECT_EQ(standing.sequence, 1U);
  EXPECT_EQ(standing.issued, 2U);
  EXPECT_EQ(standing.hash, 3U);
  EXPECT_EQ(standing.text, "barrier");
  const auto cause = std::get<Cause>(round_trip(all[6]));
  EXPECT_EQ(cause.code, CommErrc::kTimeout);
  EXPECT_EQ(cause.rank, 1);
  EXPECT_EQ(cause.peer, -1);
  EXPECT_EQ(cause.from_sequence, 8U);
  EXPECT_EQ(std::get<HostReport>(round_trip(all[8])), std::get<HostReport>(all[8]));
  EXPECT_EQ(std::get<HostVerdict>(round_trip(all[9])), std::get<HostVerdict>(all[9]));
  const auto event = std::get<Event>(round_trip(all[7]));
  EXPECT_EQ(event.kind, Event::Kind::kDeparted);
  EXPECT_EQ(event.cause.peer, 3);
  EXPECT_EQ(event.sequence, 5U);
  EXPECT_EQ(event.rank, 2);
  EXPECT_EQ(event.text, "gone");
}

TEST(Message, has_fixed_little_endian_bytes) {
  const auto bytes = encode(Standing{.sequence = 0x0102, .issued = 3, .hash = 4, .text = "ab"});
  const std::vector<int> expected{2, 1, 0, 0, 0, 0, 0, 0, 3, 0, 0, 0, 0,   0,
                                  0, 0, 4, 0, 0, 0, 0, 0, 0, 0, 2, 0, 'a', 'b'};
  ASSERT_EQ(bytes.size(), expected.size());
  for (std::size_t i = 0; i < bytes.size(); ++i)
    EXPECT_EQ(std::to_integer<int>(bytes[i]), expected[i]) << i;
}

TEST(Message, too_long_texts_are_cut_and_the_longest_message_fits) {
  Event event;
  event.text = std::string(1'000'000, 'x');
  event.cause.text = event.text;
  const auto back = std::get<Event>(round_trip(event));
  EXPECT_EQ(back.text.size(), kMaxText);
  EXPECT_TRUE(back.text.ends_with("xx..."));
  Table table;
  table.entries.resize(kMaxTableEntries, {std::string(300, 'h'), std::string(300, 'a')});
  EXPECT_LE(encode(table).size(), kMaxPayload);
}

TEST(Message, control_characters_do_not_reach_a_terminal) {
  const auto back = std::get<Standing>(round_trip(Standing{.text = "a\x1b[2Jb\x07\nc"}));
  EXPECT_EQ(back.text, "a?[2Jb?\nc");
}

TEST(Message, truncated_at_any_byte_is_an_error_and_so_is_a_byte_too_many) {
  for (const auto& message : one_of_each()) {
    const auto type = static_cast<std::uint16_t>(message.index());
    auto bytes = encode(message);
    for (std::size_t n = 0; n < bytes.size(); ++n)
      EXPECT_THROW((void)decode(type, std::span(bytes).first(n)), BadMessage) << type << " " << n;
    bytes.push_back({});
    EXPECT_THROW((void)decode(type, bytes), BadMessage) << type;
  }
}

TEST(Message, unknown_types_codes_and_kinds_are_errors) {
  EXPECT_THROW((void)decode(8, {}), BadMessage);
  EXPECT_THROW((void)decode(0xffff, {}), BadMessage);
  auto cause = encode(Cause{});
  cause[0] = std::byte{6};
  EXPECT_THROW((void)decode(6, cause), BadMessage);
  auto event = encode(Event{});
  event[0] = std::byte{3};
  EXPECT_THROW((void)decode(7, event), BadMessage);
}

TEST(Message, random_bytes_are_an_error_or_a_message_never_a_crash) {
  std::mt19937 random(7);
  for (int round = 0; round < 20'000; ++round) {
    std::vector<std::byte> bytes(random() % 80);
    for (auto& b : bytes) b = static_cast<std::byte>(random() % (round % 2 == 0 ? 256 : 4));
    try {
      (void)decode(static_cast<std::uint16_t>(random() % 10), bytes);
    } catch (const BadMessage&) {
    }
  }
}

TEST(Message, arrives_whole_however_its_bytes_are_cut) {
  const auto bytes = sealed(one_of_each());
  for (const std::size_t step : {std::size_t{1}, std::size_t{7}, std::size_t{4096}}) {
    Opener opener(kKey, Side::kInitiator);
    std::size_t got = 0;
    for (std::size_t i = 0; i < bytes.size(); i += step) {
      opener.feed(std::span(bytes).subspan(i, std::min(step, bytes.size() - i)));
      while (const auto message = opener.next()) EXPECT_EQ(message->index(), got++);
    }
    EXPECT_EQ(got, one_of_each().size());
  }
}

TEST(Message, a_changed_bit_anywhere_is_noticed) {
  const auto good = sealed({Standing{.sequence = 3, .issued = 4, .hash = 5, .text = "barrier"}});
  for (std::size_t bit = 0; bit < good.size() * 8; ++bit) {
    auto bytes = good;
    bytes[bit / 8] ^= static_cast<std::byte>(1 << (bit % 8));
    Opener opener(kKey, Side::kInitiator);
    opener.feed(bytes);
    try {
      // A greater length only waits for bytes that never come.
      EXPECT_FALSE(opener.next()) << "bit " << bit;
    } catch (const BadMessage&) {
    }
  }
}

TEST(Message, repeated_left_out_or_reflected_is_noticed) {
  const auto one = sealed({Tick{}});
  Opener repeated(kKey, Side::kInitiator);
  repeated.feed(one);
  EXPECT_TRUE(repeated.next());
  repeated.feed(one);
  EXPECT_THROW((void)repeated.next(), BadMessage);
  const auto two = sealed({Tick{}, Tick{}});
  Opener skipped(kKey, Side::kInitiator);
  skipped.feed(std::span(two).subspan(one.size()));
  EXPECT_THROW((void)skipped.next(), BadMessage);
  Opener reflected(kKey, Side::kAcceptor);
  reflected.feed(one);
  EXPECT_THROW((void)reflected.next(), BadMessage);
  Opener stranger(Key{}, Side::kInitiator);
  stranger.feed(one);
  EXPECT_THROW((void)stranger.next(), BadMessage);
}

TEST(Message, a_giant_length_is_refused_before_its_bytes_come) {
  auto bytes = sealed({Tick{}});
  bytes[10] = std::byte{2};  // 128 KiB
  Opener opener(kKey, Side::kInitiator);
  opener.feed(bytes);
  EXPECT_THROW((void)opener.next(), BadMessage);
}

}  // namespace
}  // namespace paceline::store
