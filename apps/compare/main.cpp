// SPDX-License-Identifier: Apache-2.0
// paceline-compare: what `paceline compare` becomes, because it needs LibTorch.
#include <fmt/chrono.h>
#include <fmt/format.h>

#include <chrono>
#include <cstdio>
#include <exception>
#include <optional>
#include <string>
#include <vector>

#include "apps/compare/comparison_json.h"
#include "apps/compare/comparison_text.h"
#include "apps/compare/machine.h"
#include "apps/compare/report_html.h"
#include "apps/compare/text_source.h"
#include "apps/compare/trace.h"
#include "apps/compare/worker.h"
#include "examples/03_ddp_fashion_mnist/fashion_mnist.h"
#include "examples/03_ddp_fashion_mnist/output_file.h"
#include "paceline/base/error.h"
#include "paceline/net/terminal.h"

namespace {

using namespace paceline::apps;
using paceline::net::StandardStream;

constexpr std::size_t kColumns = 100;  // where no terminal says otherwise

/// The files to write. Made, they can be written; dropped, nothing of them is left.
struct Outputs {
  std::optional<example::OutputFile> json;
  std::optional<example::OutputFile> html;
  std::optional<example::OutputFile> trace;

  explicit Outputs(const CompareOptions& options) {
    if (!options.json.empty()) json.emplace("--json", options.json);
    if (!options.html.empty()) html.emplace("--html", options.html);
    if (!options.trace.empty()) trace.emplace("--trace", options.trace);
  }
};

void write(std::optional<example::OutputFile>& file, const std::string& text) {
  if (!file) return;
  file->write(text);
  file->commit();
}

/// One live line for a person who watches, else a line for each turn.
class Progress {
 public:
  void show(const Standing& standing) {
    const std::string text =
        fmt::format("{:3} %  {}", 100 * standing.turn / standing.turns, standing.what);
    if (const auto columns = paceline::net::terminal_columns(StandardStream::kError)) {
      fmt::print(stderr, "\r\033[K{}", text.substr(0, *columns - 1));
      shown_ = true;
    } else {
      fmt::print(stderr, "{}\n", text);
    }
    std::fflush(stderr);
  }
  void end() {
    if (shown_) fmt::print(stderr, "\r\033[K");
    shown_ = false;
  }
  ~Progress() { end(); }

 private:
  bool shown_ = false;
};

/// Reads the data once, so that what is wrong with it is known before anything starts.
void check_data(const CompareOptions& options) {
  if (options.model == "gpt") {
    (void)read_text(options.text, static_cast<std::size_t>(options.batch_size));
    return;
  }
  const auto data = example::read_fashion_mnist(example::find_fashion_mnist(options.data));
  if (std::cmp_less(data.train.count(), options.batch_size)) {
    throw paceline::UsageError(fmt::format("--batch-size is {}: there are only {} images",
                                           options.batch_size, data.train.count()));
  }
}

std::vector<TraceRun> traces_of(const std::vector<Measurement>& measurements) {
  std::vector<TraceRun> runs;
  for (const Measurement& one : measurements) runs.push_back(timeline_of(one));
  return runs;
}

std::string command_line(int argc, char** argv) {
  std::string text = "paceline compare";
  for (int i = 1; i < argc; ++i) text += fmt::format(" {}", argv[i]);
  return text;
}

int run(int argc, char** argv) {
  const auto options = parse_compare_options(argc, argv);
  if (!options) return 0;
  (void)Outputs(*options);  // before minutes of training, not after
  check_data(*options);
  fmt::print("{}", introduction_of(*options));
  std::fflush(stdout);

  Progress progress;
  const double load_before = this_machine().load;
  const std::vector<Measurement> measurements =
      train_all(*options, [&](const Standing& standing) { progress.show(standing); });
  progress.end();
  const Comparison comparison = compare(*options, measurements, load_before);
  const std::string json =
      json_of(comparison,
              {.version = PACELINE_VERSION,
               .command = command_line(argc, argv),
               .made = fmt::format("{:%FT%TZ}", fmt::gmtime(std::chrono::system_clock::now()))});
  Outputs outputs(*options);
  write(outputs.json, json);
  write(outputs.html, report_html(json));
  write(outputs.trace, chrome_trace(traces_of(measurements)));
  const auto columns = paceline::net::terminal_columns(StandardStream::kOutput);
  fmt::print("{}", text_of(comparison, columns.value_or(kColumns)));
  return comparison.losses_agree ? 0 : 1;
}

}  // namespace

int main(int argc, char** argv) {
  paceline::net::open_missing_standard_streams();
  try {
    if (argc > 1 && std::string(argv[1]) == kWorkerArgument) {
      return run_worker(std::vector<std::string>(argv + 2, argv + argc));
    }
    const int code = run(argc, argv);
    if (std::fflush(stdout) != 0) throw std::runtime_error("cannot write to standard output");
    return code;
  } catch (const paceline::UsageError& error) {
    fmt::print(stderr, "paceline: {}\n", error.what());
    return 2;
  } catch (const std::exception& error) {
    fmt::print(stderr, "paceline: {}\n", error.what());
    return 1;
  }
}
