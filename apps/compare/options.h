// SPDX-License-Identifier: Apache-2.0
#pragma once
/// @file
/// The command line of `paceline compare`.

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "paceline/base/types.h"

namespace paceline::apps {

struct CompareOptions {
  std::vector<int> ranks{2, 4};
  std::string model = "cnn";
  std::int64_t steps = 60;
  std::int64_t batch_size = 0;              ///< of all ranks together
  std::optional<Algorithm> algorithm = {};  ///< none: the library's own choice, bucket by bucket
  double learning_rate = 0;
  std::uint64_t seed = 0;
  std::string data = {};               ///< empty: where Fashion-MNIST usually lies
  std::vector<std::string> text = {};  ///< empty: Debian's licence texts
  std::string json = {};               ///< empty: not written; so for the next two
  std::string html = {};
  std::string trace = {};
};

/// @return nothing if only help was asked for, which is then printed.
///
/// Errors  UsageError that names the option and its value.
[[nodiscard]] std::optional<CompareOptions> parse_compare_options(int argc,
                                                                  const char* const* argv);

}  // namespace paceline::apps
