// SPDX-License-Identifier: Apache-2.0
#include "apps/compare_command.h"

#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <filesystem>
#include <stdexcept>

#include "apps/compare/process_count.h"
#include "paceline/net/exec.h"

namespace paceline::apps {
namespace {

[[noreturn]] void become_compare(const std::vector<std::string>& arguments) {
  const std::filesystem::path program = this_program().parent_path() / "paceline-compare";
  std::error_code ignored;
  if (!std::filesystem::exists(program, ignored)) {
    throw std::runtime_error(fmt::format(
        "`paceline compare` needs LibTorch, and this paceline was built without it: there is no "
        "'{}'. Build with -DPACELINE_TORCH=ON",
        program.string()));
  }
  net::become(program, arguments);
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
