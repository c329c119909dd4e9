// SPDX-License-Identifier: Apache-2.0
#include <fmt/format.h>

#include <algorithm>
#include <functional>

#include "apps/compare/machine.h"
#include "apps/compare/words.h"

namespace paceline::apps {
namespace {

using Cell = std::function<std::string(const RunResult&)>;

/// The table's maker: one text per run of a mechanism, "2: … · 4: …".
class Table {
 public:
  explicit Table(const Comparison& comparison) : comparison_(comparison) {}

  [[nodiscard]] std::string each(Mechanism mechanism, const Cell& cell) const {
    std::string text;
    for (const RunResult& run : comparison_.runs) {
      if (run.contestant.mechanism != mechanism) continue;
      text += fmt::format("{}N={}: {}", text.empty() ? "" : "; ", run.contestant.ranks, cell(run));
    }
    return text;
  }
  [[nodiscard]] TableRow both(const std::string& what, const Cell& cell) const {
    return {.what = what, .dp = each(Mechanism::kDp, cell), .ddp = each(Mechanism::kDdp, cell)};
  }

  [[nodiscard]] TableSection process_model() const;
  [[nodiscard]] TableSection gradient_path() const;
  [[nodiscard]] TableSection performance() const;
  [[nodiscard]] TableSection scale() const;

 private:
  [[nodiscard]] std::string growth(bool dp) const;
  [[nodiscard]] std::string single(Mechanism mechanism) const;

