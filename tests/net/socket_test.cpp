// SPDX-License-Identifier: Apache-2.0
#include "paceline/net/socket.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <netdb.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <sys/socket.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <latch>
#include <string>
#include <thread>

#include "paceline/base/error.h"
#include "paceline/net/poll.h"
#include "paceline/net/stream.h"
#include "paceline/net/system_error.h"
#include "tests/net/black_hole.h"

namespace paceline::net {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;

Deadline soon() { return Deadline::after(seconds(20)); }

int option(const Fd& socket, int level, int name) {
  int value = -1;
  socklen_t size = sizeof value;
  EXPECT_EQ(::getsockopt(socket.raw(), level, name, &value, &size), 0);
  return value;
}

void expect_joined(const Fd& a, const Fd& b) {
  const std::array<std::byte, 3> sent{std::byte{1}, std::byte{2}, std::byte{3}};
  std::array<std::byte, 3> got{};
  send_all(a, sent, soon());
  recv_exactly(b, got, soon());
  EXPECT_EQ(got, sent);
}

template <class Error>
std::string text_of(auto&& call) {
  try {
    call();
  } catch (const Error& error) {
    return error.what();
  }
  ADD_FAILURE() << "nothing was thrown";
  return {};
}

TEST(Tcp, connects_to_a_port_that_the_system_chose) {
  const Fd listener = listen_tcp("127.0.0.1", 0);
  const std::uint16_t port = local_port(listener);
  ASSERT_NE(port, 0);
  const Fd client = connect_tcp("127.0.0.1", port, soon());
  const Fd server = accept(listener, soon());
  expect_joined(client, server);
  expect_joined(server, client);
  EXPECT_EQ(peer_address(client), "127.0.0.1:" + std::to_string(port));
  EXPECT_EQ(local_address(client), peer_address(server));
}

TEST(Tcp, sockets_have_no_delay_keep_alive_and_close_on_exec) {
  const Fd listener = listen_tcp("127.0.0.1", 0);
  const Fd client = connect_tcp("127.0.0.1", local_port(listener), soon());
  const Fd server = accept(listener, soon());
  for (const Fd* end : {&client, &server}) {
    EXPECT_EQ(option(*end, IPPROTO_TCP, TCP_NODELAY), 1);
    EXPECT_EQ(option(*end, SOL_SOCKET, SO_KEEPALIVE), 1);
    EXPECT_NE(::fcntl(end->raw(), F_GETFD) & FD_CLOEXEC, 0);
    EXPECT_NE(::fcntl(end->raw(), F_GETFL) & O_NONBLOCK, 0);
  }
}

TEST(Tcp, tries_every_address_of_a_name) {
  // "localhost" may come first as ::1, where nobody listens.
  const Fd listener = listen_tcp("127.0.0.1", 0);
  const Fd client = connect_tcp("localhost", local_port(listener), soon());
  expect_joined(client, accept(listener, soon()));
}

TEST(Tcp, speaks_ipv6_with_and_without_brackets) {
  Fd listener;
  try {
    listener = listen_tcp("[::1]", 0);
  } catch (const SystemError& error) {
    GTEST_SKIP() << "this host has no IPv6 loopback: " << error.what();
  }
  const Fd client = connect_tcp("::1", local_port(listener), soon());
  expect_joined(client, accept(listener, soon()));
  EXPECT_EQ(peer_address(client), "[::1]:" + std::to_string(local_port(listener)));
}

TEST(Tcp, a_port_in_use_is_an_error_that_names_it) {
  const Fd listener = listen_tcp("127.0.0.1", 0);
  const std::uint16_t port = local_port(listener);
  const std::string text = text_of<SystemError>([&] { (void)listen_tcp("127.0.0.1", port); });
  EXPECT_NE(text.find("127.0.0.1:" + std::to_string(port)), std::string::npos) << text;
  EXPECT_NE(text.find("choose another port"), std::string::npos) << text;
}

TEST(Tcp, a_refused_connection_names_the_address_and_the_reason) {
  std::uint16_t port = 0;
  {
    const Fd listener = listen_tcp("127.0.0.1", 0);
    port = local_port(listener);
  }
  try {
    (void)connect_tcp("127.0.0.1", port, soon());
    FAIL();
  } catch (const SystemError& error) {
    EXPECT_EQ(error.code(), ECONNREFUSED);
    EXPECT_NE(std::string(error.what()).find("127.0.0.1:" + std::to_string(port)),
              std::string::npos)
        << error.what();
  }
}

TEST(Tcp, an_unknown_host_is_named) {
  const std::string text =
      text_of<SystemError>([] { (void)connect_tcp("no-such-host.invalid", 1, soon()); });
  EXPECT_NE(text.find("no-such-host.invalid"), std::string::npos) << text;
}

/// No name can have blanks, so no name server is asked.
constexpr const char* kNoName = "no such host";

std::string unknown_host_text() {
  return std::string("looking up host 'no such host' failed: ") + ::gai_strerror(EAI_NONAME) +
         "; check the name, or give an address";
}

TEST(Tcp, an_unknown_host_is_told_with_the_resolvers_reason_alone) {
  EXPECT_EQ(text_of<UnknownHost>([] { (void)connect_tcp(kNoName, 1, soon()); }),
            unknown_host_text());
  EXPECT_EQ(text_of<UnknownHost>([] { (void)listen_tcp(kNoName, 1); }), unknown_host_text());
}

TEST(Tcp, an_unknown_host_may_become_known_until_the_deadline) {
  const Deadline deadline = Deadline::after(milliseconds(30));
  EXPECT_EQ(text_of<TimedOut>([&] { (void)connect_tcp_until(kNoName, 1, deadline); }),
            unknown_host_text());
  EXPECT_TRUE(deadline.passed());
}

TEST(Tcp, connecting_again_and_again_meets_a_listener_that_comes_late) {
  Fd listener = listen_tcp("127.0.0.1", 0);
  const std::uint16_t port = local_port(listener);
  listener.reset();
  std::latch trying(1);
  std::jthread late([&] {
    trying.wait();
    listener = listen_tcp("127.0.0.1", port);
  });
  EXPECT_THROW((void)connect_tcp("127.0.0.1", port, soon()), SystemError);
  trying.count_down();
  EXPECT_TRUE(connect_tcp_until("127.0.0.1", port, soon()));
}

TEST(Tcp, connecting_again_and_again_ends_at_the_deadline_with_the_reason) {
  std::uint16_t port = 0;
  {
    const Fd listener = listen_tcp("127.0.0.1", 0);
    port = local_port(listener);
  }
  const std::string text = text_of<TimedOut>(
      [&] { (void)connect_tcp_until("127.0.0.1", port, Deadline::after(milliseconds(30))); });
  EXPECT_EQ(text, "connecting to 127.0.0.1:" + std::to_string(port) +
                      " failed: Connection refused; is the other side running, and reachable from "
                      "this host?");
}

TEST(Tcp, what_each_address_of_a_name_answered_is_told) {
  std::uint16_t port = 0;
  {
    const Fd listener = listen_tcp("127.0.0.1", 0);
    port = local_port(listener);
  }
  const std::string text =
      text_of<SystemError>([&] { (void)connect_tcp("localhost", port, soon()); });
  const std::string number = std::to_string(port);
  EXPECT_NE(text.find("connecting to localhost:" + number + " ("), std::string::npos) << text;
  EXPECT_NE(text.find("127.0.0.1:" + number + ": Connection refused"), std::string::npos) << text;
}

/// How a connect that was started ended, as soon as it has.
int outcome_of(const Fd& socket) {
  EXPECT_TRUE(wait_writable(socket, soon()));
  return connect_outcome(socket).value_or(-1);
}

TEST(StartedConnect, ends_in_a_connection_like_any_other) {
  const Fd listener = listen_tcp("127.0.0.1", 0);
  const Fd client = start_connect_tcp("127.0.0.1", local_port(listener));
  EXPECT_EQ(outcome_of(client), 0);
  expect_joined(client, accept(listener, soon()));
  EXPECT_EQ(option(client, IPPROTO_TCP, TCP_NODELAY), 1);
  EXPECT_EQ(option(client, SOL_SOCKET, SO_KEEPALIVE), 1);
}

TEST(StartedConnect, has_no_outcome_while_nobody_answers) {
  test::BlackHole hole;
  const Fd client = start_connect_tcp("127.0.0.1", hole.port());
  EXPECT_EQ(connect_outcome(client), std::nullopt);
  const Fd listener = hole.open();
  EXPECT_EQ(outcome_of(client), 0) << "the kernel has asked again";
}

TEST(StartedConnect, says_that_nobody_listens) {
  Fd listener = listen_tcp("127.0.0.1", 0);
  const std::uint16_t port = local_port(listener);
  listener.reset();
  EXPECT_EQ(outcome_of(start_connect_tcp("127.0.0.1", port)), ECONNREFUSED);
}

TEST(StartedConnect, a_connection_that_was_reset_at_once_has_failed) {
  const Fd listener = listen_tcp("127.0.0.1", 0);
  const Fd client = start_connect_tcp("127.0.0.1", local_port(listener));
  Fd server = accept(listener, soon());
  const linger at_once{.l_onoff = 1, .l_linger = 0};
  ASSERT_EQ(::setsockopt(server.raw(), SOL_SOCKET, SO_LINGER, &at_once, sizeof at_once), 0);
  server.reset();
  ASSERT_TRUE(wait_readable(client, soon()));
  EXPECT_EQ(option(client, SOL_SOCKET, SO_ERROR), ECONNRESET) << "told once, so it is forgotten";
  EXPECT_EQ(connect_outcome(client), ECONNRESET);
}

TEST(StartedConnect, a_connection_with_itself_has_failed) {
  const Fd socket(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
  sockaddr_in own{};
  own.sin_family = AF_INET;
  own.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  socklen_t size = sizeof own;
  auto* address = reinterpret_cast<sockaddr*>(&own);
  ASSERT_EQ(::bind(socket.raw(), address, size), 0);
  ASSERT_EQ(::getsockname(socket.raw(), address, &size), 0);
  ASSERT_EQ(::connect(socket.raw(), address, size), 0);
  EXPECT_EQ(connect_outcome(socket), ECONNREFUSED);
}

TEST(StartedConnect, takes_no_name_for_looking_it_up_could_last) {
  EXPECT_THROW((void)start_connect_tcp("localhost", 1), UnknownHost);
}

TEST(Tcp, accept_ends_at_the_deadline) {
  const Fd listener = listen_tcp("127.0.0.1", 0);
  EXPECT_THROW((void)accept(listener, Deadline::after(milliseconds(10))), TimedOut);
  EXPECT_FALSE(accept_now(listener));
}

TEST(LocalSocket, connects_by_an_abstract_name_and_tells_who_called) {
  const std::string name = "paceline-test-" + std::to_string(::getpid());
  const Fd listener = listen_unix_abstract(name);
  const Fd client = connect_unix_abstract(name, soon());
  const Fd server = accept(listener, soon());
  expect_joined(client, server);
  EXPECT_EQ(peer_address(client), "@" + name);
  EXPECT_EQ(peer_credentials(server).uid, ::getuid());
  EXPECT_EQ(peer_credentials(server).pid, ::getpid());
}

TEST(LocalSocket, a_name_has_one_holder_and_vanishes_with_it) {
  const std::string name = "paceline-test-once-" + std::to_string(::getpid());
  Fd listener = listen_unix_abstract(name);
  EXPECT_THROW((void)listen_unix_abstract(name), SystemError);
  listener.reset();
  EXPECT_THROW((void)connect_unix_abstract(name, soon()), SystemError);
  EXPECT_TRUE(listen_unix_abstract(name));
}

TEST(LocalSocket, a_name_that_is_empty_or_too_long_is_refused) {
  EXPECT_THROW((void)listen_unix_abstract(""), UsageError);
  EXPECT_THROW((void)listen_unix_abstract(std::string(108, 'x')), UsageError);
  EXPECT_TRUE(listen_unix_abstract(std::string(90, 'x') + std::to_string(::getpid())));
}

}  // namespace
}  // namespace paceline::net
