// SPDX-License-Identifier: Apache-2.0
#include "apps/bench/exercise.h"

#include <fmt/format.h>

#include <cstring>
#include <new>
#include <utility>

#include "apps/bench/pattern.h"

namespace paceline::apps {
namespace {

constexpr std::size_t kAlignment = 64;  // LibTorch's
constexpr int kMostCalls = 32;
constexpr int kRoot = 0;
constexpr int kNothing = 0xff;  // what no result is made of

template <typename T>
std::span<T> typed(const BenchBuffer& buffer) {
  return {reinterpret_cast<T*>(buffer.data.get()), buffer.bytes / sizeof(T)};
}

template <typename T>
std::function<void()> call_of(Communicator& comm, Collective what, const Exercise& on) {
  const std::span<T> in = typed<T>(on.in), out = typed<T>(on.out);
  switch (what) {
    case Collective::kAllReduce: return [&comm, out] { comm.allreduce(out, ReduceOp::kSum); };
    case Collective::kReduceScatter:
      return [&comm, in, out] { comm.reduce_scatter(std::span<const T>(in), out, ReduceOp::kSum); };
    case Collective::kAllGather:
      return [&comm, in, out] { comm.allgather(std::span<const T>(in), out); };
    case Collective::kBroadcast: return [&comm, out] { comm.broadcast(out, kRoot); };
    case Collective::kBarrier: break;
  }
  return [&comm] { comm.barrier(); };
}

std::function<void()> call_of(Communicator& comm,
                              Collective what,
                              Dtype dtype,
                              const Exercise& on) {
  switch (dtype) {
    case Dtype::kF32: return call_of<float>(comm, what, on);
    case Dtype::kF64: return call_of<double>(comm, what, on);
    case Dtype::kF16: return call_of<Float16>(comm, what, on);
    case Dtype::kBF16: return call_of<BFloat16>(comm, what, on);
    case Dtype::kU8: return call_of<std::uint8_t>(comm, what, on);
    case Dtype::kI32: return call_of<std::int32_t>(comm, what, on);
    case Dtype::kI64: break;
  }
  return call_of<std::int64_t>(comm, what, on);
}

void clear(const BenchBuffer& buffer) {
  if (buffer.bytes > 0) std::memset(buffer.data.get(), kNothing, buffer.bytes);
}

/// Looks at whole buffers and says where one is wrong.
class Checker {
 public:
  Checker(int rank, const BenchOptions& options) : rank_(rank), options_(options) {}

  [[nodiscard]] std::optional<std::string> operator()(std::span<const std::byte> data,
                                                      const Pattern& pattern,
                                                      std::uint64_t first) const {
    const auto at = pattern.difference(data, first);
    if (!at) return std::nullopt;
    return fmt::format("rank {}: a wrong result of {} {}: element {} of {}", rank_,
                       subject_of(options_), name_of(options_.dtype), *at / size_of(options_.dtype),
                       data.size() / size_of(options_.dtype));
  }

 private:
  int rank_;
  BenchOptions options_;
};

void set_allreduce(Exercise& exercise, const Checker& checker, Dtype dtype, int rank, int world) {
  exercise.most_calls = exact_calls(dtype, world, kMostCalls);
  exercise.prepare = [data = exercise.out, own = pattern_of_rank(dtype, rank)] {
    own.fill(data.span(), 0);
  };
  exercise.check = [data = exercise.out, checker, dtype, world](int calls) {
    return checker(data.span(), pattern_of_sum(dtype, world, calls), 0);
  };
}

void set_reduce_scatter(Exercise& exercise,
                        const Checker& checker,
                        Dtype dtype,
                        Communicator& comm) {
  const std::uint64_t first = comm.shard(exercise.in.bytes / size_of(dtype)).begin;
  exercise.prepare = [in = exercise.in, out = exercise.out,
                      own = pattern_of_rank(dtype, comm.rank())] {
    own.fill(in.span(), 0);
    clear(out);
  };
  exercise.check = [out = exercise.out, checker, first,
                    sum = pattern_of_sum(dtype, comm.world_size(), 1)](int) {
    return checker(out.span(), sum, first);
  };
}

void set_allgather(Exercise& exercise, const Checker& checker, Dtype dtype, Communicator& comm) {
  const std::uint64_t first = comm.shard(exercise.out.bytes / size_of(dtype)).begin;
  exercise.prepare = [in = exercise.in, out = exercise.out, first,
                      all = pattern_of_rank(dtype, 0)] {
    all.fill(in.span(), first);
    clear(out);
  };
  exercise.check = [out = exercise.out, checker, all = pattern_of_rank(dtype, 0)](int) {
    return checker(out.span(), all, 0);
  };
}

void set_broadcast(Exercise& exercise, const Checker& checker, Dtype dtype, int rank) {
  exercise.prepare = [data = exercise.out, own = pattern_of_rank(dtype, kRoot), rank] {
    if (rank == kRoot) {
      own.fill(data.span(), 0);
    } else {
      clear(data);
    }
  };
  exercise.check = [data = exercise.out, checker, root = pattern_of_rank(dtype, kRoot)](int) {
    return checker(data.span(), root, 0);
  };
}

void set_buffers(Exercise& exercise,
                 Communicator& comm,
                 const BenchOptions& options,
                 std::uint64_t bytes) {
  const std::size_t element_bytes = size_of(options.dtype);
  const std::uint64_t shard = comm.shard(bytes / element_bytes).size() * element_bytes;
  const bool scatters = options.what == Collective::kReduceScatter;
  exercise.out = allocate(comm, options.memory, scatters ? shard : bytes);
  exercise.in = exercise.out;
  if (scatters) exercise.in = allocate(comm, options.memory, bytes);
  if (options.what == Collective::kAllGather) {
    exercise.in = allocate(comm, options.memory, shard);
  }
}

}  // namespace

BenchBuffer allocate(Communicator& comm, BenchMemory memory, std::size_t bytes) {
  if (bytes == 0) return {};
  if (memory == BenchMemory::kResident) {
    Region region = comm.engine().allocate(bytes);
    return {.data = std::move(region.data), .bytes = bytes};
  }
  constexpr std::align_val_t kAligned{kAlignment};
  auto* const data = static_cast<std::byte*>(::operator new(bytes, kAligned));
  const auto release = [](std::byte* begin) { ::operator delete(begin, kAligned); };
  return {.data = {data, release}, .bytes = bytes};
}

Exercise make_collective(Communicator& comm, const BenchOptions& options, std::uint64_t bytes) {
  const Collective what = options.what.value_or(Collective::kBarrier);
  const Checker checker(comm.rank(), options);
  Exercise exercise{.most_calls = kMostCalls};
  set_buffers(exercise, comm, options, bytes);
  switch (what) {
    case Collective::kAllReduce:
      set_allreduce(exercise, checker, options.dtype, comm.rank(), comm.world_size());
      break;
    case Collective::kReduceScatter:
      set_reduce_scatter(exercise, checker, options.dtype, comm);
      break;
    case Collective::kAllGather: set_allgather(exercise, checker, options.dtype, comm); break;
    case Collective::kBroadcast:
      set_broadcast(exercise, checker, options.dtype, comm.rank());
      break;
    case Collective::kBarrier: exercise.all_meet = true; break;
  }
  exercise.call = call_of(comm, what, options.dtype, exercise);
  return exercise;
}

}  // namespace paceline::apps
