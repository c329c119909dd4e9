// SPDX-License-Identifier: Apache-2.0
#include "paceline/link/tcp/tcp_fabric.h"

#include <sys/socket.h>

#include "paceline/net/socket.h"
#include "paceline/net/stream.h"
#include "tests/link/link_suite.h"

namespace paceline::link {
namespace {

std::pair<net::Fd, net::Fd> loopback_pair() {
  const net::Fd listener = net::listen_tcp("127.0.0.1", 0);
  net::Fd client = net::connect_tcp("127.0.0.1", net::local_port(listener), soon());
  net::Fd server = net::accept(listener, soon());
  return {std::move(client), std::move(server)};
}

template <class MakePair>
Fabrics make_fabrics(int world, MakePair make_pair) {
  const auto size = static_cast<std::size_t>(world);
  std::vector<std::vector<net::Fd>> sockets(size);
  for (auto& row : sockets) row.resize(size);
  for (std::size_t a = 0; a < size; ++a)
    for (std::size_t b = 0; b < a; ++b) std::tie(sockets[a][b], sockets[b][a]) = make_pair();
  Fabrics fabrics;
  for (int rank = 0; rank < world; ++rank)
    fabrics.push_back(make_tcp_fabric(rank, std::move(sockets[static_cast<std::size_t>(rank)])));
  return fabrics;
}

LinkKind over(const std::string& name, std::pair<net::Fd, net::Fd> (*make_pair)()) {
  return {.name = name, .fabric_name = "tcp", .make = [=](int world) {
            return make_fabrics(world, make_pair);
          }};
}

INSTANTIATE_TEST_SUITE_P(Tcp,
                         LinkSuite,
                         ::testing::Values(over("loopback", &loopback_pair),
                                           over("socketpair", &net::socket_pair)),
                         name_of_kind);

TEST(TcpFabric, a_reset_is_told_apart_from_an_end) {
  auto [mine, theirs] = loopback_pair();
  std::vector<net::Fd> sockets(2);
  sockets[1] = std::move(mine);
  const auto fabric = make_tcp_fabric(0, std::move(sockets));
  const linger none{.l_onoff = 1, .l_linger = 0};
  ASSERT_EQ(::setsockopt(theirs.raw(), SOL_SOCKET, SO_LINGER, &none, sizeof none), 0);
  theirs.reset();
  EXPECT_EQ(closed_text([&] { (void)recv_next(*fabric, 1); }), "reset by the peer");
  EXPECT_EQ(closed_text([&] { (void)try_send(fabric->to(1), Bytes(1)); }), "reset by the peer");
}

TEST(TcpFabric, refuses_missing_and_surplus_sockets) {
  EXPECT_THROW((void)make_tcp_fabric(0, {}), UsageError);
  EXPECT_THROW((void)make_tcp_fabric(0, std::vector<net::Fd>(2)), UsageError);
  std::vector<net::Fd> own(1);
  own[0] = net::socket_pair().first;
  EXPECT_THROW((void)make_tcp_fabric(0, std::move(own)), UsageError);
}

}  // namespace
}  // namespace paceline::link
