// SPDX-License-Identifier: Apache-2.0
#include "apps/bench_step_command.h"

#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <cstdio>
#include <memory>
#include <optional>
#include <stdexcept>

#include "apps/bench/rank_processes.h"
#include "apps/bench/step_options.h"
#include "apps/bench/step_report.h"
#include "apps/number_option.h"
#include "apps/torch_program.h"
#include "examples/03_ddp_fashion_mnist/output_file.h"
#include "paceline/base/error.h"
#include "paceline/net/host.h"

namespace paceline::apps {
namespace {

constexpr const char* kStepFooter =
    "Starts N ranks, one thread each. They take one step of each mode in turn, and start each\n"
    "step together; a time is that of the slowest rank. Needs LibTorch.\n\n"
    "  paceline bench step                           the mlp on 2 ranks\n"
    "  paceline bench step -n 4 --model gpt --optimizer adam\n"
    "  paceline bench step -n 1                      what the wrapper alone costs\n"
    "  paceline bench step --model many              what a parameter costs\n\n"
    "local     each rank trains alone, all at the same time: nothing is averaged\n"
    "ddp       DistributedDataParallel\n"
    "shared    SharedSGD or SharedAdam: parameters and state exist once, each rank updates a "
    "share\n"
    "overhead  what a step took longer than local's of the same turn: the medians of four "
    "stretches,\n"
    "          each with new models, and their mean\n"
    "in place  gradients that were averaged where backward had left them; copied: that were not\n\n"
    "mlp       3 x (linear 2048 to 2048, ReLU), linear to 10; 8 samples on each rank\n"
    "cnn       that of `paceline compare`; 32\n"
    "gpt       4 blocks, 4 heads, 256 wide; 8. gpt-wide: 512 wide; 16\n"
    "many      500 parameters of 4 KiB; 8\n\n"
    "PACELINE_LINK chooses the link. Let the machine be quiet. JSON: ranks, model, parameters,\n"
    "tensors, batch, link, link_reason, cores, rows (mode, optimizer, step_ms (min, median),\n"
    "overhead_ms, bytes_copied, bytes_in_place, steps_ms).";

/// CLI11 wants places to store to that live as long as the parser.
struct StepFlags {
  StepWords words;
  std::int64_t steps = 0;
  std::string json;
};

void add_step_flags(CLI::App& step, StepFlags& flags) {
  StepWords& words = flags.words;
  add_number(step, "-n", words.ranks, "ranks, 1 to 64 (2)")->type_name("N");
  step.add_option("--model", words.model, "mlp, cnn, gpt, gpt-wide or many (mlp)")->type_name("M");
  step.add_option("--optimizer", words.optimizer, "sgd or adam (sgd)")->type_name("O");
  step.add_option("--mode", words.modes, "what is timed (local,ddp,shared)")->type_name("A,B");
  add_number(step, "--steps", flags.steps, "that are measured, of each mode (30 to 150)")
      ->type_name("S");
  step.add_option("--json", flags.json, "write all figures there")->type_name("FILE");
}

void print_now(const std::string& text) {
  fmt::print("{}", text);
  std::fflush(stdout);
}

int bench_steps(const StepWords& words, const std::optional<std::string>& json) {
  const StepOptions options = step_options_from(words);
  const RankProcesses ranks{
      .count = options.ranks,
      .program = torch_program("paceline-step", "paceline bench step"),
      .arguments = {words.model, words.optimizer, words.modes, std::to_string(options.steps)},
      .environment = net::environment_variables()};
  std::optional<example::OutputFile> file;
  if (json) file.emplace("--json", *json);  // before the work, not after
  print_now(introduction_of(options));
  std::optional<StepFigures> figures;
  const int code = run_ranks(
      ranks, [&](const Connection::Text& text) { figures = step_figures_from(text.body); });
  if (code != 0) return code;
  if (!figures) throw std::runtime_error("the ranks have ended without telling their times");
  print_now(table_of(*figures));
  if (file) {
    file->write(json_of(*figures, options));
    file->commit();
  }
  return 0;
}

}  // namespace

void add_bench_step_command(CLI::App& bench, Action& action) {
  CLI::App* const step =
      bench.add_subcommand("step", "Times training steps, beside ranks that train alone");
  step->footer(kStepFooter);
  const auto flags = std::make_shared<StepFlags>();
  add_step_flags(*step, *flags);
  step->callback([step, flags, &action] {
    const bool writes = step->count("--json") > 0;
    if (step->count("--steps") > 0) flags->words.steps = flags->steps;
    action = [flags, writes] {
      if (writes && flags->json.empty()) throw UsageError("--json is empty: it must name a file");
      return bench_steps(flags->words, writes ? std::optional(flags->json) : std::nullopt);
    };
  });
}

}  // namespace paceline::apps