  const Comparison& comparison_;
};

/// How a rank's bytes grow. Only for a ring it can be said without looking at N.
std::string growth_words(const RunResult& ddp) {
  return ddp.formula.per_link.empty() ? "depends on each bucket's algorithm. "
                                      : "all but constant, 4(N-1)/N·M. ";
}

std::uint64_t most_of_the_others(const RunResult& run) {
  const auto& all = run.traffic.participants;
  std::uint64_t most = 0;
  for (std::size_t i = 1; i < all.size(); ++i) most = std::max(most, all[i].both());
  return most;
}

TableSection Table::process_model() const {
  return {
      "process model",
      {both("processes", [](auto& run) { return fmt::format("{}", run.count.processes); }),
       both("threads, together", [](auto& run) { return fmt::format("{}", run.count.threads); }),
       {"what contends",
        "one allocator, one set of LibTorch thread pools, one page table. C++ has no interpreter "
        "lock: the devices' threads do run at the same time",
        "each rank has an allocator and thread pools of its own; ranks share only cores, caches "
        "and the memory bus"},
       {"if one fails", "an exception that names the device; the process decides",
        "every other rank gets an error that names it; the launcher ends the job"}}};
}

TableSection Table::gradient_path() const {
  return {
      "gradient path",
      {{"steps of a gradient",
        "parameters to every device, forward, outputs to device 0, loss, backward, gradients to "
        "device 0, added there in device order, one optimizer step",
        "backward, bucket full, all-reduce beside the rest of backward, the same mean on each "
        "rank, "
        "an optimizer step on each rank"},
       {"through device 0 / rank 0, per step",
        each(Mechanism::kDp,
             [](auto& run) { return megabytes(run.traffic.participants.front().both()); }),
        each(Mechanism::kDdp,
             [](auto& run) { return megabytes(run.traffic.participants.front().both()); })},
       both("through any other, per step",
            [](auto& run) { return megabytes(most_of_the_others(run)); }),
       {"on a ring edge, per step", "there is no ring",
        each(Mechanism::kDdp,
             [](auto& run) {
               return run.formula.per_link.empty() ? "not every bucket goes round a ring"
                                                   : megabytes(run.traffic.per_link.front());
             })},
       {"parameters sent again, per step",
        each(Mechanism::kDp,
             [](auto& run) { return megabytes(run.traffic.participants.front().sent); }),
        "none: same start, same gradients, same parameters"},
       {"inputs and outputs moved, per step",
        each(Mechanism::kDp,
             [](auto& run) {
               return megabytes(run.traffic.scatter_bytes + run.traffic.gather_bytes);
             }),
        "none: each rank reads its own samples and keeps its outputs"}}};
}

std::string Table::single(Mechanism mechanism) const {
  const RunResult* run = find_run(comparison_, mechanism);
  return run == nullptr
             ? "not measured"
             : fmt::format("{}: {:.1f} ms, {:.0f} {}/s", title_of(run->contestant),
                           run->step_ms.median, run->samples_per_s, comparison_.facts.unit);
}

TableSection Table::performance() const {
  return {"performance",
          {both("step, median (p10 to p90)",
                [](auto& run) {
                  return fmt::format("{:.1f} ms ({:.1f} to {:.1f})", run.step_ms.median,
                                     run.step_ms.p10, run.step_ms.p90);
                }),
           both(comparison_.facts.unit + " per second",
                [](auto& run) { return fmt::format("{:.0f}", run.samples_per_s); }),
           both("speed-up over one thread",
                [](auto& run) { return fmt::format("{:.2f}", run.speed_up); }),
           both("efficiency",
                [](auto& run) {
                  return fmt::format("{:.0f} %", 100 * run.speed_up / run.contestant.ranks);
                }),
           both("communication, and its share behind backward",
                [](auto& run) -> std::string {
                  if (!run.communication) return "not measured";
                  return fmt::format("{:.1f} ms, {:.0f} %", run.communication->ms,
                                     100 * run.communication->share_hidden());
                }),
           {"beside them", single(Mechanism::kSingle), single(Mechanism::kSingleAllCores)}}};
}

std::string Table::growth(bool dp) const {
  std::string text;
  for (const ScaleRow& row : comparison_.scale) {
    const Counted& one = dp ? row.dp : row.ddp;
    const bool last = &row == &comparison_.scale.back();
    if (!one.measured && !last) continue;
    text += fmt::format("{}N={}: {}{}", text.empty() ? "" : "; ", row.ranks,
                        megabytes(one.measured.value_or(one.formula)),
                        one.measured ? "" : " (counted)");
  }
  return text;
}

TableSection Table::scale() const {
  const ScaleRow& last = comparison_.scale.back();
  const auto memory = [&](Mechanism mechanism, std::uint64_t at_last) {
    return each(mechanism, [](auto& run) { return megabytes(run.device0_peak_bytes); }) +
           fmt::format("; N={}: {} (counted)", last.ranks, megabytes(at_last));
  };
  return {"scale",
          {{"hosts", "one: all devices belong to one process",
            "one or many: ranks meet over the network"},
           {"busiest participant, per step", "grows with N, 2(N-1)·M. " + growth(true),
            growth_words(*find_run(comparison_, Mechanism::kDdp)) + growth(false)},
           {"memory of device 0 / rank 0", memory(Mechanism::kDp, last.dp_device0_bytes),
            memory(Mechanism::kDdp, last.ddp_rank0_bytes)}}};
}

}  // namespace

std::vector<TableSection> table_of(const Comparison& comparison) {
  const Table table(comparison);
  return {table.process_model(), table.gradient_path(), table.performance(), table.scale()};
}

std::vector<std::string> notes_of(const Comparison& comparison) {
  std::vector<std::string> notes{
      "Bytes are payload of parameters and gradients in one step; a megabyte is 10^6 bytes.",
      "A step is forward, backward and the optimizer; batches are made before it. Of several "
      "ranks, the slowest counts.",
      "All devices and ranks of this run are on one host: what a network would cost is not "
      "measured.",
      "Memory is that of parameters, gradients and outputs; what autograd keeps for backward is "
      "not measured. On the CPU all devices share the process's memory, which holds N times the "
      "parameters."};
  const int cores = this_machine().cores;
  if (comparison.load_before > cores / 2.0) {
    notes.push_back(
        fmt::format("The machine was busy before this began (load {:.1f} on {} cores): times "
                    "depend on what else "
                    "it did, and ways with more threads get a larger share of it. Bytes do not.",
                    comparison.load_before, cores));
  }
  if (!comparison.losses_agree) {
    notes.emplace_back(
        "The losses do not agree: times and bytes of different trainings say little.");
  }
  return notes;
}

std::string megabytes(std::uint64_t bytes) {
  const double value = static_cast<double>(bytes) / 1e6;
  return value >= 1000 ? fmt::format("{:.2f} GB", value / 1000)
         : value >= 10 ? fmt::format("{:.1f} MB", value)
                       : fmt::format("{:.2f} MB", value);
}

}  // namespace paceline::apps
