// SPDX-License-Identifier: Apache-2.0
#include "paceline/store/dial.h"

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <thread>

#include "paceline/net/host.h"
#include "paceline/net/poll.h"
#include "paceline/net/socket.h"
#include "paceline/net/stream.h"
#include "tests/store/meeting.h"

namespace paceline::store {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;

Deadline soon() { return Deadline::after(seconds(20)); }

JoinOptions to(const std::string& host,
               std::uint16_t port,
               milliseconds connect_timeout = milliseconds(100)) {
  return {.rank = 1,
          .world = 2,
          .host = host,
          .port = port,
          .named_by = "HOST, PORT",
          .secret = {},
          .algorithm = "",
          .connect_timeout = connect_timeout};
}

/// What dialling ends in, kConnectFailed each time.
std::string failure(const JoinOptions& options) {
  try {
    (void)dial_store(options, Deadline::after(options.connect_timeout));
  } catch (const CommError& error) {
    EXPECT_EQ(error.code(), CommErrc::kConnectFailed);
    EXPECT_EQ(error.rank(), 1);
    return error.what();
  }
  ADD_FAILURE() << "no CommError";
  return {};
}

void expect_start(const std::string& text, const std::string& start) {
  EXPECT_EQ(text.substr(0, start.size()), start);
}

TEST(Dial, names_the_store_as_it_was_given) {
  EXPECT_EQ(name_of_store(to("node7", 29500)), "node7:29500");
  EXPECT_EQ(name_of_store(to("@name", 0)), "@name");
}

TEST(Dial, names_address_and_source_where_nobody_listens) {
  net::Fd closed = net::listen_tcp("127.0.0.1", 0);
  const auto port = net::local_port(closed);
  closed.reset();
  expect_start(
      failure(to("127.0.0.1", port)),
      fmt::format("rank 1: the store at 127.0.0.1:{0} (HOST, PORT) cannot be reached within "
                  "100 ms: connecting to 127.0.0.1:{0} failed: Connection refused; ",
                  port));
}

TEST(Dial, names_address_and_source_of_an_unknown_host) {
  expect_start(failure(to("no such host", 29500)),
               "rank 1: the store at no such host:29500 (HOST, PORT) cannot be reached within 100 "
               "ms: looking up host 'no such host' failed: ");
}

TEST(Dial, names_source_and_socket_where_nobody_serves_a_local_store) {
  const std::string name = fmt::format("@paceline-nobody-{}", net::process_id());
  EXPECT_EQ(failure(to(name, 0)),
            fmt::format("rank 1: the store at {0} (HOST, PORT) cannot be reached within 100 ms: "
                        "connecting to {0} failed: Connection refused; is the other side running?",
                        name));
}

TEST(Dial, without_a_source_it_names_the_address_alone) {
  JoinOptions options = to("no such host", 29500);
  options.named_by.clear();
  expect_start(failure(options), "rank 1: the store at no such host:29500 cannot be reached");
}

TEST(Dial, something_else_at_the_stores_port_is_told_from_a_store) {
  const net::Fd listener = net::listen_tcp("127.0.0.1", 0);
  std::jthread other([&] {
    const net::Fd socket = net::accept(listener, soon());
    const std::string words = "HTTP/1.1 400 Bad Request\r\n\r\n";
    net::send_all(socket, std::as_bytes(std::span(words)), soon());
    (void)net::wait_readable(socket, soon());
  });
  const auto port = net::local_port(listener);
  EXPECT_EQ(failure(to("127.0.0.1", port, seconds(60))),
            fmt::format("rank 1: no admission to the store at 127.0.0.1:{} (HOST, PORT): the other "
                        "end does not speak paceline's protocol; is this the address at which the "
                        "store listens?",
                        port));
}

TEST(Dial, a_store_that_never_speaks_is_given_up_at_the_deadline) {
  const net::Fd listener = net::listen_tcp("127.0.0.1", 0);
  const auto port = net::local_port(listener);
  EXPECT_EQ(failure(to("127.0.0.1", port)),
            fmt::format("rank 1: the store at 127.0.0.1:{} (HOST, PORT) takes connections but does "
                        "not finish the handshake within 100 ms; is it stopped, or does something "
                        "else listen there?",
                        port));
}

TEST(Dial, names_address_and_source_if_the_secret_differs) {
  test::Store store(2);
  JoinOptions options = store.options(1);
  options.named_by = "HOST, PORT";
  options.secret = test::make_secret();
  try {
    (void)dial_store(options, soon());
    FAIL();
  } catch (const CommError& error) {
    EXPECT_EQ(error.code(), CommErrc::kRefused);
    EXPECT_EQ(std::string(error.what()),
              fmt::format("rank 1: no admission to the store at 127.0.0.1:{} (HOST, PORT): the "
                          "secret differs from the one at the other end",
                          store.port()));
  }
}

}  // namespace
}  // namespace paceline::store
