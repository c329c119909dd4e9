// SPDX-License-Identifier: Apache-2.0
#include "apps/sim_command.h"

#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <array>
#include <cstdio>
#include <memory>

#include "apps/number_option.h"
#include "apps/sim_text.h"
#include "paceline/base/error.h"

namespace paceline::apps {
namespace {

constexpr const char* kSimFooter =
    "Executes, in memory, the very schedules that the library runs on its links, and counts what\n"
    "each link carries; the closed formula stands beside each count. Rank r begins with\n"
    "[10r, 10r+1, ...]. The exit code is 1 if anything differs.\n\n"
    "  paceline sim                         the classic ring: 4 ranks, 8 elements; volumes of DP\n"
    "                                       and ring for N = 2, 4, 8, 16\n"
    "  paceline sim --steps                 the slices of each rank after every step\n"
    "  paceline sim --ranks 5 --elements 7  chunks that differ in length\n"
    "  paceline sim --json                  ring: ranks, elements, result, expected, matches,\n"
    "                                       bits_equal, link_elements, total_elements; volume:\n"
    "                                       ranks, dp_master, dp_device, ring_link, formula, in\n"
    "                                       multiples of M";

std::string text_of(const SimOptions& options,
                    const RingReport& ring,
                    const std::vector<VolumeRow>& volumes) {
  if (options.json) return json_of(ring, volumes);
  const std::string steps = options.steps ? steps_of(ring) + "\n" : "";
  return steps + text_of(ring) + "\n" + text_of(volumes);
}

}  // namespace

SimOutput run_sim(const SimOptions& options) {
  if (options.json && options.steps) {
    throw UsageError("--json and --steps: choose one, JSON has no steps");
  }
  if (options.elements < 1) {
    throw UsageError(fmt::format("--elements is {}: it must be at least 1", options.elements));
  }
  const RingReport ring = run_ring(options.ranks, static_cast<std::uint64_t>(options.elements),
                                   options.steps ? Record::kSteps : Record::kNothing);
  constexpr std::array kWorlds{2, 4, 8, 16};
  const std::vector<VolumeRow> volumes = run_volumes(kWorlds);
  const bool passed = ring.passed() && std::all_of(volumes.begin(), volumes.end(), [](auto& row) {
                        return row.counted == row.formula;
                      });
  return {.text = text_of(options, ring, volumes), .exit_code = passed ? 0 : 1};
}

void add_sim_command(CLI::App& root, Action& action) {
  CLI::App* sim = root.add_subcommand("sim", "run collectives in memory and count what they move");
  auto options = std::make_shared<SimOptions>();
  add_number(*sim, "--ranks", options->ranks, "ranks in the ring (4)")->type_name("N");
  add_number(*sim, "--elements", options->elements, "elements that each rank holds (8)")
      ->type_name("n");
  sim->add_flag("--json", options->json, "print one JSON object instead of text");
  sim->add_flag("--steps", options->steps, "show the slices of each rank after every step");
  sim->footer(kSimFooter);
  sim->callback([options, &action] {
    action = [options] {
      const SimOutput output = run_sim(*options);
      fmt::print("{}", output.text);
      return output.exit_code;
    };
  });
}

}  // namespace paceline::apps
