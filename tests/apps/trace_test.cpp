// SPDX-License-Identifier: Apache-2.0
#include "apps/compare/trace.h"

#include <gtest/gtest.h>

#include <map>
#include <nlohmann/json.hpp>
#include <string>
#include <utility>
#include <vector>

namespace paceline::apps {
namespace {

using nlohmann::json;
using Thread = std::pair<int, int>;  // pid, tid

/// Buckets in flight beside backward and beyond it, as DDP has them.
TraceRun ddp_run() {
  const std::vector<TraceSpan> spans = {
      {"forward", "forward", 0, 100, 0},       {"backward", "backward", 100, 400, 0},
      {"allreduce", "bucket 0", 200, 380, 64}, {"allreduce", "bucket 1", 300, 450, 128},
      {"wait", "wait", 400, 450, 0},
  };
  return {.name = "ddp, 2 ranks", .lanes = {{"rank 0", spans}, {"rank 1", spans}}};
}

json events_of(const std::vector<TraceRun>& runs) {
  return json::parse(chrome_trace(runs)).at("traceEvents");
}

json events_of(const std::vector<TraceRun>& runs, const std::string& phase) {
  json result = json::array();
  for (const json& event : events_of(runs)) {
    if (event.at("ph") == phase) result.push_back(event);
  }
  return result;
}

Thread thread_of(const json& event) { return {event.at("pid"), event.at("tid")}; }

std::map<Thread, std::string> thread_names(const std::vector<TraceRun>& runs) {
  std::map<Thread, std::string> names;
  for (const json& event : events_of(runs, "M")) {
    if (event.at("name") == "thread_name") names[thread_of(event)] = event.at("args").at("name");
  }
  return names;
}

json event_named(const std::vector<TraceRun>& runs, const std::string& name) {
  for (const json& event : events_of(runs, "X")) {
    if (event.at("name") == name) return event;
  }
  return nullptr;
}

bool apart_or_nested(const json& a, const json& b) {
  const double a_begin = a.at("ts"), a_end = a_begin + a.at("dur").get<double>();
  const double b_begin = b.at("ts"), b_end = b_begin + b.at("dur").get<double>();
  const bool apart = a_end <= b_begin || b_end <= a_begin;
  const bool nested =
      (a_begin <= b_begin && b_end <= a_end) || (b_begin <= a_begin && a_end <= b_end);
  return apart || nested;
}

TEST(Trace, has_one_complete_event_per_span_with_its_time_and_bytes) {
  ASSERT_EQ(events_of({ddp_run()}, "X").size(), 10U);
  const json bucket = event_named({ddp_run()}, "bucket 1");
  EXPECT_EQ(bucket.at("ts"), 300.0);
  EXPECT_EQ(bucket.at("dur"), 150.0);
  EXPECT_EQ(bucket.at("cat"), "allreduce");
  EXPECT_EQ(bucket.at("args"), (json{{"kind", "allreduce"}, {"bytes", 128}}));
}

TEST(Trace, names_a_process_per_run) {
  std::map<int, std::string> names;
  for (const json& event : events_of({ddp_run(), {.name = "dp, 4 devices", .lanes = {}}}, "M")) {
    if (event.at("name") == "process_name") names[event.at("pid")] = event.at("args").at("name");
  }
  EXPECT_EQ(names, (std::map<int, std::string>{{1, "ddp, 2 ranks"}, {2, "dp, 4 devices"}}));
}

TEST(Trace, gives_overlapping_buckets_threads_of_their_own) {
  const std::map<Thread, std::string> expected = {
      {{1, 1}, "rank 0"}, {{1, 2}, "rank 0, in flight"}, {{1, 3}, "rank 0, in flight 2"},
      {{1, 4}, "rank 1"}, {{1, 5}, "rank 1, in flight"}, {{1, 6}, "rank 1, in flight 2"}};
  EXPECT_EQ(thread_names({ddp_run()}), expected);
}

TEST(Trace, shows_a_thread_only_spans_that_are_apart_or_nested) {
  TraceRun run = ddp_run();
  run.lanes[0].spans.push_back({"step", "step", 50, 430, 0});
  const json events = events_of({run}, "X");
  for (const json& a : events) {
    for (const json& b : events) {
      if (thread_of(a) != thread_of(b)) continue;
      EXPECT_TRUE(apart_or_nested(a, b)) << a << " and " << b;
    }
  }
}

TEST(Trace, lets_a_nested_span_share_the_thread) {
  const TraceRun run = {
      "dp", {{"device 0", {{"gather", "inner", 10, 20, 0}, {"forward", "outer", 10, 90, 0}}}}};
  EXPECT_EQ(thread_of(event_named({run}, "inner")), thread_of(event_named({run}, "outer")));
}

TEST(Trace, has_no_negative_duration) {
  const TraceRun run = {"dp", {{"device 0", {{"wait", "wait", 90, 80, 0}}}}};
  EXPECT_EQ(event_named({run}, "wait").at("dur"), 0.0);
}

TEST(Trace, calls_a_span_without_a_label_by_its_kind) {
  const TraceRun run = {"dp", {{"device 0", {{"reduce", "", 0, 1, 7}}}}};
  EXPECT_EQ(event_named({run}, "reduce").at("args").at("bytes"), 7);
}

TEST(Trace, is_valid_without_a_run) { EXPECT_EQ(events_of({}), json::array()); }

TEST(Trace, keeps_names_that_need_escaping) {
  const TraceRun run = {"a \"run\"\n", {{"device 0", {{"wait", "ε <&>", 0, 1, 0}}}}};
  EXPECT_EQ(event_named({run}, "ε <&>").at("dur"), 1.0);
}

}  // namespace
}  // namespace paceline::apps
