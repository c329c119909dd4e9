// SPDX-License-Identifier: Apache-2.0
#include "paceline/comm/environment.h"

#include <fmt/format.h>

#include <array>
#include <charconv>
#include <cmath>
#include <cstdlib>
#include <string_view>

#include "paceline/base/error.h"
#include "paceline/base/types.h"
#include "paceline/net/host.h"

namespace paceline {
namespace {

constexpr int kHighestPort = 65535;
constexpr std::string_view kHowToStart =
    "start the program with a launcher; alone: `paceline run -n 1 -- program`";

struct Variable {
  std::string_view name;
  std::string value;
};

/// An empty variable counts as not set, as a shell's `NAME= program` means it.
std::optional<std::string> find(const GetVariable& get, std::string_view name) {
  const char* value = get(std::string(name).c_str());
  if (value == nullptr || *value == '\0') return std::nullopt;
  return value;
}

bool is_set(const GetVariable& get, std::string_view name) { return find(get, name).has_value(); }

std::string need(const GetVariable& get, std::string_view name) {
  if (auto value = find(get, name)) return *value;
  throw UsageError(fmt::format("environment variable {} is missing: {}", name, kHowToStart));
}

int parse_number(const Variable& variable, int low, int high) {
  const std::string& text = variable.value;
  int number = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), number);
  if (error != std::errc() || end != text.data() + text.size())
    throw UsageError(fmt::format("environment variable {} is '{}', which is not a whole number",
                                 variable.name, text));
  if (number < low || number > high)
    throw UsageError(fmt::format("environment variable {} is {}, but must lie in {}..{}",
                                 variable.name, number, low, high));
  return number;
}

int need_number(const GetVariable& get, std::string_view name, int low, int high) {
  return parse_number({name, need(get, name)}, low, high);
}

int number_or(const GetVariable& get, std::string_view name, int low, int high, int otherwise) {
  const auto value = find(get, name);
  return value ? parse_number({name, *value}, low, high) : otherwise;
}

std::optional<std::chrono::milliseconds> read_timeout(const GetVariable& get) {
  constexpr std::string_view kName = "PACELINE_CONNECT_TIMEOUT";
  const auto value = find(get, kName);
  if (!value) return std::nullopt;
  char* end = nullptr;
  const double seconds = std::strtod(value->c_str(), &end);
  if (*end != '\0' || !(seconds > 0) || seconds > 1e6)
    throw UsageError(fmt::format(
        "environment variable {} is '{}', but must be a number of seconds above 0", kName, *value));
  return std::chrono::milliseconds(static_cast<std::int64_t>(std::ceil(seconds * 1000)));
}

/// PACELINE_LINK: what shall join the ranks. Threads' links cannot join processes.
link::LinkWish read_link(const GetVariable& get, int world_size) {
  using link::LinkWish;
  const std::string value = find(get, "PACELINE_LINK").value_or("auto");
  for (const LinkWish wish : {LinkWish::kAuto, LinkWish::kShm, LinkWish::kTcp})
    if (value == link::name_of(wish)) return wish;
  if (value != "memory")
    throw UsageError(fmt::format(
        "environment variable PACELINE_LINK is '{}', but must be auto, shm, tcp or memory", value));
  if (world_size > 1)
    throw UsageError(fmt::format(
        "environment variable PACELINE_LINK is 'memory', which joins threads, but the {} ranks "
        "of this job are processes: choose shm, tcp or auto",
        world_size));
  return LinkWish::kAuto;
}

/// Hosts may have different numbers of ranks, but each has one, and the ranks of a host are
/// consecutive.
void check_hosts(const Environment& env) {
  const int first = env.rank - env.local_rank;
  const int behind = env.world_size - first - env.local_world_size;
  const int hosts_behind = env.node_count - 1 - env.node_rank;
  const bool fits_before = env.node_rank == 0 ? first == 0 : first >= env.node_rank;
  const bool fits_behind = hosts_behind == 0 ? behind == 0 : behind >= hosts_behind;
  if (fits_before && fits_behind) return;
  throw UsageError(fmt::format(
      "RANK={}, LOCAL_RANK={} and LOCAL_WORLD_SIZE={} give this host the ranks {} to {}; that "
      "contradicts WORLD_SIZE={}, GROUP_RANK={} and GROUP_WORLD_SIZE={}",
      env.rank, env.local_rank, env.local_world_size, first, first + env.local_world_size - 1,
      env.world_size, env.node_rank, env.node_count));
}

/// Who we are, from the variables that torchrun made customary.
void read_ranks(const GetVariable& get, Environment& into) {
  into.world_size = need_number(get, "WORLD_SIZE", 1, kMaxWorldSize);
  into.rank = need_number(get, "RANK", 0, into.world_size - 1);
  into.local_world_size = need_number(get, "LOCAL_WORLD_SIZE", 1, into.world_size);
  into.local_rank = need_number(get, "LOCAL_RANK", 0, into.local_world_size - 1);
  into.node_count = number_or(get, "GROUP_WORLD_SIZE", 1, into.world_size,
                              into.world_size / into.local_world_size);
  into.node_rank =
      number_or(get, "GROUP_RANK", 0, into.node_count - 1, into.rank / into.local_world_size);
  check_hosts(into);
}

