// SPDX-License-Identifier: Apache-2.0
#include "apps/compare_command.h"

#include <CLI/CLI.hpp>

#include "apps/torch_program.h"
#include "paceline/net/exec.h"

namespace paceline::apps {
namespace {

[[noreturn]] void become_compare(const std::vector<std::string>& arguments) {
  net::become(torch_program("paceline-compare", "paceline compare"), arguments);
}

}  // namespace

void add_compare_command(CLI::App& root, Action& action) {
  CLI::App* compare = root.add_subcommand(
      "compare", "Trains one model alone, with DP and with DDP, and says which is better here");
  compare->set_help_flag();  // the other program's
  compare->prefix_command();
  compare->callback([compare, &action] {
    action = [arguments = compare->remaining()]() -> int { become_compare(arguments); };
  });
}

}  // namespace paceline::apps
