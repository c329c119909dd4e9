// SPDX-License-Identifier: Apache-2.0
// The `paceline` command: reads the command line and runs one subcommand.
#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <exception>
#include <string>
#include <system_error>
#include <vector>

#include "apps/bench_command.h"
#include "apps/command.h"
#include "apps/compare_command.h"
#include "apps/run_command.h"
#include "apps/sim_command.h"
#include "paceline/base/error.h"
#include "paceline/net/terminal.h"

namespace {

using Texts = std::vector<std::string>;

/// What stands before and after `--`. Split by hand: CLI11 would look into a program's arguments.
struct CommandLine {
  Texts ours;
  Texts program;
};

CommandLine split(const Texts& arguments) {
  const auto mark = std::find(arguments.begin(), arguments.end(), "--");
  CommandLine line{{arguments.begin(), mark}, {}};
  if (mark != arguments.end()) line.program.assign(mark + 1, arguments.end());
  return line;
}

/// Tells what is wrong, and where to read what would be right.
[[noreturn]] void refuse(const CLI::App& app,
                         const CLI::ParseError& error,
                         const CommandLine& line) {
  std::string what = error.what();
  const bool unexpected = dynamic_cast<const CLI::ExtrasError*>(&error) != nullptr;
  if (unexpected && app.got_subcommand("run") && line.program.empty())
    what += "; write the program after --, as in `paceline run -n 2 -- ./train`";
  if (app.get_subcommands().empty() && !app.remaining().empty())  // CLI11 would not name it
    what = fmt::format("'{}' is neither an option nor a subcommand", app.remaining().front());
  std::string command = app.get_name();
  for (const CLI::App* chosen : app.get_subcommands()) command += " " + chosen->get_name();
  throw paceline::UsageError(fmt::format("{}, see {} --help", what, command));
}

/// Parses, and returns the exit code if that is all there is to do.
int run(const Texts& arguments) {
  const CommandLine line = split(arguments);
  CLI::App app("paceline: data-parallel training on N ranks, without a framework around it");
  app.name("paceline");
  app.set_version_flag("--version", PACELINE_VERSION);
  app.require_subcommand(1);
  paceline::apps::Action action;
  paceline::apps::add_run_command(app, action, line.program);
  paceline::apps::add_sim_command(app, action);
  paceline::apps::add_compare_command(app, action);
  paceline::apps::add_bench_command(app, action);
  try {
    Texts reversed(line.ours.rbegin(), line.ours.rend());  // as CLI11 wants them
    app.parse(reversed);
  } catch (const CLI::ParseError& error) {
    if (error.get_exit_code() != 0) refuse(app, error, line);
    return app.exit(error);  // prints the help or the version that was asked for
  }
  if (!line.program.empty() && !app.got_subcommand("run"))
    throw paceline::UsageError("only `paceline run` takes a program after --");
  return action();
}

int fail(const std::string& what, int code) {
  std::fputs(("paceline: " + what + "\n").c_str(), stderr);  // where it fails too, nobody listens
  return code;
}

/// What was printed may still lie in a buffer: a full disk must not look like success.
int flush(int code) {
  if (std::fflush(stdout) == 0 && std::ferror(stdout) == 0) return code;
  return fail(
      fmt::format("cannot write to standard output: {}", std::generic_category().message(errno)),
      code == 0 ? 1 : code);
}

}  // namespace

int main(int argc, char** argv) {
  paceline::net::open_missing_standard_streams();
  try {
    return flush(run(Texts(argv + 1, argv + argc)));
  } catch (const paceline::UsageError& error) {
    return fail(error.what(), 2);
  } catch (const std::exception& error) {
    return fail(error.what(), 1);
  }
}
