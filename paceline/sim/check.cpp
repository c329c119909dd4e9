// SPDX-License-Identifier: Apache-2.0
#include "paceline/sim/check.h"

#include <fmt/format.h>

#include <algorithm>
#include <string>
#include <vector>

#include "paceline/sim/broken_rule.h"

namespace paceline::sim {
namespace {

using plan::Kind;
using plan::Schedule;
using plan::Step;

std::string_view name_of(Kind kind) {
  switch (kind) {
    case Kind::kSend: return "send";
    case Kind::kRecv: return "recv";
    case Kind::kFold: return "fold";
    case Kind::kPost: return "post";
    case Kind::kAwait: return "await";
  }
  return "unknown step";
}

/// Messages of one rank, by peer, in program order.
using Messages = std::vector<std::vector<const Step*>>;

Messages messages_of(std::span<const Schedule> schedules, std::size_t rank, Kind kind) {
  Messages messages(schedules.size());
  for (const Step& step : schedules[rank].steps) {
    if (step.kind != kind) continue;
    if (step.peer >= schedules.size() || step.peer == rank) {
      throw BrokenRule(fmt::format("rank {}: {}: no such peer", rank, describe(step)));
    }
    messages[step.peer].push_back(&step);
  }
  return messages;
}

std::string one_of(const std::vector<const Step*>& steps, std::size_t i) {
  return i < steps.size() ? describe(*steps[i]) : "nothing";
}

void check_link(std::size_t from,
                std::size_t to,
                const std::vector<const Step*>& sent,
                const std::vector<const Step*>& received) {
  const auto alike = [](const Step* a, const Step* b) {
    return a->elements == b->elements && a->wire == b->wire;
  };
  for (std::size_t i = 0; i < std::max(sent.size(), received.size()); ++i) {
    if (i < sent.size() && i < received.size() && alike(sent[i], received[i])) continue;
    throw BrokenRule(fmt::format("message {} from rank {} to rank {}: '{}' meets '{}'", i, from, to,
                                 one_of(sent, i), one_of(received, i)));
  }
}

}  // namespace

std::string describe(const Step& step) {
  return fmt::format("{} [{}, {}){} peer {}", name_of(step.kind), step.elements.begin,
                     step.elements.end, step.wire == Form::kSum ? " as sums" : "", step.peer);
}

void check_matching(std::span<const Schedule> schedules) {
  std::vector<Messages> sent;
  std::vector<Messages> received;
  for (std::size_t r = 0; r < schedules.size(); ++r) {
    sent.push_back(messages_of(schedules, r, Kind::kSend));
    received.push_back(messages_of(schedules, r, Kind::kRecv));
  }
  for (std::size_t a = 0; a < schedules.size(); ++a) {
    for (std::size_t b = 0; b < schedules.size(); ++b) {
      check_link(a, b, sent[a][b], received[b][a]);
    }
  }
}

}  // namespace paceline::sim
