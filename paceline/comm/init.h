// SPDX-License-Identifier: Apache-2.0
#pragma once
/// @file
/// Where a Communicator comes from: a launcher's environment, or threads of this process.

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <optional>
#include <vector>

#include "paceline/comm/communicator.h"

namespace paceline {

struct InitOptions {
  std::optional<Algorithm> algorithm = {};  ///< for all calls that have it; must agree on all ranks
  /// None: the launcher's, else 60 s. The error may come 2 s later, when the store has had its say.
  std::optional<std::chrono::milliseconds> connect_timeout = {};
};

/// Joins the job that this process was started for and meets the other ranks. Ranks of one host
/// share memory if they can, others speak over TCP; PACELINE_LINK=shm insists, =tcp does without.
///
/// Order   Every rank calls it. Returns when all have come.
/// Errors  UsageError that names the variable if the environment is missing or contradicts itself
///         (without a launcher: `paceline run -n 1 -- program`), or, on all ranks, if PACELINE_LINK
///         differs among them, or is shm and they cannot share memory. CommError kConnectFailed,
///         which names the rank that never came, or the address and its variables if nobody answers
///         there; kRefused if secret, version, world size or algorithm differ.
[[nodiscard]] Communicator init(const InitOptions& options = {});

/// What joins ranks that are threads.
enum class LocalLink : std::uint8_t {
  kMemory,  ///< lock-free byte rings
  kShm,     ///< the memory that processes of one host share, without the processes
  kTcp      ///< sockets on loopback: the path of processes, without the processes
};

struct LocalOptions {
  LocalLink link = LocalLink::kMemory;
  std::optional<Algorithm> algorithm = {};
  /// Bytes in flight per link of memory (none: 1 MiB) or shm (none: 64 KiB).
  std::optional<std::size_t> link_capacity_bytes = {};
  std::size_t segment_bytes = 512 << 10;  ///< largest payload of a frame
  std::size_t window_bytes = 1 << 30;     ///< address space of a rank's memory over shm
};

/// `world` ranks inside this process: one communicator for each thread.
///
/// Errors  UsageError if world < 1, a link holds nothing, segments are not of 1 B to 64 MiB, or
///         kShm should join more than 1024; CommError kConnectFailed if memory is short for kShm.
[[nodiscard]] std::vector<Communicator> make_local_ranks(int world,
                                                         const LocalOptions& options = {});

/// Runs `body` on `world` threads, each with its own rank, and waits for all. If one throws, the
/// others are not left waiting: to their communicators that rank is gone.
///
/// Errors  Rethrows what the lowest failing rank threw; a CommError, which may only follow from
///         another rank's failure, if no rank threw anything else.
void spawn_ranks(int world,
                 const std::function<void(Communicator&)>& body,
                 const LocalOptions& options = {});

}  // namespace paceline
