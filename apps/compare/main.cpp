// SPDX-License-Identifier: Apache-2.0
// paceline-compare: what `paceline compare` becomes, because it needs LibTorch.
#include <fmt/chrono.h>
#include <fmt/format.h>

#include <array>
#include <chrono>
#include <cstdio>
#include <exception>
#include <memory>
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

/// To standard error. Where that fails, nobody listens.
void tell(const std::string& text) { std::fputs(text.c_str(), stderr); }

/// One live line for a person who watches, else a line for each turn.
class Progress {
 public:
  void show(const Standing& standing) {
    const std::string text =
        fmt::format("{:3} %  {}", 100 * standing.turn / standing.turns, standing.what);
    if (const auto columns = paceline::net::terminal_columns(StandardStream::kError)) {
      tell("\r\033[K" + text.substr(0, *columns - 1));
      shown_ = true;
    } else {
      tell(text + "\n");
    }
    std::fflush(stderr);
  }
  void end() {
    if (shown_) tell("\r\033[K");
    shown_ = false;
  }
  ~Progress() { end(); }

 private:
  bool shown_ = false;
};

std::vector<TraceRun> traces_of(const std::vector<Measurement>& measurements) {
  std::vector<TraceRun> runs;
  for (const Measurement& one : measurements) runs.push_back(timeline_of(one));
  return runs;
}

struct NamedFile {
  const char* option;
  const std::string* name;
};

std::array<NamedFile, 3> files_of(const CompareOptions& options) {
  return {{{"--json", &options.json}, {"--html", &options.html}, {"--trace", &options.trace}}};
}

/// Makes the files and drops them: nothing of them is left.
void check_files(const CompareOptions& options) {
  std::vector<std::unique_ptr<example::OutputFile>> made;
  for (const auto& [option, name] : files_of(options)) {
    if (!name->empty()) made.push_back(std::make_unique<example::OutputFile>(option, *name));
  }
}

/// @return what first went wrong: other results must not be lost with one.
std::exception_ptr write_files(const CompareOptions& options,
                               const std::string& json,
                               const std::vector<Measurement>& measurements) {
  std::exception_ptr problem;
  for (const auto& [option, name] : files_of(options)) {
    if (name->empty()) continue;
    try {
      example::OutputFile file(option, *name);
      file.write(name == &options.json   ? json
                 : name == &options.html ? report_html(json)
                                         : chrome_trace(traces_of(measurements)));
      file.commit();
    } catch (...) {  // thrown again once all is told
      if (!problem) problem = std::current_exception();
    }
  }
  return problem;
}

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

std::string command_line(int argc, char** argv) {
  std::string text = "paceline compare";
  for (int i = 1; i < argc; ++i) text += fmt::format(" {}", argv[i]);
  return text;
}

int run(int argc, char** argv) {
  const auto options = parse_compare_options(argc, argv);
  if (!options) return 0;
  check_files(*options);  // before minutes of training, not after
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
  const std::exception_ptr problem = write_files(*options, json, measurements);
  const auto columns = paceline::net::terminal_columns(StandardStream::kOutput);
  fmt::print("{}", text_of(comparison, columns.value_or(kColumns)));
  if (problem) {
    std::fflush(stdout);
    std::rethrow_exception(problem);
  }
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
    tell(fmt::format("paceline: {}\n", error.what()));
    return 2;
  } catch (const std::exception& error) {
    tell(fmt::format("paceline: {}\n", error.what()));
    return 1;
  }
}
