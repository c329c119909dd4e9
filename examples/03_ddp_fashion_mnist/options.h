// SPDX-License-Identifier: Apache-2.0
#pragma once
/// @file
/// The command line of ddp_fashion_mnist.

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>

namespace example {

struct Options {
  std::int64_t epochs = 2;
  std::optional<std::int64_t> max_steps = {};  ///< none: all steps of all epochs
  std::int64_t batch_size = 64;                ///< of all ranks together
  double lr = 0.01;
  double momentum = 0.9;
  std::uint64_t seed = 0;
  bool shuffle = true;
  std::string data = {};  ///< empty: where Fashion-MNIST usually lies
  std::string save = {};  ///< empty: nothing is saved
  std::string json = {};  ///< empty: no JSON is written
};

/// @return nothing if only help was asked for, which is then printed.
///
/// Errors  UsageError that names the option.
[[nodiscard]] std::optional<Options> parse_options(int argc, const char* const* argv);

/// Images of each batch on each of `world` ranks, rounded up.
[[nodiscard]] std::size_t images_per_rank(const Options& options, int world);

}  // namespace example
