// SPDX-License-Identifier: Apache-2.0
#include "paceline/store/mesh.h"

#include <gtest/gtest.h>

#include "paceline/base/error.h"
#include "paceline/net/poll.h"
#include "paceline/net/socket.h"
#include "paceline/net/stream.h"
#include "tests/net/black_hole.h"

namespace paceline::store {
namespace {

using net::test::BlackHole;
using std::chrono::milliseconds;
using std::chrono::seconds;

/// Meshes of all ranks, driven by one thread: nothing in them may block.
class MeshTest : public ::testing::Test {
 protected:
  void listen(int world) {
    for (int r = 0; r < world; ++r) {
      listeners.push_back(net::listen_tcp("127.0.0.1", 0));
      addresses.push_back(net::local_address(listeners.back()));
    }
  }
  Mesh& add(int rank,
            std::uint32_t generation = 7,
            milliseconds dial_limit = MeshOptions{}.dial_limit) {
    const MeshOptions options{.rank = rank,
                              .generation = generation,
                              .secret = {.key = Key{std::byte{5}}},
                              .addresses = addresses,
                              .dial_limit = dial_limit};
    return *meshes.emplace_back(std::make_unique<Mesh>(listeners[static_cast<std::size_t>(rank)],
                                                       options, Deadline::after(seconds(20))));
  }
  bool all_done() const {
    for (const auto& mesh : meshes)
      if (!mesh->done()) return false;
    return true;
  }
  void turn() {
    for (auto& mesh : meshes) mesh->step();
    if (all_done()) return;
    std::vector<net::PollItem> items;
    Deadline until = Deadline::after(milliseconds(100));
    for (const auto& mesh : meshes) {
      mesh->want(items);
      until = Deadline::earlier(until, mesh->next());
    }
    net::poll(items, until);
  }
  void drive() {
    for (const auto limit = Deadline::after(seconds(20)); !all_done() && !limit.passed();) turn();
  }

  std::vector<net::Fd> listeners;
  std::vector<std::string> addresses;
  std::vector<std::unique_ptr<Mesh>> meshes;
};

TEST_F(MeshTest, connects_all_pairs_in_any_order_of_appearance) {
  listen(4);
  for (const int rank : {3, 1, 0, 2}) {
    add(rank);
    turn();
  }
  drive();
  EXPECT_TRUE(all_done());
}

TEST_F(MeshTest, strangers_at_a_ranks_door_do_not_disturb) {
  listen(2);
  std::vector<net::Fd> strangers;
  const std::string words = "GET / HTTP/1.1\r\n\r\n";
  for (int i = 0; i < 40; ++i) {
    strangers.push_back(
        net::connect_tcp("127.0.0.1", net::local_port(listeners[0]), Deadline::after(seconds(20))));
    if (i % 2 == 0)
      net::send_all(strangers.back(), std::as_bytes(std::span(words)),
                    Deadline::after(seconds(20)));
  }
  add(0);
  add(1);
  drive();
  EXPECT_TRUE(all_done());
}

TEST_F(MeshTest, names_who_is_missing) {
  listen(3);
  Mesh& mesh = add(1);
  EXPECT_EQ(mesh.missing(), (std::vector<int>{0, 2}));
  add(0);
  while (mesh.missing().size() == 2) turn();
  EXPECT_EQ(mesh.missing(), (std::vector<int>{2}));
}

TEST_F(MeshTest, dials_again_when_a_connection_was_dropped) {
  listen(2);
  Mesh& dialling = add(1);
  turn();
  net::accept(listeners[0], Deadline::after(seconds(20))).reset();
  turn();
  EXPECT_FALSE(dialling.done());
  add(0);
  drive();
  EXPECT_TRUE(all_done());
}

TEST_F(MeshTest, hosts_that_do_not_answer_hold_nobody_up) {
  const BlackHole hole;
  listen(8);
  for (std::size_t r = 0; r < 6; ++r) addresses[r] = hole.address();
  add(6);
  Mesh& dialling = add(7);
  const auto begin = Clock::now();
  while (dialling.missing().size() == 7) turn();
  EXPECT_LT(Clock::now() - begin, seconds(4)) << "a blocking connect lasts 5 s per host";
  EXPECT_EQ(dialling.missing(), (std::vector<int>{0, 1, 2, 3, 4, 5}));
}

TEST_F(MeshTest, gives_a_host_that_does_not_answer_up_and_dials_it_again) {
  BlackHole hole;
  listen(2);
  addresses[0] = hole.address();
  Mesh& dialling = add(1, 7, milliseconds(1));
  for (int tries = 0; tries < 10; ++tries) turn();
  EXPECT_FALSE(dialling.done());
  listeners[0] = hole.open();
  add(0);
  drive();
  EXPECT_TRUE(all_done());
}

TEST_F(MeshTest, a_rank_of_another_generation_is_refused_by_name) {
  listen(2);
  add(0, 7);
  add(1, 8);
  try {
    drive();
    FAIL() << "generations differ";
  } catch (const CommError& error) {
    EXPECT_EQ(error.code(), CommErrc::kRefused);
    EXPECT_EQ(error.peer(), 0);
    EXPECT_NE(std::string(error.what()).find("generation"), std::string::npos);
  }
}

TEST_F(MeshTest, an_address_that_is_none_is_bad_input) {
  listen(2);
  for (const std::string bad :
       {"", "host", "host:", "host:0", "host:70000", "host:1x", ":80", "localhost:80"}) {
    addresses[0] = bad;
    meshes.clear();
    add(1);
    EXPECT_THROW(turn(), BadMessage) << bad;
  }
}

TEST_F(MeshTest, a_world_of_one_is_done_at_once) {
  listen(1);
  EXPECT_TRUE(add(0).done());
}

}  // namespace
}  // namespace paceline::store
