// SPDX-License-Identifier: Apache-2.0
#include "apps/bench_command.h"

#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <chrono>
#include <cstdio>
#include <memory>
#include <optional>
#include <stdexcept>

#include "apps/bench/options.h"
#include "apps/bench/ranks.h"
#include "apps/bench/report.h"
#include "apps/bench_step_command.h"
#include "apps/number_option.h"
#include "examples/03_ddp_fashion_mnist/output_file.h"
#include "paceline/base/error.h"

namespace paceline::apps {
namespace {

using Clock = std::chrono::steady_clock;

constexpr const char* kBenchFooter =
    "Starts N ranks and repeats one collective, back to back, for each size. A time is that of "
    "the\n"
    "slowest rank. Every result is checked bit for bit; the exit code is 1 if one is wrong.\n\n"
    "  paceline bench allreduce                      2 ranks, float, 4 KiB to 100 MiB\n"
    "  paceline bench allreduce -n 4 --dtype bf16 --sizes 1M,25M\n"
    "  paceline bench allreduce --memory private     buffers that the links cannot reach\n"
    "  paceline bench reduce_scatter --link tcp      as between hosts, over loopback\n"
    "  paceline bench barrier -n 8                   also what a rank that waits uses of a core\n"
    "  paceline bench step --help                    a training step, by DDP, shared, and alone\n"
    "  paceline bench futex -n 8                     the least that sleeping and waking costs\n\n"
    "resident  memory from the communicator: where ranks share memory, nothing is copied\n"
    "private   ordinary memory\n"
    "alg GB/s  bytes of the buffer per time of a call; bus GB/s: times what each rank has to move\n"
    "          at the least, 2(N-1)/N for allreduce, (N-1)/N for reduce_scatter and allgather\n"
    "roofline  the same sums on the same addresses, all ranks at once, without waiting\n"
    "memcpy    every rank copies its whole buffer, all at once\n\n"
    "Let the machine be quiet. JSON: ranks, link, memory, rows (bytes, dtype, us (min, median,\n"
    "p99), algbw_GBps, busbw_GBps, roofline_us, memcpy_us, verified, repetitions,\n"
    "calls_per_time, segments). docs/performance.md has the method and figures.";

/// CLI11 wants places to store to that live as long as the parser.
struct BenchFlags {
  BenchWords words;
  std::string sizes;
  std::string json;
  std::string place;
};

void add_bench_flags(CLI::App& bench, BenchFlags& flags) {
  BenchWords& words = flags.words;
  bench
      .add_option("what", words.what,
                  "allreduce, reduce_scatter, allgather, broadcast, barrier or futex")
      ->type_name("");
  add_number(bench, "-n", words.ranks, "ranks, 2 to 64 (2)")->type_name("N");
  bench.add_option("--link", words.link, "auto, shm, tcp or memory (ranks are threads) (auto)")
      ->type_name("L");
  bench.add_option("--memory", words.memory, "resident or private (resident)")->type_name("M");
  bench.add_option("--dtype", words.dtype, "f32, f64, f16, bf16, u8, i32 or i64 (f32)")
      ->type_name("T");
  bench.add_option("--sizes", flags.sizes, "bytes of the buffers (4K,64K,1M,25M,100M)")
      ->type_name("B,B");
  add_number(bench, "--seconds", words.seconds, "for each size (1)")->type_name("S");
  bench.add_option("--json", flags.json, "write all figures there")->type_name("FILE");
  bench.add_option("--rank-of", flags.place, "for paceline itself")->group("");
}

void print_text(const std::string& text) {
  fmt::print("{}", text);
  std::fflush(stdout);  // a row when it is known
}

/// Prints what comes and keeps it.
class Collector {
 public:
  explicit Collector(const BenchOptions& options) : options_(options) {}

  int run() {
    const Clock::time_point begin = Clock::now();
    return run_bench(options_,
                     {.on_ready =
                          [&](const std::string& link, const std::string& why_not_shared) {
                            const std::chrono::duration<double, std::milli> ready =
                                Clock::now() - begin;
                            report_.ready_ms = ready.count();
                            report_.link = link;
                            report_.link_reason = why_not_shared;
                            print_text(heading_of(options_, report_));
                          },
                      .on_row =
                          [&](const BenchRow& row) {
                            report_.rows.push_back(row);
                            print_text(line_of(row, options_));
                          }});
  }

  [[nodiscard]] const BenchReport& report() const { return report_; }

 private:
  const BenchOptions& options_;
  BenchReport report_;
};

int bench(const BenchOptions& options, const std::optional<std::string>& json) {
  std::optional<example::OutputFile> file;
  if (json) file.emplace("--json", *json);  // before the work, not after
  Collector collector(options);
  if (const int code = collector.run(); code != 0) return code;
  const auto& rows = collector.report().rows;
  if (rows.size() != options.sizes.size()) {
    throw std::runtime_error("the ranks have ended without telling all their times");
  }
  if (file) {
    file->write(json_of(collector.report(), options));
    file->commit();
  }
  const bool right = std::ranges::all_of(rows, [](const auto& row) { return row.verified; });
  return right ? 0 : 1;
}

}  // namespace

void add_bench_command(CLI::App& root, Action& action) {
  CLI::App* const command =
      root.add_subcommand("bench", "Times collectives, beside what limits them");
  command->footer(kBenchFooter);
  const auto flags = std::make_shared<BenchFlags>();
  add_bench_flags(*command, *flags);
  add_bench_step_command(*command, action);
  command->callback([command, flags, &action] {
    if (!command->get_subcommands().empty()) return;  // `step` has told what to do
    if (command->count("what") == 0) throw CLI::RequiredError("what");
    if (command->count("--sizes") > 0) flags->words.sizes = flags->sizes;
    const bool writes = command->count("--json") > 0;
    action = [flags, writes] {
      const BenchOptions options = bench_options_from(flags->words);
      if (!flags->place.empty()) return run_bench_rank(options, flags->place);
      if (writes && flags->json.empty()) throw UsageError("--json is empty: it must name a file");
      return bench(options, writes ? std::optional(flags->json) : std::nullopt);
    };
  });
}

}  // namespace paceline::apps
