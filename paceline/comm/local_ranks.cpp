// SPDX-License-Identifier: Apache-2.0
// Ranks as threads of one process.
#include <fmt/format.h>

#include <exception>
#include <memory>
#include <thread>
#include <utility>

#include "paceline/base/error.h"
#include "paceline/comm/context.h"
#include "paceline/comm/frame.h"
#include "paceline/comm/init.h"
#include "paceline/comm/loopback.h"
#include "paceline/link/memory/memory_fabric.h"
#include "paceline/link/shm/shm_fabric.h"
#include "paceline/link/tcp/tcp_fabric.h"
#include "paceline/net/socket.h"
#include "paceline/store/control.h"

namespace paceline {
namespace {

// What each rank of a group threw; each thread writes its own entry.
class Failures {
 public:
  explicit Failures(int world) : of_rank_(static_cast<std::size_t>(world)) {}

  // Called in a handler.
  void note(int rank, bool consequence) {
    of_rank_[static_cast<std::size_t>(rank)] = {std::current_exception(), consequence};
  }
  // The lowest rank's failure; what may only follow from another rank's counts if there is no
  // other.
  void rethrow() const {
    for (const bool consequence : {false, true}) {
      for (const Failure& failure : of_rank_) {
        if (failure.error && failure.consequence == consequence) {
          std::rethrow_exception(failure.error);
        }
      }
    }
  }

 private:
  struct Failure {
    std::exception_ptr error;
    bool consequence = false;
  };
  std::vector<Failure> of_rank_;
};

void run_rank(Communicator comm,
              const std::function<void(Communicator&)>& body,
              Failures& failures) {
  const int rank = comm.rank();
  std::string reason;
  try {
    body(comm);
    return;
  } catch (const CommError& error) {
    failures.note(rank, true);
    reason = error.what();
  } catch (const std::exception& error) {
    failures.note(rank, false);
    reason = error.what();
  } catch (...) {
    failures.note(rank, false);
    reason = "an exception of unknown type";
  }
  try {
    comm.abort(reason);
  } catch (const std::exception&) {  // the communicator was moved from: nobody waits for it
  }
}

using Fabrics = std::vector<std::unique_ptr<link::Fabric>>;

// A connected pair of sockets on loopback for each pair of ranks.
Fabrics make_loopback_fabrics(int world) {
  const auto n = static_cast<std::size_t>(world);
  std::vector<std::vector<net::Fd>> sockets(n);
  for (auto& row : sockets) row.resize(n);
  const net::Fd listener = net::listen_tcp("127.0.0.1", 0);
  const Deadline deadline = Deadline::after(std::chrono::seconds(10));
  for (std::size_t a = 0; a < n; ++a) {
    for (std::size_t b = a + 1; b < n; ++b) {
      auto ends = connect_to_self(listener, deadline);
      sockets[a][b] = std::move(ends[0]);
      sockets[b][a] = std::move(ends[1]);
    }
  }
  Fabrics fabrics;
  for (int rank = 0; rank < world; ++rank) {
    fabrics.push_back(
        link::make_tcp_fabric(rank, std::move(sockets[static_cast<std::size_t>(rank)])));
  }
  return fabrics;
}

Fabrics make_shm_fabrics(int world, const LocalOptions& options) {
  link::LocalShmOptions shm{.segment_bytes = options.window_bytes};
  shm.ring_bytes = options.link_capacity_bytes.value_or(shm.ring_bytes);
  try {
    return link::make_local_shm_fabrics(world, shm);
  } catch (const link::OutOfWindowMemory& error) {
    throw CommError(CommErrc::kConnectFailed, -1, -1,
                    fmt::format("make_local_ranks: no shared memory: {}", error.what()));
  }
}

Fabrics make_fabrics(int world, const LocalOptions& options) {
  switch (options.link) {
    case LocalLink::kTcp: return make_loopback_fabrics(world);
    case LocalLink::kShm: return make_shm_fabrics(world, options);
    case LocalLink::kMemory: break;
  }
  const link::MemoryOptions memory{};
  return link::make_memory_fabrics(
      world, {.capacity_bytes = options.link_capacity_bytes.value_or(memory.capacity_bytes)});
}

}  // namespace

std::vector<Communicator> make_local_ranks(int world, const LocalOptions& options) {
  if (world < 1)
    throw UsageError(fmt::format("make_local_ranks: {} ranks, need at least 1", world));
  if (options.segment_bytes == 0 || options.segment_bytes > kMaxFramePayload) {
    throw UsageError(fmt::format("make_local_ranks: segments of {} bytes, need 1 to {}",
                                 options.segment_bytes, kMaxFramePayload));
  }
  Fabrics fabrics = make_fabrics(world, options);
  auto controls = store::make_memory_controls(world);
  std::vector<Communicator> ranks;
  ranks.reserve(static_cast<std::size_t>(world));
  for (int rank = 0; rank < world; ++rank) {
    const auto r = static_cast<std::size_t>(rank);
    ContextOptions context{.rank = rank,
                           .world = world,
                           .generation = 1,
                           .fabric = std::move(fabrics[r]),
                           .control = std::move(controls[r]),
                           .algorithm = options.algorithm,
                           .segment_bytes = options.segment_bytes};
    ranks.emplace_back(std::make_shared<Context>(std::move(context)));
  }
  return ranks;
}

void spawn_ranks(int world,
                 const std::function<void(Communicator&)>& body,
                 const LocalOptions& options) {
  std::vector<Communicator> ranks = make_local_ranks(world, options);
  Failures failures(world);
  {
    std::vector<std::jthread> threads;
    threads.reserve(ranks.size());
    try {
      for (Communicator& comm : ranks) {
        threads.emplace_back([mine = std::move(comm), &body, &failures]() mutable {
          run_rank(std::move(mine), body, failures);
        });
      }
    } catch (...) {
      ranks.clear();  // those that have started must not wait for those that cannot
      throw;
    }
  }
  failures.rethrow();
}

}  // namespace paceline
