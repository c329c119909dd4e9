// SPDX-License-Identifier: Apache-2.0
#pragma once
/// @file
/// What a launcher tells a process through its environment: which rank it is and where to meet.

#include <chrono>
#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <variant>

#include "paceline/link/shm/hello.h"

namespace paceline {

/// Who started this process.
enum class Launcher : std::uint8_t { kPaceline, kTorchrun };

/// Where the job's secret comes from. Reading it is read_secret()'s job.
struct SecretDescriptor {
  int number = -1;  ///< inherited from our launcher
};
struct SecretFile {
  std::string path;
};
struct NoSecret {};  ///< switched off on purpose by PACELINE_AUTH=none
using SecretSource = std::variant<SecretDescriptor, SecretFile, NoSecret>;

/// A consistent answer to: who am I, and where do we meet?
struct Environment {
  Launcher launcher = Launcher::kPaceline;
  int rank = 0;
  int world_size = 1;
  int local_rank = 0;
  int local_world_size = 1;
  int node_rank = 0;
  int node_count = 1;
  std::string master_addr = {};       ///< the store's host, or "@name" for an abstract UNIX socket
  std::uint16_t master_port = 0;      ///< 0 for "@name"
  std::string master_variables = {};  ///< which ones say where, for errors
  bool serves_store = false;          ///< no launcher serves the store: this rank does
  SecretSource secret = NoSecret{};
  std::optional<std::chrono::milliseconds> connect_timeout = {};
  link::LinkWish link = link::LinkWish::kAuto;
};

/// As std::getenv: null if the variable is not set.
using GetVariable = std::function<const char*(const char*)>;

/// Reads the variables of `paceline run` or of torchrun (one host). Those that our launcher sets
/// win over a site's (SLURM_*, OMPI_*, PMI_*); any other contradiction is an error.
///
/// Errors  UsageError that names variable and value: missing, not a number, out of range, in
///         contradiction to another one. Without a launcher it names `paceline run -n 1 --`.
[[nodiscard]] Environment read_environment(const GetVariable& get);

/// The variables of this process.
[[nodiscard]] Environment read_environment();

/// PACELINE_LAUNCHER's value for a rank: whoever changes RANK or WORLD_SIZE afterwards is found
/// out.
[[nodiscard]] std::string launcher_mark(int rank, int world_size);

}  // namespace paceline
