// SPDX-License-Identifier: Apache-2.0
#pragma once
/// @file
/// What happened, for a person and as JSON. No LibTorch here: text is made with fmt.

#include <paceline/paceline.h>

#include <cstdint>
#include <string>
#include <vector>

#include "fashion_mnist.h"
#include "options.h"

namespace example {

/// What one rank did, apart from what all ranks know alike.
struct RankFigures {
  std::uint64_t parameter_hash = 0;
  std::uint64_t bytes_sent = 0;     ///< payload of gradient buckets, counted at the links
  std::uint64_t bytes_formula = 0;  ///< the same by the formula of each bucket's algorithm
  std::uint64_t bytes_other = 0;    ///< all else at the links: other payload, all headers
  bool operator==(const RankFigures&) const = default;
};

struct Result {
  std::vector<double> losses;  ///< mean over all ranks, per step
  double seconds = 0;          ///< of training, without evaluation
  std::uint64_t samples = 0;   ///< used by all ranks together
  double test_accuracy = 0;    ///< 0 to 1
  std::uint64_t tested = 0;    ///< test images of all ranks together
  std::vector<RankFigures> ranks;
  [[nodiscard]] double samples_per_s() const;
};

/// Fills bytes_other: what crossed this rank's links so far and is not counted in bytes_sent.
void count_other_bytes(const paceline::Communicator& comm, RankFigures& figures);

/// Every rank's figures, on every rank.
///
/// Order  Collective.
[[nodiscard]] std::vector<RankFigures> gather(paceline::Communicator& comm,
                                              const RankFigures& figures);

/// What will be done: ranks, batch, data.
[[nodiscard]] std::string introduction(const Options& options, const FashionMnist& data, int world);

[[nodiscard]] std::string summary(const Result& result);
[[nodiscard]] std::string json(const Result& result);

/// Errors  std::runtime_error if ranks hold different parameters, or if a rank sent another number
///         of bytes than the formula says.
void require_consistent(const Result& result);

}  // namespace example
