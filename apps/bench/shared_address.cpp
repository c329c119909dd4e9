// SPDX-License-Identifier: Apache-2.0
#include "apps/bench/shared_address.h"

#include <array>
#include <cstdint>

#include "apps/bench/together.h"
#include "paceline/comm/context.h"
#include "paceline/link/link.h"

namespace paceline::apps {
namespace {

constexpr std::int64_t kOutOfReach = -1;

link::Windows* windows_of(Communicator& comm) {
  return dynamic_cast<Context&>(comm.engine()).fabric()->windows();  // of two ranks or more
}

std::int64_t offset_of(link::Windows* windows, int rank, const BenchBuffer& own) {
  if (windows == nullptr || windows->owner_of(own.data.get(), own.bytes) != rank)
    return kOutOfReach;
  return own.data.get() - windows->segment(rank).data();
}

}  // namespace

std::vector<std::byte*> shared_addresses(Communicator& comm,
                                         const BenchOptions& options,
                                         const BenchBuffer& own) {
  const bool threads = options.link == BenchLink::kMemory;
  link::Windows* const windows = windows_of(comm);
  const std::array<std::int64_t, 1> mine{threads ? reinterpret_cast<std::int64_t>(own.data.get())
                                                 : offset_of(windows, comm.rank(), own)};
  std::vector<std::byte*> addresses;
  for (const std::int64_t place : gather(comm, mine)) {
    if (!threads && place == kOutOfReach) return {};
    const auto rank = static_cast<int>(addresses.size());
    addresses.push_back(threads ? reinterpret_cast<std::byte*>(place)
                                : windows->segment(rank).data() + place);
  }
  return addresses;
}

}  // namespace paceline::apps
