// SPDX-License-Identifier: Apache-2.0
#include "apps/bench/step_report.h"

#include <fmt/format.h>

#include <algorithm>
#include <nlohmann/json.hpp>

#include "paceline/net/host.h"

namespace paceline::apps {
namespace {

using Json = nlohmann::ordered_json;

double least_of(const std::vector<double>& values) { return *std::ranges::min_element(values); }

/// Of an even number of values, the mean of the two in the middle.
double median_of(std::vector<double> values) {
  std::ranges::sort(values);
  const std::size_t half = values.size() / 2;
  return values.size() % 2 == 1 ? values[half] : (values[half - 1] + values[half]) / 2;
}

const ModeTimes* local_of(const StepFigures& figures) {
  const auto found = std::ranges::find(figures.modes, StepMode::kLocal, &ModeTimes::mode);
  return found == figures.modes.end() ? nullptr : &*found;
}

std::string row_of(const ModeTimes& times, const StepFigures& figures) {
  const auto overhead = overhead_ms(times, figures);
  const double us = 1e3 * overhead.value_or(0) / static_cast<double>(figures.tensors);
  return fmt::format("{:>8} {:>10.3f} {:>10.3f} {:>10} {:>10} {:>13} {:>13}\n", name_of(times.mode),
                     least_of(times.step_ms), median_of(times.step_ms),
                     overhead ? fmt::format("{:.3f}", *overhead) : "-",
                     overhead ? fmt::format("{:.2f}", us) : "-", times.bytes_in_place,
                     times.bytes_copied);
}

}  // namespace

std::string text_of(const StepFigures& figures) {
  Json modes = Json::array();
  for (const ModeTimes& times : figures.modes) {
    modes.push_back({{"mode", times.mode},
                     {"step_ms", times.step_ms},
                     {"bytes_copied", times.bytes_copied},
                     {"bytes_in_place", times.bytes_in_place}});
  }
  return Json{{"link", figures.link},
              {"link_reason", figures.link_reason},
              {"parameters", figures.parameters},
              {"tensors", figures.tensors},
              {"modes", modes}}
      .dump();
}

StepFigures step_figures_from(const std::string& text) {
  const Json json = Json::parse(text);
  StepFigures figures{.link = json.at("link"),
                      .link_reason = json.at("link_reason"),
                      .parameters = json.at("parameters"),
                      .tensors = json.at("tensors"),
                      .modes = {}};
  for (const Json& one : json.at("modes")) {
    figures.modes.push_back({.mode = one.at("mode"),
                             .step_ms = one.at("step_ms").get<std::vector<double>>(),
                             .bytes_copied = one.at("bytes_copied"),
                             .bytes_in_place = one.at("bytes_in_place")});
  }
  return figures;
}

std::optional<double> overhead_ms(const ModeTimes& times, const StepFigures& figures) {
  const ModeTimes* const local = local_of(figures);
  if (local == nullptr) return std::nullopt;
  const auto steps = static_cast<std::int64_t>(times.step_ms.size());
  double sum = 0;
  int stretches = 0;
  for (std::int64_t s = 0; s < kStepStretches; ++s) {
    std::vector<double> differences;
    for (auto i = begin_of_stretch(s, steps); i < begin_of_stretch(s + 1, steps); ++i) {
      const auto at = static_cast<std::size_t>(i);
      differences.push_back(times.step_ms[at] - local->step_ms.at(at));
    }
    if (differences.empty()) continue;
    sum += median_of(std::move(differences));
    ++stretches;
  }
  return stretches == 0 ? 0 : sum / stretches;
}

std::string introduction_of(const StepOptions& options) {
  std::string modes;
  for (const StepMode mode : options.modes) {
    modes += fmt::format("{}{}", modes.empty() ? "" : " and ", name_of(mode));
  }
  return fmt::format("{}: {} steps of {} in turns, {} ranks with {} samples each, {}, {} cores\n",
                     options.model.name, options.steps, modes, options.ranks, options.model.batch,
                     options.optimizer, net::usable_cores());
}

std::string table_of(const StepFigures& figures) {
  std::string text = fmt::format(
      "{} parameters in {} tensors; ranks joined by {}{}\n"
      "milliseconds of a step, the slowest rank's; bytes of gradients in one step\n\n"
      "{:>8} {:>10} {:>10} {:>10} {:>10} {:>13} {:>13}\n",
      figures.parameters, figures.tensors, figures.link,
      figures.link_reason.empty() ? "" : fmt::format(" ({})", figures.link_reason), "mode", "min",
      "median", "overhead", "us/tensor", "in place", "copied");
  for (const ModeTimes& times : figures.modes) text += row_of(times, figures);
  return text;
}

std::string json_of(const StepFigures& figures, const StepOptions& options) {
  Json rows = Json::array();
  for (const ModeTimes& times : figures.modes) {
    const auto overhead = overhead_ms(times, figures);
    rows.push_back(
        {{"mode", name_of(times.mode)},
         {"optimizer", options.optimizer},
         {"step_ms", {{"min", least_of(times.step_ms)}, {"median", median_of(times.step_ms)}}},
         {"overhead_ms", overhead ? Json(*overhead) : Json()},
         {"bytes_copied", times.bytes_copied},
         {"bytes_in_place", times.bytes_in_place},
         {"steps_ms", times.step_ms}});
  }
  return Json{{"ranks", options.ranks},
              {"model", options.model.name},
              {"parameters", figures.parameters},
              {"tensors", figures.tensors},
              {"batch", options.model.batch},
              {"link", figures.link},
              {"link_reason", figures.link_reason},
              {"cores", net::usable_cores()},
              {"rows", rows}}
             .dump(1) +
         "\n";
}

}  // namespace paceline::apps
