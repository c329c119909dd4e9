// SPDX-License-Identifier: Apache-2.0
#include "options.h"

#include <fmt/format.h>
#include <paceline/paceline.h>

#include <CLI/CLI.hpp>
#include <charconv>
#include <cmath>
#include <limits>

namespace example {
namespace {

/// Looks at the text: as a number, -1 would be a large one.
std::string require_seed(const std::string& text) {
  std::uint64_t seed = 0;
  const char* const end = text.data() + text.size();
  const auto [stopped, error] = std::from_chars(text.data(), end, seed);
  if (error == std::errc() && stopped == end) return {};
  throw paceline::UsageError(fmt::format("--seed is {}: it must be a whole number from 0 to {}",
                                         text, std::numeric_limits<std::uint64_t>::max()));
}

void declare(CLI::App& app, Options& options, bool& no_shuffle) {
  const auto option = [&app](const char* name, auto& value, const char* help, const char* type) {
    return app.add_option(name, value, help)->type_name(type);
  };
  option("--epochs", options.epochs, "passes over the training images (2)", "E");
  option("--max-steps", options.max_steps, "stop after so many steps", "K");
  option("--batch-size", options.batch_size, "images per step on all ranks together (64)", "B");
  option("--lr", options.lr, "learning rate (0.01)", "X");
  option("--momentum", options.momentum, "momentum of SGD (0.9)", "X");
  option("--seed", options.seed, "of the first parameters and of the order of images (0)", "S")
      ->check(require_seed);
  option("--data", options.data, "folder of the four .gz files of Fashion-MNIST", "DIR");
  option("--save", options.save, "write the trained parameters there (torch::save)", "FILE");
  option("--json", options.json, "write what happened there", "FILE");
  app.add_flag("--no-shuffle", no_shuffle, "take the images in the order of the file");
  app.footer(
      "A rank takes ceil(B / ranks) images per step. JSON: world_size, steps, losses (mean over "
      "all\n"
      "ranks, per step), test_accuracy (0 to 1), samples_per_s, and per rank parameter_hash,\n"
      "bytes_sent and bytes_formula (payload of gradient buckets), bytes_other (all else that\n"
      "crossed the rank's links until these figures were gathered: other payload, all headers).");
}

void require_at_least_one(const char* name, std::int64_t value) {
  if (value >= 1) return;
  throw paceline::UsageError(fmt::format("{} is {}: it must be at least 1", name, value));
}

void require_file(const CLI::App& app, const char* name, const std::string& value) {
  if (app.count(name) == 0 || !value.empty()) return;
  throw paceline::UsageError(fmt::format("{} is empty: it must name a file", name));
}

void check(const CLI::App& app, const Options& options) {
  require_at_least_one("--epochs", options.epochs);
  require_at_least_one("--batch-size", options.batch_size);
  if (options.max_steps) require_at_least_one("--max-steps", *options.max_steps);
  if (!std::isfinite(options.lr) || options.lr <= 0) {
    throw paceline::UsageError(
        fmt::format("--lr is {}: it must be finite and above 0", options.lr));
  }
  if (!(options.momentum >= 0 && options.momentum < 1)) {
    throw paceline::UsageError(
        fmt::format("--momentum is {}: it must be at least 0 and below 1", options.momentum));
  }
  if (app.count("--data") > 0 && options.data.empty()) {
    throw paceline::UsageError("--data is empty: it must name a folder");
  }
  require_file(app, "--save", options.save);
  require_file(app, "--json", options.json);
  if (!options.save.empty() && options.save == options.json) {
    throw paceline::UsageError(fmt::format("--save and --json both name '{}'", options.save));
  }
}

}  // namespace

std::optional<Options> parse_options(int argc, const char* const* argv) {
  CLI::App app("Trains a CNN on Fashion-MNIST on all ranks that `paceline run` starts.",
               "ddp_fashion_mnist");
  Options options;
  bool no_shuffle = false;
  declare(app, options, no_shuffle);
  try {
    app.parse(argc, argv);
  } catch (const CLI::CallForHelp&) {
    fmt::print("{}", app.help());
    return std::nullopt;
  } catch (const CLI::ParseError& error) {
    throw paceline::UsageError(fmt::format("{}; --help shows all options", error.what()));
  }
  options.shuffle = !no_shuffle;
  check(app, options);
  return options;
}

std::size_t images_per_rank(const Options& options, int world) {
  const auto ranks = static_cast<std::uint64_t>(world);
  const auto batch = static_cast<std::uint64_t>(options.batch_size);
  return batch / ranks + (batch % ranks == 0 ? 0 : 1);
}

}  // namespace example
