// SPDX-License-Identifier: Apache-2.0
#include "paceline/store/handshake.h"

#include <gtest/gtest.h>

#include <random>

namespace paceline::store {
namespace {

Secret secret_of(int seed) { return {.key = Key{static_cast<std::byte>(seed)}}; }

Terms rank_terms(Secret secret = secret_of(1)) {
  return {.side = Side::kInitiator,
          .purpose = Purpose::kControl,
          .rank = 2,
          .peer = kStoreRank,
          .world = 4,
          .secret = secret};
}
Terms store_terms(Secret secret = secret_of(1)) {
  return {.side = Side::kAcceptor,
          .purpose = Purpose::kControl,
          .rank = kStoreRank,
          .peer = kAnyRank,
          .world = 4,
          .secret = secret};
}

using State = Handshake::State;

/// Carries bytes both ways until nothing moves.
void talk(Handshake& a, Handshake& b) {
  for (bool moved = true; moved;) {
    moved = false;
    for (auto [from, to] : {std::pair(&a, &b), std::pair(&b, &a)}) {
      const auto bytes = from->output();
      moved = moved || !bytes.empty();
      to->take(bytes);
    }
  }
}

struct Pair {
  Pair(const Terms& rank, const Terms& store) : initiator(rank), acceptor(store) {
    talk(initiator, acceptor);
  }
  Handshake initiator, acceptor;
  [[nodiscard]] bool accepted() const {
    return initiator.state() == State::kAccepted && acceptor.state() == State::kAccepted;
  }
  [[nodiscard]] bool refused_with(RefusalCode code) const {
    return initiator.state() == State::kRefused && acceptor.state() == State::kRefused &&
           initiator.refusal().code == code && acceptor.refusal().code == code;
  }
};

TEST(Handshake, admits_a_rank_that_knows_the_secret) {
  const Pair pair(rank_terms(), store_terms());
  ASSERT_TRUE(pair.accepted());
  EXPECT_EQ(pair.acceptor.peer_rank(), 2U);
  EXPECT_EQ(pair.initiator.peer_rank(), kStoreRank);
  EXPECT_EQ(pair.initiator.session_key(), pair.acceptor.session_key());
}

TEST(Handshake, makes_a_new_session_key_each_time) {
  const Pair one(rank_terms(), store_terms());
  const Pair two(rank_terms(), store_terms());
  EXPECT_NE(one.acceptor.session_key(), two.acceptor.session_key());
}

TEST(Handshake, never_wants_a_byte_that_is_not_its_own) {
  Handshake initiator(rank_terms());
  Handshake acceptor(store_terms());
  while (initiator.state() == State::kTalking || acceptor.state() == State::kTalking)
    for (auto [from, to] : {std::pair(&initiator, &acceptor), std::pair(&acceptor, &initiator)}) {
      const auto bytes = from->output();
      std::size_t given = 0;
      while (to->wanted() != 0 && given < bytes.size()) {
        const auto n = std::min(to->wanted(), bytes.size() - given);
        to->take(std::span(bytes).subspan(given, n));
        given += n;
      }
      EXPECT_EQ(given, bytes.size());
    }
  EXPECT_EQ(acceptor.state(), State::kAccepted);
  EXPECT_EQ(initiator.wanted(), 0U);
}

TEST(Handshake, refuses_another_secret_at_both_ends_and_shows_neither) {
  const Pair pair(rank_terms(secret_of(1)), store_terms(secret_of(2)));
  ASSERT_TRUE(pair.refused_with(RefusalCode::kSecret));
  EXPECT_FALSE(pair.acceptor.authenticated());
  EXPECT_EQ(to_text(pair.initiator.refusal()), "the secret differs from the one at the other end");
  EXPECT_EQ(pair.acceptor.refusal().ours, 0U);
  EXPECT_EQ(pair.acceptor.refusal().theirs, 0U);
}

TEST(Handshake, works_without_secrets_if_both_ends_have_none) {
  EXPECT_TRUE(Pair(rank_terms({}), store_terms({})).accepted());
}

TEST(Handshake, refuses_if_only_one_end_has_a_secret) {
  const Pair pair(rank_terms({}), store_terms());
  ASSERT_TRUE(pair.refused_with(RefusalCode::kAuthentication));
  EXPECT_EQ(to_text(pair.initiator.refusal()),
            "authentication differs: none here, a secret at the other end");
  EXPECT_EQ(to_text(pair.acceptor.refusal()),
            "authentication differs: a secret here, none at the other end");
  EXPECT_TRUE(Pair(rank_terms(), store_terms({})).refused_with(RefusalCode::kAuthentication));
}

TEST(Handshake, no_secret_is_not_the_same_as_a_secret_of_zeros) {
  EXPECT_FALSE(Pair(rank_terms({.key = Key{}}), store_terms({})).accepted());
}

TEST(Handshake, refuses_another_world_size_and_says_both) {
  auto terms = rank_terms();
  terms.world = 3;
  const Pair pair(terms, store_terms());
  ASSERT_TRUE(pair.refused_with(RefusalCode::kWorld));
  EXPECT_TRUE(pair.acceptor.authenticated()) << "the others may believe it";
  EXPECT_EQ(to_text(pair.initiator.refusal()), "world size differs: 3 here, 4 at the other end");
  EXPECT_EQ(to_text(pair.acceptor.refusal()), "world size differs: 4 here, 3 at the other end");
}

TEST(Handshake, refuses_another_version_and_says_both) {
  auto newer = rank_terms();
  newer.version = 9;
  const Pair pair(newer, store_terms());
  ASSERT_TRUE(pair.refused_with(RefusalCode::kVersion));
  EXPECT_EQ(to_text(pair.initiator.refusal()),
            "protocol version differs: 9 here, 1 at the other end");
  auto newer_store = store_terms();
  newer_store.version = 9;
  EXPECT_TRUE(Pair(rank_terms(), newer_store).refused_with(RefusalCode::kVersion));
}

TEST(Handshake, refuses_another_byte_order_and_says_both) {
  auto terms = rank_terms();
  terms.byte_order =
      std::endian::native == std::endian::little ? std::endian::big : std::endian::little;
  const Pair pair(terms, store_terms());
  ASSERT_TRUE(pair.refused_with(RefusalCode::kByteOrder));
  const auto text = to_text(pair.initiator.refusal());
  EXPECT_NE(text.find("little-endian"), text.npos);
  EXPECT_NE(text.find("big-endian"), text.npos);
}

TEST(Handshake, refuses_a_rank_outside_the_world) {
  auto terms = rank_terms();
  terms.rank = 4;
  const Pair pair(terms, store_terms());
  ASSERT_TRUE(pair.refused_with(RefusalCode::kNoSuchRank));
  EXPECT_EQ(to_text(pair.acceptor.refusal()), "a rank is out of range: 4 in a world of 4");
}

Terms data_terms(Side side, std::uint32_t rank, std::uint32_t peer) {
  return {.side = side,
          .purpose = Purpose::kData,
          .rank = rank,
          .peer = peer,
          .world = 4,
          .generation = 99,
          .secret = secret_of(1)};
}

TEST(Handshake, binds_a_data_connection_to_its_two_ranks) {
  EXPECT_TRUE(Pair(data_terms(Side::kInitiator, 2, 1), data_terms(Side::kAcceptor, 1, kAnyRank))
                  .accepted());
  EXPECT_TRUE(Pair(data_terms(Side::kInitiator, 2, 0), data_terms(Side::kAcceptor, 1, kAnyRank))
                  .refused_with(RefusalCode::kRank));
  EXPECT_TRUE(Pair(data_terms(Side::kInitiator, 1, 1), data_terms(Side::kAcceptor, 1, kAnyRank))
                  .refused_with(RefusalCode::kRank));
}

TEST(Handshake, binds_a_connection_to_its_purpose_and_generation) {
  auto other = data_terms(Side::kInitiator, 2, 1);
  other.generation = 98;
  const auto acceptor = data_terms(Side::kAcceptor, 1, kAnyRank);
  EXPECT_TRUE(Pair(other, acceptor).refused_with(RefusalCode::kGeneration));
  other = data_terms(Side::kInitiator, 2, 1);
  other.purpose = Purpose::kControl;
  EXPECT_TRUE(Pair(other, acceptor).refused_with(RefusalCode::kPurpose));
}

TEST(Handshake, an_initiator_does_not_trust_an_acceptor_without_the_secret) {
  Handshake initiator(rank_terms());
  Handshake impostor(store_terms(secret_of(3)));
  impostor.take(initiator.output());
  initiator.take(impostor.output());
  EXPECT_EQ(initiator.state(), State::kRefused);
  EXPECT_EQ(initiator.refusal().code, RefusalCode::kSecret);
}

TEST(Handshake, a_recorded_conversation_cannot_be_played_again) {
  Handshake rank(rank_terms());
  Handshake store(store_terms());
  const auto hello = rank.output();
  store.take(hello);
  rank.take(store.output());
  const auto proof = rank.output();
  Handshake later(store_terms());
  later.take(hello);
  (void)later.output();
  later.take(proof);
  EXPECT_EQ(later.state(), State::kRefused);
  EXPECT_EQ(later.refusal().code, RefusalCode::kSecret);
  EXPECT_FALSE(later.authenticated());
}

TEST(Handshake, its_own_bytes_thrown_back_are_refused) {
  Handshake rank(rank_terms());
  rank.take(rank.output());
  EXPECT_EQ(rank.state(), State::kRefused);
}

TEST(Handshake, a_changed_bit_anywhere_is_refused) {
  Handshake probe(rank_terms());
  const auto length = probe.output().size();
  for (std::size_t bit = 0; bit < length * 8; ++bit) {
    if (bit / 8 == 7) continue;  // the byte that means nothing yet
    Handshake rank(rank_terms());
    Handshake store(store_terms());
    auto hello = rank.output();
    hello[bit / 8] ^= static_cast<std::byte>(1 << (bit % 8));
    store.take(hello);
    talk(store, rank);
    EXPECT_NE(store.state(), State::kAccepted) << "bit " << bit;
  }
}

TEST(Handshake, what_is_no_paceline_is_told_from_what_is) {
  const std::string http = "GET / HTTP/1.1\r\nHost: a\r\n\r\n";
  Handshake store(store_terms());
  store.take(std::as_bytes(std::span(http)));
  EXPECT_EQ(store.state(), State::kRefused);
  EXPECT_EQ(store.refusal().code, RefusalCode::kNotOurs);
  EXPECT_TRUE(store.output().empty()) << "a stranger gets no answer";
}

TEST(Handshake, truncated_bytes_leave_it_waiting) {
  Handshake rank(rank_terms());
  const auto hello = rank.output();
  for (std::size_t n = 0; n < hello.size(); ++n) {
    Handshake store(store_terms());
    store.take(std::span(hello).first(n));
    EXPECT_EQ(store.state(), State::kTalking);
    EXPECT_TRUE(store.output().empty());
    EXPECT_GT(store.wanted(), 0U);
  }
}

TEST(Handshake, random_bytes_never_pass_and_never_crash) {
  std::mt19937 random(11);
  for (int round = 0; round < 2'000; ++round) {
    Handshake store(store_terms());
    Handshake rank(rank_terms());
    auto bytes = rank.output();
    bytes.resize(random() % 200);
    for (std::size_t i = random() % 12; i < bytes.size(); ++i)
      bytes[i] = static_cast<std::byte>(random());
    store.take(bytes);
    EXPECT_NE(store.state(), State::kAccepted);
  }
}

TEST(Handshake, a_refusal_with_an_unknown_code_still_has_a_text) {
  EXPECT_EQ(to_text({.code = static_cast<RefusalCode>(200), .ours = 0, .theirs = 0}),
            "refused by the other end for the unknown reason 200");
}

}  // namespace
}  // namespace paceline::store
