// SPDX-License-Identifier: Apache-2.0
#include "apps/run_command.h"

#include <CLI/CLI.hpp>
#include <algorithm>
#include <cmath>
#include <memory>
#include <utility>

#include "apps/launcher/options.h"
#include "apps/launcher/supervisor.h"
#include "apps/number_option.h"

namespace paceline::apps {
namespace {

constexpr const char* kRunFooter =
    "The program and its arguments stand after `--`:\n"
    "  paceline run -n 4 -- ./train --lr 0.1\n"
    "  paceline run -n 4 --nnodes 2 --node-rank K --master-addr node0 --master-port 29500 \\\n"
    "    --secret-file ~/.paceline-secret -- ./train --lr 0.1      (the same on each host)\n\n"
    "Each rank gets RANK, WORLD_SIZE, LOCAL_RANK, LOCAL_WORLD_SIZE, GROUP_RANK,\n"
    "GROUP_WORLD_SIZE, MASTER_ADDR, MASTER_PORT and, unless it is set, OMP_NUM_THREADS.\n"
    "The exit code is that of the first rank that fails (128 + signal), 0 if none does;\n"
    "docs/launching.md has the rest.";

/// Seconds beyond reason stay beyond reason, but fit.
std::chrono::milliseconds to_milliseconds(double seconds) {
  constexpr double kMost = 1e12;
  return std::chrono::milliseconds(
      static_cast<std::int64_t>(std::clamp(std::ceil(seconds * 1000), -kMost, kMost)));
}

/// CLI11 wants places to store to that live as long as the parser.
struct Flags {
  RunOptions options;
  int master_port = 0;
  std::string log_dir;
  double connect_timeout = 60;
  double grace = 10;
};

void add_flags(CLI::App& run, Flags& flags) {
  RunOptions& options = flags.options;
  add_number(run, "-n,--nproc-per-node,--nproc_per_node", options.ranks, "ranks on this host")
      ->required()
      ->type_name("N");
  add_number(run, "--nnodes", options.nodes, "hosts (1)")->type_name("H");
  add_number(run, "--node-rank,--node_rank", options.node_rank, "which host this is, 0 .. H-1 (0)")
      ->type_name("K");
  run.add_option("--master-addr,--master_addr", options.master_addr,
                 "name or address of host 0, as the others reach it")
      ->type_name("A");
  add_number(run, "--master-port,--master_port", flags.master_port,
             "port of the meeting place on host 0 (one host: any free one)")
      ->type_name("P");
  run.add_option("--secret-file", options.secret_file,
                 "file of mode 0600 that is the same on all hosts; or PACELINE_SECRET_FILE;\n"
                 "PACELINE_AUTH=none does without")
      ->type_name("F");
  add_number(run, "--connect-timeout", flags.connect_timeout,
             "seconds to wait until all ranks have come (60)")
      ->type_name("S");
  add_number(run, "--grace", flags.grace,
             "seconds from SIGTERM to SIGKILL when the ranks have to end (10)")
      ->type_name("S");
  run.add_option("--log-dir,--log_dir", flags.log_dir,
                 "folder for rankK.out and rankK.err, as the ranks wrote them")
      ->type_name("D");
}

}  // namespace

void add_run_command(CLI::App& root, Action& action, std::vector<std::string> program) {
  CLI::App* run = root.add_subcommand("run", "Starts N ranks of a program and watches over them");
  run->footer(kRunFooter);
  const auto flags = std::make_shared<Flags>();
  flags->options.command = std::move(program);
  add_flags(*run, *flags);
  run->callback([run, flags, &action] {
    RunOptions& options = flags->options;
    if (run->count("--master-port") > 0) options.master_port = flags->master_port;
    if (run->count("--log-dir") > 0) options.log_dir = flags->log_dir;
    options.connect_timeout = to_milliseconds(flags->connect_timeout);
    options.grace = to_milliseconds(flags->grace);
    action = [flags] { return launch(flags->options); };
  });
}

}  // namespace paceline::apps
