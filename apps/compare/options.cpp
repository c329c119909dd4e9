// SPDX-License-Identifier: Apache-2.0
#include "apps/compare/options.h"

#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <array>
#include <filesystem>
#include <set>
#include <string_view>

#include "apps/number_option.h"
#include "paceline/base/error.h"
#include "paceline/plan/schedule.h"

namespace paceline::apps {
namespace {

namespace fs = std::filesystem;

constexpr int kMostRanks = 64;               // each is a process with a LibTorch of its own
constexpr std::int64_t kMostSteps = 10'000;  // what each moved is kept until the end

constexpr const char* kFooter =
    "Trains the same model on the same data from the same start four ways: in one process on one\n"
    "thread and on all cores, with DataParallel (one process, a thread per device) and with\n"
    "DistributedDataParallel (one process per rank). All take turns in one run, a few steps each;\n"
    "let the machine be quiet. Prints a conclusion and a table; the exit code is 1 if the losses\n"
    "do not agree.\n\n"
    "  paceline compare                       2 and 4 ranks, CNN on Fashion-MNIST, 60 steps\n"
    "  paceline compare -n 2 --model mlp      quick: seconds\n"
    "  paceline compare -n 2,4 --html r.html  figures, a ring to step through, a timeline\n"
    "  paceline compare --trace t.json        every step, for Perfetto or chrome://tracing\n"
    "  paceline compare --model gpt --text book.txt\n\n"
    "JSON: verdict, losses_agree, runs (mechanism, ranks, step_ms, samples_per_s, processes,\n"
    "threads, bytes, formula, overlap, device0_peak_bytes, final_loss), and what the report "
    "shows.\n"
    "docs/dp_and_ddp.md explains the two mechanisms.";

/// What a model is trained with unless asked otherwise.
struct Defaults {
  std::string_view model;
  std::int64_t batch_size;
  double learning_rate;
};
constexpr std::array<Defaults, 3> kDefaults{
    {{"cnn", 256, 0.005}, {"mlp", 256, 0.05}, {"gpt", 32, 0.05}}};

const Defaults& defaults_of(const std::string& model) {
  const auto* const found =
      std::ranges::find_if(kDefaults, [&](const Defaults& one) { return one.model == model; });
  if (found != kDefaults.end()) return *found;
  throw UsageError(fmt::format("--model {}: must be cnn, mlp or gpt", model));
}

/// Texts as the user gave them, read once all options are known.
struct Texts {
  std::string ranks = "2,4";
  std::string algorithm;
};

std::vector<int> ranks_of(const std::string& text) {
  std::vector<int> ranks;
  for (std::size_t begin = 0; begin <= text.size();) {
    const std::size_t end = std::min(text.find(',', begin), text.size());
    const std::string part = text.substr(begin, end - begin);
    int value = 0;
    if (const std::string why = read_number(part, value); !why.empty()) {
      throw UsageError(fmt::format("-n {}: '{}' {}; write it as in -n 2,4", text, part, why));
    }
    if (value < 2 || value > kMostRanks) {
      throw UsageError(
          fmt::format("-n {}: {} is not from 2 to {}; one rank has nobody to compare with", text,
                      value, kMostRanks));
    }
    ranks.push_back(value);
    begin = end + 1;
  }
  if (std::set<int>(ranks.begin(), ranks.end()).size() != ranks.size()) {
    throw UsageError(fmt::format("-n {}: a number stands there twice", text));
  }
  return ranks;
}

std::optional<Algorithm> algorithm_of(const std::string& text) {
  if (text.empty()) return std::nullopt;
  std::string known;
  for (const Algorithm one : {Algorithm::kRing, Algorithm::kPairwise, Algorithm::kOneStage,
                              Algorithm::kTree, Algorithm::kRelay, Algorithm::kDirect}) {
    if (!plan::supports(one, Collective::kAllReduce)) continue;
    if (name_of(one) == text) return one;
    known += fmt::format("{}{}", known.empty() ? "" : ", ", name_of(one));
  }
  throw UsageError(fmt::format("--algorithm {}: must be one of {}", text, known));
}

void declare(CLI::App& app, CompareOptions& options, Texts& texts) {
  app.add_option("-n", texts.ranks, "numbers of ranks and devices to compare (2,4)")
      ->type_name("N,N");
  app.add_option("--model", options.model, "cnn, mlp (images) or gpt (characters) (cnn)")
      ->type_name("NAME");
  add_number(app, "--steps", options.steps, "steps that are measured, each way, up to 10,000 (60)")
      ->type_name("K");
  add_number(app, "--batch-size", options.batch_size,
             "samples per step on all ranks together (cnn, mlp 256; gpt 32)")
      ->type_name("B");
  app.add_option("--algorithm", texts.algorithm,
                 "of DDP's all-reduce: ring, pairwise, one_stage, relay (the library's choice)")
      ->type_name("NAME");
  add_number(app, "--lr", options.learning_rate, "learning rate (cnn 0.005; mlp, gpt 0.05)")
      ->type_name("X");
  add_number(app, "--seed", options.seed, "of the first parameters and of the order of data (0)")
      ->type_name("S");
  app.add_option("--data", options.data, "folder of the four .gz files of Fashion-MNIST")
      ->type_name("DIR");
  app.add_option("--text", options.text,
                 "what gpt reads; may be given again (the texts in /usr/share/common-licenses)")
      ->type_name("FILE");
  app.add_option("--json", options.json, "write all figures there")->type_name("FILE");
  app.add_option("--html", options.html, "write a report to look at there")->type_name("FILE");
  app.add_option("--trace", options.trace, "write a Chrome/Perfetto trace there")
      ->type_name("FILE");
  app.footer(kFooter);
}

void require_file(const CLI::App& app, const char* name, const std::string& value) {
  if (app.count(name) == 0 || !value.empty()) return;
  throw UsageError(fmt::format("{} is empty: it must name a file", name));
}

/// Whether both names lead to one file, which need not exist.
bool are_one_file(const std::string& a, const std::string& b) {
  std::error_code error;
  const auto resolved = [&](const std::string& file) {
    return fs::weakly_canonical(fs::absolute(file, error), error);
  };
  return a == b || (resolved(a) == resolved(b) && !error);
}

void require_distinct_files(const CompareOptions& options) {
  const std::array<std::pair<const char*, const std::string*>, 3> files{
      {{"--json", &options.json}, {"--html", &options.html}, {"--trace", &options.trace}}};
  for (std::size_t a = 0; a < files.size(); ++a) {
    const auto& [name, file] = files.at(a);
    if (file->empty()) continue;
    for (const std::string& text : options.text) {
      if (!are_one_file(*file, text)) continue;
      throw UsageError(fmt::format("{} '{}' is the text to read, --text '{}'", name, *file, text));
    }
    for (std::size_t b = a + 1; b < files.size(); ++b) {
      const auto& [other_name, other] = files.at(b);
      if (other->empty() || !are_one_file(*file, *other)) continue;
      throw UsageError(
          fmt::format("{} '{}' and {} '{}' are one file", name, *file, other_name, *other));
    }
  }
}

void check_numbers(const CompareOptions& options) {
  if (options.steps < 1 || options.steps > kMostSteps) {
    throw UsageError(
        fmt::format("--steps is {}: it must be from 1 to {}", options.steps, kMostSteps));
  }
  if (options.batch_size < 1) {
    throw UsageError(fmt::format("--batch-size is {}: it must be at least 1", options.batch_size));
  }
  if (options.learning_rate <= 0) {
    throw UsageError(fmt::format("--lr is {}: it must be above 0", options.learning_rate));
  }
  for (const int n : options.ranks) {
    if (options.batch_size % n == 0) continue;
    throw UsageError(fmt::format(
        "--batch-size {} does not divide by {} ranks: their losses would have unequal weights, and "
        "DDP's mean over ranks would not be the mean over samples",
        options.batch_size, n));
  }
}

void check(const CLI::App& app, const CompareOptions& options) {
  check_numbers(options);
  const bool is_text = options.model == "gpt";
  if (is_text && app.count("--data") > 0) {
    throw UsageError("--data is for cnn and mlp; gpt reads --text");
  }
  if (!is_text && app.count("--text") > 0) {
    throw UsageError(fmt::format("--text is for gpt; {} trains on images", options.model));
  }
  if (app.count("--data") > 0 && options.data.empty()) {
    throw UsageError("--data is empty: it must name a folder");
  }
  if (app.count("--algorithm") > 0 && !options.algorithm) {
    throw UsageError("--algorithm is empty: leave it out for the library's choice");
  }
  for (const char* name : {"--json", "--html", "--trace"}) {
    require_file(app, name, app.count(name) > 0 ? app[name]->as<std::string>() : "");
  }
  require_distinct_files(options);
}

}  // namespace

std::optional<CompareOptions> parse_compare_options(int argc, const char* const* argv) {
  CLI::App app("Trains one model as a single process, with DP and with DDP, and compares them",
               "paceline compare");
  CompareOptions options;
  Texts texts;
  declare(app, options, texts);
  try {
    app.parse(argc, argv);
  } catch (const CLI::CallForHelp&) {
    fmt::print("{}", app.help());
    return std::nullopt;
  } catch (const CLI::ParseError& error) {
    throw UsageError(fmt::format("{}, see paceline compare --help", error.what()));
  }
  const Defaults& defaults = defaults_of(options.model);
  if (app.count("--batch-size") == 0) options.batch_size = defaults.batch_size;
  if (app.count("--lr") == 0) options.learning_rate = defaults.learning_rate;
  options.ranks = ranks_of(texts.ranks);
  options.algorithm = algorithm_of(texts.algorithm);
  check(app, options);
  return options;
}

}  // namespace paceline::apps