void read_master(const GetVariable& get, Environment& into) {
  into.master_addr = need(get, "MASTER_ADDR");
  into.master_port = static_cast<std::uint16_t>(need_number(get, "MASTER_PORT", 1, kHighestPort));
  into.master_variables = "MASTER_ADDR, MASTER_PORT";
}

/// PACELINE_AUTH=none, or nothing.
bool authentication_is_off(const GetVariable& get) {
  const auto value = find(get, "PACELINE_AUTH");
  if (value && *value != "none")
    throw UsageError(fmt::format(
        "environment variable PACELINE_AUTH is '{}'; the only value it knows is 'none'", *value));
  return value.has_value();
}

SecretSource read_secret_source(const GetVariable& get) {
  const bool off = authentication_is_off(get);
  const auto file = find(get, "PACELINE_SECRET_FILE");
  if (const auto number = find(get, "PACELINE_SECRET_FD")) {
    if (off) throw UsageError("PACELINE_AUTH=none contradicts PACELINE_SECRET_FD");
    return SecretDescriptor{parse_number({"PACELINE_SECRET_FD", *number}, 3, 1 << 20)};
  }
  if (off && file)
    throw UsageError(fmt::format("PACELINE_AUTH=none contradicts PACELINE_SECRET_FILE={}", *file));
  if (file) return SecretFile{*file};
  if (off) return NoSecret{};
  throw UsageError(
      "this job has no secret, so strangers could join: let PACELINE_SECRET_FILE name a file of "
      "mode 0600 that is the same on all hosts, or set PACELINE_AUTH=none to do without");
}

void check_mark(const Environment& found, const std::string& mark) {
  const std::string expected = launcher_mark(found.rank, found.world_size);
  if (mark != expected)
    throw UsageError(fmt::format(
        "RANK={} and WORLD_SIZE={} contradict PACELINE_LAUNCHER={}, which paceline run set: "
        "something between the launcher and this program changed them",
        found.rank, found.world_size, mark));
}

Environment read_ours(const GetVariable& get, const std::string& mark) {
  Environment result{.launcher = Launcher::kPaceline};
  read_ranks(get, result);
  check_mark(result, mark);
  read_master(get, result);
  result.secret = read_secret_source(get);
  return result;
}

/// torchrun's own store owns MASTER_PORT, so ranks of one host meet at an abstract socket. The port
/// is in its name because run ids repeat, and the restart count because stores outlive restarts.
Environment read_torchrun(const GetVariable& get) {
  Environment result{.launcher = Launcher::kTorchrun};
  read_ranks(get, result);
  read_master(get, result);
  if (result.local_world_size != result.world_size)
    throw UsageError(fmt::format(
        "torchrun over several hosts is not supported yet (LOCAL_WORLD_SIZE={}, WORLD_SIZE={}): "
        "use `paceline run --nnodes` on each",
        result.local_world_size, result.world_size));
  const std::string run = need(get, "TORCHELASTIC_RUN_ID");
  const int restart = number_or(get, "TORCHELASTIC_RESTART_COUNT", 0, 1 << 30, 0);
  result.master_addr =
      fmt::format("@paceline-{}-{:.64}-{}-{}", net::user_id(), run, result.master_port, restart);
  result.master_port = 0;
  result.master_variables = "TORCHELASTIC_RUN_ID, MASTER_PORT";
  result.serves_store = result.rank == 0;
  result.secret = read_secret_source(get);
  return result;
}

/// No launcher that we know. Says which one it seems to be, and what contradicts what.
[[noreturn]] void throw_no_launcher(const GetVariable& get) {
  constexpr std::array<std::string_view, 3> kForeign{"OMPI_COMM_WORLD_RANK", "PMI_RANK",
                                                     "SLURM_PROCID"};
  const auto rank = find(get, "RANK");
  for (const std::string_view name : kForeign) {
    const auto other = find(get, name);
    if (!other) continue;
    if (rank && *rank != *other)
      throw UsageError(
          fmt::format("RANK={} contradicts {}={}: {}", *rank, name, *other, kHowToStart));
    throw UsageError(fmt::format("{}={} is set by a launcher that paceline cannot join yet: {}",
                                 name, *other, kHowToStart));
  }
  if (rank)
    throw UsageError(
        fmt::format("RANK={} is set, but neither by paceline run (PACELINE_LAUNCHER is missing) "
                    "nor by torchrun "
                    "(TORCHELASTIC_RUN_ID is missing), so nobody serves the meeting place: {}",
                    *rank, kHowToStart));
  throw UsageError(fmt::format("environment variable RANK is missing: {}", kHowToStart));
}

}  // namespace

Environment read_environment(const GetVariable& get) {
  Environment result;
  if (const auto mark = find(get, "PACELINE_LAUNCHER")) {
    result = read_ours(get, *mark);
  } else if (is_set(get, "TORCHELASTIC_RUN_ID")) {
    result = read_torchrun(get);
  } else {
    throw_no_launcher(get);
  }
  result.connect_timeout = read_timeout(get);
  result.link = read_link(get, result.world_size);
  return result;
}

Environment read_environment() {
  return read_environment([](const char* name) { return std::getenv(name); });
}

std::string launcher_mark(int rank, int world_size) {
  return fmt::format("rank {} of {}", rank, world_size);
}

}  // namespace paceline
