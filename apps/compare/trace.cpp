// SPDX-License-Identifier: Apache-2.0
#include "apps/compare/trace.h"

#include <algorithm>
#include <cstddef>
#include <nlohmann/json.hpp>
#include <string_view>

namespace paceline::apps {
namespace {

using nlohmann::json;

/// Spans of one lane that are apart or nested, by begin.
struct Row {
  std::string name;
  std::vector<const TraceSpan*> spans;
  std::vector<double> open;  ///< ends of the spans that the last one lies in, outermost first
};

double end_of(const TraceSpan& span) { return std::max(span.begin_us, span.end_us); }

/// What is computed or waited for, and what travels beside it.
struct Sides {
  std::vector<const TraceSpan*> computing;
  std::vector<const TraceSpan*> travelling;
};

/// By begin; of two that begin together, the longer comes first, so that the other nests in it.
void sort(std::vector<const TraceSpan*>& spans) {
  std::stable_sort(spans.begin(), spans.end(), [](const TraceSpan* a, const TraceSpan* b) {
    return a->begin_us != b->begin_us ? a->begin_us < b->begin_us : end_of(*a) > end_of(*b);
  });
}

Sides sides_of(const TraceLane& lane) {
  Sides sides;
  for (const TraceSpan& span : lane.spans) {
    (span.kind == "allreduce" ? sides.travelling : sides.computing).push_back(&span);
  }
  sort(sides.computing);
  sort(sides.travelling);
  return sides;
}

bool take(Row& row, const TraceSpan& span) {
  std::vector<double> open = row.open;
  while (!open.empty() && open.back() <= span.begin_us) open.pop_back();
  if (!open.empty() && open.back() < end_of(span)) return false;
  open.push_back(end_of(span));
  row.open = std::move(open);
  row.spans.push_back(&span);
  return true;
}

void append_rows(std::vector<Row>& rows,
                 const std::vector<const TraceSpan*>& spans,
                 const std::string& name) {
  const std::size_t first = rows.size();
  for (const TraceSpan* span : spans) {
    std::size_t i = first;
    while (i < rows.size() && !take(rows[i], *span)) ++i;
    if (i < rows.size()) continue;
    const std::string number = i == first ? "" : " " + std::to_string(i - first + 1);
    rows.push_back({.name = name + number, .spans = {}, .open = {}});
    take(rows.back(), *span);
  }
}

std::vector<Row> rows_of(const TraceLane& lane) {
  std::vector<Row> rows;
  const Sides sides = sides_of(lane);
  append_rows(rows, sides.computing, lane.name);
  append_rows(rows, sides.travelling, lane.name + ", in flight");
  return rows;
}

json metadata(const char* what, std::size_t pid, std::size_t tid, const json& args) {
  return {{"ph", "M"}, {"name", what}, {"pid", pid}, {"tid", tid}, {"args", args}};
}

json event_of(const TraceSpan& span, std::size_t pid, std::size_t tid) {
  return {{"ph", "X"},
          {"name", span.label.empty() ? span.kind : span.label},
          {"cat", span.kind},
          {"ts", span.begin_us},
          {"dur", end_of(span) - span.begin_us},
          {"pid", pid},
          {"tid", tid},
          {"args", {{"kind", span.kind}, {"bytes", span.bytes}}}};
}

void append_run(json& events, const TraceRun& run, std::size_t pid) {
  events.push_back(metadata("process_name", pid, 0, {{"name", run.name}}));
  std::size_t tid = 0;
  for (const TraceLane& lane : run.lanes) {
    for (const Row& row : rows_of(lane)) {
      ++tid;
      events.push_back(metadata("thread_name", pid, tid, {{"name", row.name}}));
      events.push_back(metadata("thread_sort_index", pid, tid, {{"sort_index", tid}}));
      for (const TraceSpan* span : row.spans) events.push_back(event_of(*span, pid, tid));
    }
  }
}

}  // namespace

std::string chrome_trace(const std::vector<TraceRun>& runs) {
  json events = json::array();
  for (std::size_t i = 0; i < runs.size(); ++i) append_run(events, runs[i], i + 1);
  return json({{"displayTimeUnit", "ms"}, {"traceEvents", std::move(events)}}).dump();
}

}  // namespace paceline::apps
