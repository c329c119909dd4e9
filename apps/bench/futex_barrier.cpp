// SPDX-License-Identifier: Apache-2.0
#include "apps/bench/futex_barrier.h"

#include <array>
#include <chrono>
#include <cstring>
#include <memory>
#include <stdexcept>

#include "apps/bench/shared_address.h"
#include "apps/bench/together.h"
#include "paceline/base/error.h"

namespace paceline::apps {
namespace {

constexpr auto kPatience = std::chrono::minutes(1);
using Word = std::atomic<std::uint32_t>;
static_assert(Word::is_always_lock_free && sizeof(Word) == sizeof(std::uint32_t));

}  // namespace

void FutexBarrier::wait() {
  const std::uint32_t seen = word_.fetch_add(1, std::memory_order_acq_rel) + 1;
  const std::uint32_t generation = seen >> kBits;
  if ((seen & ((1U << kBits) - 1)) == world_) {
    word_.store((generation + 1) << kBits, std::memory_order_release);
    net::futex_wake_all(word_, scope_);
    return;
  }
  for (std::uint32_t now = seen; now >> kBits == generation;
       now = word_.load(std::memory_order_acquire)) {
    if (!net::futex_wait(word_, now, Deadline::after(kPatience), scope_)) {
      throw std::runtime_error("a rank has not come to the futex barrier for a minute");
    }
  }
}

Exercise make_futex_barrier(Communicator& comm, const BenchOptions& options) {
  const BenchBuffer own = allocate(comm, BenchMemory::kResident, sizeof(Word));
  std::memset(own.data.get(), 0, own.bytes);
  const std::vector<std::byte*> words = shared_addresses(comm, options, own);
  if (words.empty()) {
    throw UsageError(
        "paceline bench futex: these ranks share no memory; choose --link shm or --link memory");
  }
  const auto scope =
      options.link == BenchLink::kMemory ? net::FutexScope::kPrivate : net::FutexScope::kShared;
  auto barrier = std::make_shared<FutexBarrier>(*reinterpret_cast<Word*>(words.front()),
                                                comm.world_size(), scope);
  comm.barrier();
  return {.call = [barrier] { barrier->wait(); }, .most_calls = 32, .all_meet = true, .out = own};
}

}  // namespace paceline::apps
