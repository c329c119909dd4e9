// SPDX-License-Identifier: Apache-2.0
#include "apps/bench/report.h"

#include <fmt/format.h>

#include <nlohmann/json.hpp>
#include <optional>

#include "paceline/kernel/fold.h"
#include "paceline/net/host.h"

namespace paceline::apps {
namespace {

using Json = nlohmann::ordered_json;

Json json_of(const std::optional<double>& value) { return value ? Json(*value) : Json(); }

std::optional<double> optional_from(const Json& json) {
  return json.is_null() ? std::nullopt : std::optional(json.get<double>());
}

Json json_of(const BenchRow& row) {
  Json segments = Json::array();
  for (const BenchSegment& segment : row.segments) {
    segments.push_back({{"us", segment.us},
                        {"roofline_us", json_of(segment.roofline_us)},
                        {"memcpy_us", json_of(segment.memcpy_us)}});
  }
  return {{"bytes", row.bytes},
          {"us", {{"min", row.min_us}, {"median", row.median_us}, {"p99", row.p99_us}}},
          {"roofline_us", json_of(row.roofline_us)},
          {"memcpy_us", json_of(row.memcpy_us)},
          {"verified", row.verified},
          {"repetitions", row.repetitions},
          {"calls_per_time", row.calls_per_time},
          {"idle_share", json_of(row.idle_share)},
          {"segments", segments}};
}

/// What each rank has to send at the least, as a share of the buffer.
double bus_share(const BenchOptions& options) {
  const double others = static_cast<double>(options.ranks - 1) / options.ranks;
  switch (options.what.value_or(Collective::kBarrier)) {
    case Collective::kAllReduce: return 2 * others;
    case Collective::kReduceScatter:
    case Collective::kAllGather: return others;
    default: return 1;
  }
}

std::string size_text(std::uint64_t bytes) {
  constexpr std::uint64_t kK = 1024, kM = kK * kK;
  if (bytes == 0) return "-";
  if (bytes % kM == 0) return fmt::format("{}M", bytes / kM);
  return bytes % kK == 0 ? fmt::format("{}K", bytes / kK) : fmt::format("{}", bytes);
}

std::string us_text(const std::optional<double>& us) {
  return us ? fmt::format("{:.2f}", *us) : "-";
}

}  // namespace

std::string text_of(const BenchRow& row) { return json_of(row).dump(); }

BenchRow bench_row_from(const std::string& text) {
  const Json json = Json::parse(text);
  BenchRow row{.bytes = json.at("bytes"),
               .min_us = json.at("us").at("min"),
               .median_us = json.at("us").at("median"),
               .p99_us = json.at("us").at("p99"),
               .roofline_us = optional_from(json.at("roofline_us")),
               .memcpy_us = optional_from(json.at("memcpy_us")),
               .verified = json.at("verified"),
               .repetitions = json.at("repetitions"),
               .calls_per_time = json.at("calls_per_time"),
               .idle_share = optional_from(json.at("idle_share"))};
  for (const Json& segment : json.at("segments")) {
    row.segments.push_back({.us = segment.at("us"),
                            .roofline_us = optional_from(segment.at("roofline_us")),
                            .memcpy_us = optional_from(segment.at("memcpy_us"))});
  }
  return row;
}

double algbw_GBps(const BenchRow& row) {
  return static_cast<double>(row.bytes) / (1e3 * row.median_us);
}

double busbw_GBps(const BenchRow& row, const BenchOptions& options) {
  return bus_share(options) * algbw_GBps(row);
}

std::string heading_of(const BenchOptions& options, const BenchReport& report) {
  const std::string what = moves_nothing(options)
                               ? std::string(subject_of(options))
                               : fmt::format("{} of {}, {} memory,", subject_of(options),
                                             name_of(options.dtype), name_of(options.memory));
  const std::string why =
      report.link_reason.empty() ? "" : fmt::format("no shared memory: {}\n", report.link_reason);
  return fmt::format(
      "{} on {} ranks over {}, {} cores, kernels for {}\n{}"
      "microseconds of a call, the slowest rank's; roofline: the same sums without waiting\n\n"
      "{:>8} {:>12} {:>12} {:>12} {:>9} {:>9} {:>12} {:>12}\n",
      what, options.ranks, report.link, net::usable_cores(), kernel::target_name(), why, "bytes",
      "min", "median", "p99", "alg GB/s", "bus GB/s", "roofline", "memcpy");
}

std::string line_of(const BenchRow& row, const BenchOptions& options) {
  std::string notes = row.verified ? "" : "  WRONG RESULTS";
  if (row.calls_per_time > 1) notes += fmt::format("  in batches of {}", row.calls_per_time);
  if (row.idle_share)
    notes += fmt::format("  waiting uses {:.2f} % of a core", 100 * *row.idle_share);
  return fmt::format("{:>8} {:>12.2f} {:>12.2f} {:>12.2f} {:>9.2f} {:>9.2f} {:>12} {:>12}{}\n",
                     size_text(row.bytes), row.min_us, row.median_us, row.p99_us, algbw_GBps(row),
                     busbw_GBps(row, options), us_text(row.roofline_us), us_text(row.memcpy_us),
                     notes);
}

std::string json_of(const BenchReport& report, const BenchOptions& options) {
  Json rows = Json::array();
  for (const BenchRow& row : report.rows) {
    Json json = json_of(row);
    json["dtype"] = moves_nothing(options) ? Json() : Json(name_of(options.dtype));
    json["algbw_GBps"] = algbw_GBps(row);
    json["busbw_GBps"] = busbw_GBps(row, options);
    rows.push_back(std::move(json));
  }
  return Json{{"ranks", options.ranks},
              {"link", report.link},
              {"link_reason", report.link_reason},
              {"memory", name_of(options.memory)},
              {"what", subject_of(options)},
              {"cores", net::usable_cores()},
              {"kernels", kernel::target_name()},
              {"ready_ms", report.ready_ms},
              {"rows", rows}}
             .dump(1) +
         "\n";
}

}  // namespace paceline::apps
