// SPDX-License-Identifier: Apache-2.0
// paceline-step: one rank of `paceline bench step`, a program of its own because it needs LibTorch.
#include <chrono>
#include <cstdio>
#include <exception>
#include <string>
#include <vector>

#include "apps/bench/step_options.h"
#include "apps/bench/step_report.h"
#include "apps/bench/step_training.h"
#include "apps/compare/meeting_place.h"
#include "apps/number_option.h"
#include "paceline/base/error.h"
#include "paceline/comm/init.h"
#include "paceline/net/terminal.h"

namespace {

using namespace paceline::apps;

/// `arguments`: model, optimizer, modes, steps, and the place that rank 0 tells its figures.
void run_rank(const std::vector<std::string>& arguments) {
  StepWords words;
  std::int64_t steps = 0;
  if (arguments.size() != 5 || !read_number(arguments[3], steps).empty()) {
    throw paceline::UsageError("paceline-step is for `paceline bench step`: start that instead");
  }
  words.model = arguments[0];
  words.optimizer = arguments[1];
  words.modes = arguments[2];
  words.steps = steps;
  paceline::Communicator comm = paceline::init();
  words.ranks = comm.world_size();
  const StepFigures figures = train_steps(comm, step_options_from(words));
  if (comm.rank() != 0) return;
  visit(arguments[4], "")
      .send("figures", text_of(figures), paceline::Deadline::after(std::chrono::minutes(1)));
}

int fail(const std::exception& error, int code) {
  std::fputs(("paceline: " + std::string(error.what()) + "\n").c_str(), stderr);
  return code;
}

}  // namespace

int main(int argc, char** argv) {
  paceline::net::open_missing_standard_streams();
  try {
    run_rank(std::vector<std::string>(argv + 1, argv + argc));
    return 0;
  } catch (const paceline::UsageError& error) {
    return fail(error, 2);
  } catch (const std::exception& error) {
    return fail(error, 1);
  }
}
