// SPDX-License-Identifier: Apache-2.0
#include "apps/compare/messages.h"

#include <nlohmann/json.hpp>
#include <stdexcept>
#include <utility>

namespace paceline {

using nlohmann::json;

NLOHMANN_DEFINE_TYPE_NON_INTRUSIVE(Traffic,
                                   calls,
                                   messages_sent,
                                   messages_received,
                                   payload_bytes_sent,
                                   payload_bytes_received,
                                   payload_bytes_read,
                                   header_bytes_sent,
                                   header_bytes_received)
NLOHMANN_DEFINE_TYPE_NON_INTRUSIVE(PeerTraffic, peer, traffic)

}  // namespace paceline

// As whole nanoseconds of the clock that all processes of a host share.
template <>
struct nlohmann::adl_serializer<paceline::apps::Instant> {
  static void to_json(json& out, const paceline::apps::Instant& at) {
    out = at.time_since_epoch().count();
  }
  static void from_json(const json& in, paceline::apps::Instant& at) {
    using Clock = std::chrono::steady_clock;
    at = paceline::apps::Instant(Clock::duration(in.get<Clock::duration::rep>()));
  }
};

namespace paceline {

NLOHMANN_DEFINE_TYPE_NON_INTRUSIVE(
    CallRecord, sequence, what, algorithm, op, dtype, root, count, label, begin, end, peers)
NLOHMANN_DEFINE_TYPE_NON_INTRUSIVE(CopyRecord, what, from, to, bytes, begin, end)
NLOHMANN_DEFINE_TYPE_NON_INTRUSIVE(PhaseRecord, what, device, begin, end)
NLOHMANN_DEFINE_TYPE_NON_INTRUSIVE(Ledger, calls, copies, phases, left_out)

namespace apps {

NLOHMANN_DEFINE_TYPE_NON_INTRUSIVE(Contestant, mechanism, ranks)
NLOHMANN_DEFINE_TYPE_NON_INTRUSIVE(ModelFacts,
                                   description,
                                   parameters,
                                   trainable_bytes,
                                   tensors,
                                   data_name,
                                   samples,
                                   unit,
                                   libtorch)
NLOHMANN_DEFINE_TYPE_NON_INTRUSIVE(StepRecord, begin, backward, update, end, loss)
NLOHMANN_DEFINE_TYPE_NON_INTRUSIVE(BucketFacts, label, count, dtype, algorithm, parameters)
NLOHMANN_DEFINE_TYPE_NON_INTRUSIVE(ProcessRecord, rank, steps, ledger, peak_bytes, buckets, facts)

namespace {

/// As CBOR, which is JSON in binary: JSON refuses names of files that are no UTF-8.
std::string packed(const json& value) {
  std::string text;
  json::to_cbor(value, text);
  return text;
}

/// Calls `read`, and says what the text should have been if it is not.
template <typename F>
auto reading(const char* what, F&& read) {
  try {
    return read();
  } catch (const json::exception& error) {
    throw std::runtime_error(std::string("what came is no ") + what + ": " + error.what());
  }
}

}  // namespace

std::string text_of(const TrainingSettings& settings) {
  json out{{"contestant", settings.contestant},
           {"model", settings.model},
           {"batch_size", settings.batch_size},
           {"learning_rate", settings.learning_rate},
           {"seed", settings.seed},
           {"data", settings.data},
           {"text", settings.text}};
  if (settings.algorithm) out["algorithm"] = *settings.algorithm;
  return packed(out);
}

TrainingSettings settings_from(const std::string& text) {
  return reading("training settings", [&] {
    const json in = json::from_cbor(text);
    TrainingSettings settings{.contestant = in.at("contestant").get<Contestant>(),
                              .model = in.at("model").get<std::string>(),
                              .batch_size = in.at("batch_size").get<std::int64_t>(),
                              .learning_rate = in.at("learning_rate").get<double>(),
                              .seed = in.at("seed").get<std::uint64_t>(),
                              .data = in.at("data").get<std::string>(),
                              .text = in.at("text").get<std::vector<std::string>>()};
    if (in.contains("algorithm")) settings.algorithm = in["algorithm"].get<Algorithm>();
    return settings;
  });
}

std::string text_of(const ProcessRecord& record) { return packed(record); }

ProcessRecord record_from(const std::string& text) {
  return reading("record of a training run",
                 [&] { return json::from_cbor(text).get<ProcessRecord>(); });
}

}  // namespace apps
}  // namespace paceline
