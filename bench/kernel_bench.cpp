// SPDX-License-Identifier: Apache-2.0
// fold() beside memcpy, on one core. Bytes per second count what is read and what is written.
#include <benchmark/benchmark.h>

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <string>
#include <vector>

#include "paceline/kernel/fold.h"
#include "paceline/kernel/targets.h"

namespace paceline::kernel {
namespace {

constexpr std::size_t kKiB = 1024;
constexpr std::size_t kMiB = 1024 * kKiB;

/// A cache line, so that each operand starts at one and alignment is the same in all benchmarks.
struct alignas(64) Line {
  std::byte bytes[64];
};
using Memory = std::vector<Line>;
std::byte* data(Memory& memory) { return memory.front().bytes; }

/// `bytes` of ordinary values: 1.0 as F32, or pairs of ordinary 16-bit floats.
Memory values(std::size_t bytes) {
  Memory memory(bytes / sizeof(Line));
  const std::uint32_t bits = 0x3f803f80;
  for (std::size_t i = 0; i + sizeof(bits) <= bytes; i += sizeof(bits)) {
    std::memcpy(data(memory) + i, &bits, sizeof(bits));
  }
  return memory;
}

/// Sets the rate: `bytes` read and written in each iteration.
void report(benchmark::State& state, std::size_t bytes) {
  const auto total = static_cast<double>(state.iterations()) * static_cast<double>(bytes);
  state.counters["GB/s"] = benchmark::Counter(total / 1e9, benchmark::Counter::kIsRate);
}

void copy(benchmark::State& state) {
  const auto bytes = static_cast<std::size_t>(state.range(0));
  auto from = values(bytes);
  auto to = values(bytes);
  for (auto _ : state) {
    std::memcpy(data(to), data(from), bytes);
    benchmark::ClobberMemory();
  }
  report(state, 2 * bytes);
}

/// Where the sum goes: into memory apart, into the first term, into every term.
enum class Into { kOwn, kFirst, kEach };

struct Shape {
  Dtype dtype;
  ReduceOp op;
  std::size_t term_count;
  Into into;
};

std::vector<Target> targets_of(Into into, std::vector<Memory>& operands, Memory& own) {
  std::vector<Target> targets;
  if (into == Into::kOwn) return {{data(own), Form::kT}};
  for (auto& operand : operands) targets.push_back({data(operand), Form::kT});
  if (into == Into::kFirst) targets.resize(1);
  return targets;
}

void fold_terms(benchmark::State& state, Shape shape) {
  const auto bytes = static_cast<std::size_t>(state.range(0));
  std::vector<Memory> operands(shape.term_count, values(bytes));
  auto own = values(bytes);
  std::vector<Term> terms;
  for (auto& operand : operands) terms.push_back({data(operand), Form::kT});
  const auto targets = targets_of(shape.into, operands, own);
  const std::size_t count = bytes / size_of(shape.dtype);
  for (auto _ : state) {
    fold(shape.dtype, shape.op, 2, count, terms, targets);
    benchmark::ClobberMemory();
  }
  report(state, (shape.term_count + targets.size()) * bytes);
}

void add(const std::string& name, const Shape& shape) {
  benchmark::RegisterBenchmark(name.c_str(), fold_terms, shape)
      ->Arg(4 * kKiB)
      ->Arg(256 * kKiB)
      ->Arg((size_of(shape.dtype) == 2 ? 25 * kMiB / 2 : 25 * kMiB));
}

void add_all() {
  using enum Dtype;
  benchmark::RegisterBenchmark("memcpy", copy)->Arg(4 * kKiB)->Arg(256 * kKiB)->Arg(25 * kMiB);
  add("f32_sum_2", {kF32, ReduceOp::kSum, 2, Into::kOwn});
  add("f32_sum_2_in_place", {kF32, ReduceOp::kSum, 2, Into::kFirst});
  add("f32_mean_2_in_place", {kF32, ReduceOp::kMean, 2, Into::kFirst});
  add("f32_min_2_in_place", {kF32, ReduceOp::kMin, 2, Into::kFirst});
  add("f32_sum_4", {kF32, ReduceOp::kSum, 4, Into::kOwn});
  add("bf16_sum_2_in_place", {kBF16, ReduceOp::kSum, 2, Into::kFirst});
  add("bf16_sum_4", {kBF16, ReduceOp::kSum, 4, Into::kOwn});
  add("f16_sum_2_in_place", {kF16, ReduceOp::kSum, 2, Into::kFirst});
  add("u8_sum_2_in_place", {kU8, ReduceOp::kSum, 2, Into::kFirst});
  for (const std::size_t n : {2U, 4U, 8U}) {
    const std::string rest = "_sum_" + std::to_string(n) + "_into_each";
    add("f32" + rest, {kF32, ReduceOp::kSum, n, Into::kEach});
    add("bf16" + rest, {kBF16, ReduceOp::kSum, n, Into::kEach});
    add("f16" + rest, {kF16, ReduceOp::kSum, n, Into::kEach});
  }
}

}  // namespace
}  // namespace paceline::kernel

int main(int argc, char** argv) {
  benchmark::AddCustomContext("simd_target", paceline::kernel::target_name());
  paceline::kernel::add_all();
  benchmark::Initialize(&argc, argv);
  if (benchmark::ReportUnrecognizedArguments(argc, argv)) return 1;
  benchmark::RunSpecifiedBenchmarks();
  return 0;
}
