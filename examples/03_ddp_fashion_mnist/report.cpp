// SPDX-License-Identifier: Apache-2.0
#include "report.h"

#include <fmt/format.h>

#include <array>
#include <bit>
#include <nlohmann/json.hpp>
#include <stdexcept>

#include "text.h"

namespace example {
namespace {

using paceline::Communicator;

constexpr std::size_t kFields = 4;

std::string hash_text(std::uint64_t hash) { return fmt::format("{:016x}", hash); }

bool same_parameters(const Result& result) {
  for (const RankFigures& rank : result.ranks)
    if (rank.parameter_hash != result.ranks.front().parameter_hash) return false;
  return true;
}

bool as_formula_says(const Result& result) {
  for (const RankFigures& rank : result.ranks)
    if (rank.bytes_sent != rank.bytes_formula) return false;
  return true;
}

std::string table(const Result& result) {
  std::string text =
      fmt::format("{:>4}  {:>19}  {:>19}  {:>15}  {}\n", "rank", "gradient bytes sent",
                  "by the formula", "all other bytes", "parameter hash");
  for (std::size_t r = 0; r < result.ranks.size(); ++r) {
    const RankFigures& rank = result.ranks[r];
    text += fmt::format("{:>4}  {:>19}  {:>19}  {:>15}  {}\n", r, grouped(rank.bytes_sent),
                        grouped(rank.bytes_formula), grouped(rank.bytes_other),
                        hash_text(rank.parameter_hash));
  }
  return text;
}

}  // namespace

double Result::samples_per_s() const {
  return seconds > 0 ? static_cast<double>(samples) / seconds : 0;
}

void count_other_bytes(const Communicator& comm, RankFigures& figures) {
  std::uint64_t all = 0;
  for (const auto& [label, traffic] : comm.traffic()) {
    all += traffic.payload_bytes_moved() + traffic.header_bytes_sent;
  }
  figures.bytes_other = all - figures.bytes_sent;
}

std::vector<RankFigures> gather(Communicator& comm, const RankFigures& figures) {
  const std::array<std::int64_t, kFields> mine{std::bit_cast<std::int64_t>(figures.parameter_hash),
                                               std::bit_cast<std::int64_t>(figures.bytes_sent),
                                               std::bit_cast<std::int64_t>(figures.bytes_formula),
                                               std::bit_cast<std::int64_t>(figures.bytes_other)};
  const auto world = static_cast<std::size_t>(comm.world_size());
  std::vector<std::int64_t> all(kFields * world);
  comm.allgather<std::int64_t>(mine, all, {.label = "figures"});
  std::vector<RankFigures> ranks;
  for (std::size_t r = 0; r < world; ++r) {
    const auto field = [&](std::size_t i) {
      return std::bit_cast<std::uint64_t>(all[kFields * r + i]);
    };
    ranks.push_back({.parameter_hash = field(0),
                     .bytes_sent = field(1),
                     .bytes_formula = field(2),
                     .bytes_other = field(3)});
  }
  return ranks;
}

std::string introduction(const Options& options, const FashionMnist& data, int world) {
  const std::size_t each = images_per_rank(options, world);
  return fmt::format(
      "{} training and {} test images from {}\n"
      "--batch-size {}: each of {} {} takes {}, together {} per step\n",
      grouped(data.train.count()), grouped(data.test.count()), data.folder.string(),
      options.batch_size, world, world == 1 ? "rank" : "ranks", each,
      each * static_cast<std::size_t>(world));
}

std::string summary(const Result& result) {
  return fmt::format(
      "{} steps in {:.1f} s, {:.0f} samples/s\n"
      "test accuracy {:.2f} % of {} images, each tested once\n{}{}, {}\n",
      grouped(result.losses.size()), result.seconds, result.samples_per_s(),
      100 * result.test_accuracy, grouped(result.tested), table(result),
      same_parameters(result) ? "all parameters are equal, to the bit" : "PARAMETERS DIFFER",
      as_formula_says(result) ? "gradient bytes are as the formula says" : "BYTES DIFFER");
}

std::string json(const Result& result) {
  nlohmann::ordered_json root;
  root["world_size"] = result.ranks.size();
  root["steps"] = result.losses.size();
  root["losses"] = result.losses;
  root["test_accuracy"] = result.test_accuracy;
  root["samples_per_s"] = result.samples_per_s();
  for (const RankFigures& rank : result.ranks) {
    root["parameter_hash"].push_back(hash_text(rank.parameter_hash));
    root["bytes_sent"].push_back(rank.bytes_sent);
    root["bytes_formula"].push_back(rank.bytes_formula);
    root["bytes_other"].push_back(rank.bytes_other);
  }
  return root.dump(2) + "\n";
}

void require_consistent(const Result& result) {
  if (!same_parameters(result)) throw std::runtime_error("ranks ended with different parameters");
  if (!as_formula_says(result)) {
    throw std::runtime_error("a rank sent another number of gradient bytes than the formula says");
  }
}

}  // namespace example
