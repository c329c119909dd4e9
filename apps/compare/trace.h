// SPDX-License-Identifier: Apache-2.0
#pragma once
/// @file
/// Timelines in the format that Perfetto (ui.perfetto.dev) and chrome://tracing open.

#include <string>
#include <vector>

#include "apps/compare/timeline.h"

namespace paceline::apps {

/// Writes `runs` as Chrome trace events: a process per run, a thread per lane, a complete event
/// per span. A thread can only show spans that are apart or nested: spans that overlap otherwise,
/// and those that travel beside the computing (allreduce), get further threads below their lane's.
///
/// Numerics  Times are microseconds; a span that ends before it begins gets the duration 0.
[[nodiscard]] std::string chrome_trace(const std::vector<TraceRun>& runs);

}  // namespace paceline::apps
