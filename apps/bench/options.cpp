// SPDX-License-Identifier: Apache-2.0
#include "apps/bench/options.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <span>

#include "apps/number_option.h"
#include "paceline/base/error.h"

namespace paceline::apps {
namespace {

constexpr int kMostRanks = 64;
constexpr double kMostSeconds = 3600;
constexpr std::uint64_t kMostBytes = std::uint64_t{1} << 40;
constexpr const char* kDefaultSizes = "4K,64K,1M,25M,100M";
constexpr std::string_view kFutex = "futex";

constexpr std::array kCollectives{Collective::kAllReduce, Collective::kReduceScatter,
                                  Collective::kAllGather, Collective::kBroadcast,
                                  Collective::kBarrier};
constexpr std::array kLinks{BenchLink::kAuto, BenchLink::kShm, BenchLink::kTcp, BenchLink::kMemory};
constexpr std::array kMemories{BenchMemory::kResident, BenchMemory::kPrivate};
constexpr std::array kDtypes{Dtype::kF32, Dtype::kF64, Dtype::kF16, Dtype::kBF16,
                             Dtype::kU8,  Dtype::kI32, Dtype::kI64};

/// The one whose name is `text`.
template <typename T>
T chosen(std::string_view option, const std::string& text, std::span<const T> all) {
  std::string known;
  for (const T one : all) {
    if (name_of(one) == text) return one;
    known += fmt::format("{}{}", known.empty() ? "" : ", ", name_of(one));
  }
  throw UsageError(fmt::format("{} '{}': must be one of {}", option, text, known));
}

std::optional<Collective> subject_from(const std::string& text) {
  if (text == kFutex) return std::nullopt;
  const auto* const found = std::ranges::find_if(
      kCollectives, [&](const Collective one) { return name_of(one) == text; });
  if (found != kCollectives.end()) return *found;
  throw UsageError(fmt::format(
      "paceline bench '{}': must be allreduce, reduce_scatter, allgather, broadcast, barrier or "
      "futex",
      text));
}

std::uint64_t factor_of(char unit) {
  switch (unit) {
    case 'K': return std::uint64_t{1} << 10;
    case 'M': return std::uint64_t{1} << 20;
    case 'G': return std::uint64_t{1} << 30;
    default: return 1;
  }
}

std::uint64_t size_from(const std::string& text, const std::string& all, Dtype dtype) {
  const std::uint64_t factor = text.empty() ? 1 : factor_of(text.back());
  const std::string digits = factor == 1 ? text : text.substr(0, text.size() - 1);
  std::uint64_t number = 0;
  if (const std::string why = read_number(digits, number); !why.empty()) {
    throw UsageError(
        fmt::format("--sizes {}: '{}' {}; write it as in --sizes 4K,1M,25M", all, text, why));
  }
  if (number < 1 || number > kMostBytes / factor) {
    throw UsageError(fmt::format("--sizes {}: '{}' is not from 1 to 1024G", all, text));
  }
  if (number * factor % size_of(dtype) != 0) {
    throw UsageError(fmt::format("--sizes {}: '{}' is no whole number of {} elements of {} bytes",
                                 all, text, name_of(dtype), size_of(dtype)));
  }
  return number * factor;
}

std::vector<std::uint64_t> sizes_from(const std::string& text, Dtype dtype) {
  std::vector<std::uint64_t> sizes;
  for (std::size_t begin = 0; begin <= text.size();) {
    const std::size_t end = std::min(text.find(',', begin), text.size());
    sizes.push_back(size_from(text.substr(begin, end - begin), text, dtype));
    begin = end + 1;
  }
  return sizes;
}

void check_numbers(const BenchWords& words) {
  if (words.ranks < 2 || words.ranks > kMostRanks) {
    throw UsageError(fmt::format("-n is {}: it must be from 2 to {}", words.ranks, kMostRanks));
  }
  if (!(words.seconds > 0) || words.seconds > kMostSeconds) {
    throw UsageError(fmt::format("--seconds is {}: it must be above 0 and at most {}",
                                 words.seconds, kMostSeconds));
  }
}

}  // namespace

std::string_view name_of(BenchLink link) noexcept {
  switch (link) {
    case BenchLink::kAuto: return "auto";
    case BenchLink::kShm: return "shm";
    case BenchLink::kTcp: return "tcp";
    case BenchLink::kMemory: return "memory";
  }
  return "?";
}

std::string_view name_of(BenchMemory memory) noexcept {
  return memory == BenchMemory::kResident ? "resident" : "private";
}

std::string_view subject_of(const BenchOptions& options) noexcept {
  return options.what ? name_of(*options.what) : kFutex;
}

bool moves_nothing(const BenchOptions& options) noexcept {
  return !options.what || *options.what == Collective::kBarrier;
}

BenchOptions bench_options_from(const BenchWords& words) {
  check_numbers(words);
  BenchOptions options{.what = subject_from(words.what),
                       .ranks = words.ranks,
                       .link = chosen<BenchLink>("--link", words.link, kLinks),
                       .memory = chosen<BenchMemory>("--memory", words.memory, kMemories),
                       .dtype = chosen<Dtype>("--dtype", words.dtype, kDtypes),
                       .seconds = words.seconds};
  if (!moves_nothing(options)) {
    options.sizes = sizes_from(words.sizes.value_or(kDefaultSizes), options.dtype);
    return options;
  }
  if (words.sizes) {
    throw UsageError(fmt::format("--sizes {}: a {} moves no data, leave it out", *words.sizes,
                                 options.what ? "barrier" : "futex barrier"));
  }
  if (!options.what && options.link == BenchLink::kTcp) {
    throw UsageError("--link tcp: a futex needs memory that all ranks share; choose shm or memory");
  }
  options.sizes = {0};
  return options;
}

std::vector<std::string> arguments_of(const BenchOptions& options) {
  std::vector<std::string> arguments{"bench",     std::string(subject_of(options)),
                                     "-n",        std::to_string(options.ranks),
                                     "--link",    std::string(name_of(options.link)),
                                     "--memory",  std::string(name_of(options.memory)),
                                     "--dtype",   std::string(name_of(options.dtype)),
                                     "--seconds", fmt::format("{}", options.seconds)};
  if (!moves_nothing(options)) {
    arguments.insert(arguments.end(),
                     {"--sizes", fmt::format("{}", fmt::join(options.sizes, ","))});
  }
  return arguments;
}

}  // namespace paceline::apps
