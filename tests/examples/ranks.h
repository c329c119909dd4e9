// SPDX-License-Identifier: Apache-2.0
#pragma once
/// @file
/// Runs a program on ranks, by the command that a user types.

#include <gtest/gtest.h>

#include <array>
#include <chrono>
#include <string>
#include <vector>

#include "paceline/net/child.h"
#include "paceline/net/host.h"
#include "paceline/net/poll.h"
#include "paceline/net/stream.h"

namespace example::tests {

using Texts = std::vector<std::string>;

struct Ran {
  int code = -1;
  std::string output;
  std::string error;
};

/// Moves what is there into `text`; lets go of `from` at its end.
inline void pump(paceline::net::Fd& from, std::string& text) {
  std::array<std::byte, 4096> into{};
  const paceline::net::IoResult got = paceline::net::try_read(from, into);
  text.append(reinterpret_cast<const char*>(into.data()), got.bytes);
  if (got.closed) from.reset();
}

inline Ran finish(paceline::net::Child child) {
  const auto limit = paceline::Deadline::after(std::chrono::minutes(4));
  Ran ran;
  paceline::net::Fd& output = child.standard_output();
  paceline::net::Fd& error = child.standard_error();
  while (output || error) {
    std::array<paceline::net::PollItem, 2> items{
        {{.fd = &output, .recv = true}, {.fd = &error, .recv = true}}};
    if (paceline::net::poll(items, limit) == 0) break;
    if (items[0].can_recv) pump(output, ran.output);
    if (items[1].can_recv) pump(error, ran.error);
  }
  const auto status = child.wait(limit);
  EXPECT_TRUE(status.has_value()) << "still running";
  if (status) ran.code = status->shell_code();
  return ran;
}

/// `paceline run -n <ranks> -- <program>...`, one thread per rank.
inline Ran run_ranks(int ranks, const Texts& program) {
  Texts arguments{"run", "-n", std::to_string(ranks), "--"};
  arguments.insert(arguments.end(), program.begin(), program.end());
  Texts environment{"OMP_NUM_THREADS=1"};
  for (const std::string& entry : paceline::net::environment_variables()) {
    if (!entry.starts_with("OMP_NUM_THREADS=")) environment.push_back(entry);
  }
  return finish(paceline::net::spawn(PACELINE_COMMAND, arguments, environment));
}

inline std::string example_path(const std::string& name) {
  return std::string(PACELINE_EXAMPLES) + "/" + name;
}

}  // namespace example::tests
