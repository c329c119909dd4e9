// SPDX-License-Identifier: Apache-2.0
#include "apps/compare/comparison_json.h"

#include <algorithm>
#include <nlohmann/json.hpp>
#include <utility>

#include "apps/compare/machine.h"
#include "apps/compare/words.h"

namespace paceline::apps {
namespace {

using Json = nlohmann::ordered_json;

Json machine_json() {
  const Machine machine = this_machine();
  return {{"cores", machine.cores},
          {"cpu", machine.cpu},
          {"memory_bytes", machine.memory_bytes},
          {"system", machine.system}};
}

/// The participant with the most bytes, and its fellows.
struct Shares {
  std::uint64_t busiest = 0;
  std::vector<std::uint64_t> others = {};
};

Shares shares_of(std::vector<std::uint64_t> bytes) {
  if (bytes.empty()) return {};
  const auto busiest = std::ranges::max_element(bytes);
  Shares shares{.busiest = *busiest};
  bytes.erase(busiest);
  shares.others = std::move(bytes);
  return shares;
}

Json bytes_json(const StepTraffic& traffic) {
  std::vector<std::uint64_t> both;
  Json participants = Json::array();
  for (const ParticipantBytes& one : traffic.participants) {
    both.push_back(one.both());
    participants.push_back({{"name", one.name}, {"sent", one.sent}, {"received", one.received}});
  }
  Json links = Json::array();
  for (const LinkBytes& link : traffic.links) {
    links.push_back({{"from", link.from}, {"to", link.to}, {"bytes", link.bytes}});
  }
  const Shares shares = shares_of(std::move(both));
  return {{"busiest", shares.busiest},
          {"others", shares.others},
          {"per_link", traffic.per_link},
          {"scatter", traffic.scatter_bytes},
          {"gather", traffic.gather_bytes},
          {"by_participant", participants},
          {"links", links}};
}

Json formula_json(const TrafficFormula& formula) {
  const Shares shares = shares_of(formula.participants);
  return {{"M", formula.model_bytes},
          {"busiest", shares.busiest},
          {"others", shares.others},
          {"per_link", formula.per_link},
          {"text", formula.text}};
}

Json buckets_json(const std::vector<BucketFacts>& buckets) {
  Json all = Json::array();
  for (const BucketFacts& bucket : buckets) {
    all.push_back({{"label", bucket.label},
                   {"bytes", bucket.count * size_of(bucket.dtype)},
                   {"algorithm", name_of(bucket.algorithm)},
                   {"parameters", bucket.parameters}});
  }
  return all;
}

Json timeline_json(const RunResult& run) {
  Json lanes = Json::array();
  for (const TraceLane& lane : run.timeline.lanes) {
    Json spans = Json::array();
    for (const TraceSpan& span : lane.spans) {
      spans.push_back({{"kind", span.kind},
                       {"label", span.label},
                       {"begin_us", span.begin_us},
                       {"end_us", span.end_us},
                       {"bytes", span.bytes}});
    }
    lanes.push_back({{"name", lane.name}, {"spans", spans}});
  }
  return {{"step", run.median_step}, {"lanes", lanes}};
}

Json run_json(const RunResult& run) {
  Json json{{"mechanism", name_of(run.contestant.mechanism)},
            {"ranks", run.contestant.ranks},
            {"step_ms",
             {{"median", run.step_ms.median}, {"p10", run.step_ms.p10}, {"p90", run.step_ms.p90}}},
            {"samples_per_s", run.samples_per_s},
            {"speed_up", run.speed_up},
            {"efficiency", run.speed_up / run.contestant.ranks},
            {"processes", run.count.processes},
            {"threads", run.count.threads},
            {"bytes", bytes_json(run.traffic)},
            {"formula", formula_json(run.formula)},
            {"messages_per_step", run.traffic.messages},
            {"header_bytes_per_step", run.traffic.header_bytes}};
  const auto& cost = run.communication;
  json["overlap"] = cost ? Json(cost->share_hidden()) : Json();
  json["communication_ms"] = cost ? Json(cost->ms) : Json();
  json["device0_peak_bytes"] = run.device0_peak_bytes;
  json["final_loss"] = run.losses.back();
  json["losses"] = run.losses;
  json["step_times_ms"] = run.step_times_ms;
  json["buckets"] = buckets_json(run.buckets);
  json["timeline"] = timeline_json(run);
  return json;
}

Json counted_json(const Counted& counted) {
  return {{"formula", counted.formula},
          {"simulated", counted.simulated},
          {"measured", counted.measured ? Json(*counted.measured) : Json()}};
}

Json ring_json(const RingWalk& ring) {
  const std::size_t element_bytes = size_of(ring.bucket.dtype);
  Json chunks = Json::array();
  for (const Range& chunk : ring.chunks) {
    chunks.push_back({{"begin", chunk.begin}, {"end", chunk.end}});
  }
  Json steps = Json::array();
  for (std::size_t i = 0; i < ring.steps.size(); ++i) {
    Json sends = Json::array();
    for (const RingSend& send : ring.steps[i]) {
      sends.push_back({{"from", send.from},
                       {"to", send.to},
                       {"chunk", send.chunk},
                       {"begin", send.elements.begin},
                       {"end", send.elements.end},
                       {"bytes", send.elements.size() * element_bytes}});
    }
    const bool adds = i + 1 < static_cast<std::size_t>(ring.ranks);
    steps.push_back({{"phase", adds ? "reduce_scatter" : "all_gather"}, {"sends", sends}});
  }
  return {
      {"ranks", ring.ranks},         {"count", ring.bucket.count}, {"element_bytes", element_bytes},
      {"bucket", ring.bucket.label}, {"chunks", chunks},           {"steps", steps}};
}

void add_scale(Json& json, const Comparison& comparison) {
  json["traffic"] = Json::array();
  json["growth"] = Json::array();
  for (const ScaleRow& row : comparison.scale) {
    json["traffic"].push_back(
        {{"ranks", row.ranks}, {"dp", counted_json(row.dp)}, {"ddp", counted_json(row.ddp)}});
    json["growth"].push_back({{"ranks", row.ranks},
                              {"dp_device0_peak_bytes", row.dp_device0_bytes},
                              {"ddp_device0_peak_bytes", row.ddp_rank0_bytes}});
  }
}

Json table_json(const Comparison& comparison) {
  Json table = Json::array();
  for (const TableSection& section : table_of(comparison)) {
    Json rows = Json::array();
    for (const TableRow& row : section.rows) {
      rows.push_back({{"what", row.what}, {"dp", row.dp}, {"ddp", row.ddp}});
    }
    table.push_back({{"dimension", section.dimension}, {"rows", rows}});
  }
  return table;
}

Json settings_json(const CompareOptions& options) {
  return {{"steps", options.steps},
          {"warm_up_steps", kWarmUpSteps},
          {"batch_size", options.batch_size},
          {"algorithm", options.algorithm ? name_of(*options.algorithm) : "auto"},
          {"learning_rate", options.learning_rate},
          {"seed", options.seed},
          {"ranks", options.ranks}};
}

}  // namespace

std::string json_of(const Comparison& comparison, const Origin& origin) {
  const ModelFacts& facts = comparison.facts;
  Json json{{"paceline", origin.version},
            {"made", origin.made},
            {"command", origin.command},
            {"verdict", verdict_of(comparison)},
            {"losses_agree", comparison.losses_agree},
            {"loss_tolerance", kLossTolerance},
            {"largest_loss_difference", comparison.largest_loss_difference},
            {"machine", machine_json()},
            {"model",
             {{"name", comparison.options.model},
              {"description", facts.description},
              {"parameters", facts.parameters},
              {"trainable_bytes", facts.trainable_bytes},
              {"tensors", facts.tensors}}},
            {"data", {{"name", facts.data_name}, {"samples", facts.samples}, {"unit", facts.unit}}},
            {"settings", settings_json(comparison.options)}};
  json["machine"]["load_before"] = comparison.load_before;
  json["machine"]["libtorch"] = facts.libtorch;
  json["runs"] = Json::array();
  for (const RunResult& run : comparison.runs) json["runs"].push_back(run_json(run));
  add_scale(json, comparison);
  json["ring"] = ring_json(comparison.ring);
  json["table"] = table_json(comparison);
  json["notes"] = notes_of(comparison);
  // Names of files may hold bytes that are no UTF-8.
  return json.dump(1, ' ', false, Json::error_handler_t::replace) + "\n";
}

}  // namespace paceline::apps
