// SPDX-License-Identifier: Apache-2.0
// One rank of ranks_test.cpp: plays the scenario that it is told, and prints what it caught.
#include <chrono>
#include <csignal>
#include <cstdint>
#include <cstdio>
#include <cstring>
#include <exception>
#include <map>
#include <span>
#include <string>
#include <vector>

#include "paceline/paceline.h"
#include "tests/comm/samples.h"

namespace paceline {
namespace {

std::uint64_t fnv(const std::vector<float>& data) {
  std::uint64_t hash = 0xcbf29ce484222325;
  for (const std::byte b : std::as_bytes(std::span(data))) {
    hash = (hash ^ static_cast<std::uint64_t>(b)) * 0x100000001b3;
  }
  return hash;
}

void reduce_all(Communicator& comm, std::vector<std::uint64_t>& hashes) {
  for (const std::size_t count : {1UL, 1000UL, 300007UL}) {
    for (const ReduceOp op : {ReduceOp::kMean, ReduceOp::kMax}) {
      std::vector<float> data = test::sample<float>(count, comm.rank(), count);
      comm.allreduce(std::span(data), op);
      hashes.push_back(fnv(data));
    }
  }
}

// The bits of some all-reduces, and whether ranks that are threads get the same.
void bits(Communicator& comm) {
  std::vector<std::uint64_t> mine;
  reduce_all(comm, mine);
  bool same = true;
  spawn_ranks(comm.world_size(), [&](Communicator& local) {
    std::vector<std::uint64_t> theirs;
    reduce_all(local, theirs);
    if (local.rank() == 0) same = theirs == mine;
  });
  std::uint64_t all = 0;
  for (const std::uint64_t hash : mine) all = all * 31 + hash;
  std::printf("%016llx %s\n", static_cast<unsigned long long>(all),
              same ? "same as threads" : "DIFFERENT FROM THREADS");
}

void link(Communicator& comm) {
  std::printf("link %s; %s.\n", comm.link().c_str(), comm.link_reason().c_str());
}

// All processes of a host read the same clock.
void say_when(const char* what) {
  const std::chrono::milliseconds now = std::chrono::duration_cast<std::chrono::milliseconds>(
      std::chrono::steady_clock::now().time_since_epoch());
  std::printf("%s at %lld\n", what, static_cast<long long>(now.count()));
  std::fflush(stdout);
}

// One rank dies by SIGKILL in its third step; nobody else ends it.
void kill_one(Communicator& comm, int rank) {
  for (int step = 0;; ++step) {
    if (step == 3 && comm.rank() == rank) {
      say_when("dies");
      std::raise(SIGKILL);
    }
    std::vector<float> data(100000, 1.F);
    comm.allreduce(std::span(data), ReduceOp::kSum, {.label = "step"});
  }
}
void killed(Communicator& comm) { kill_one(comm, 1); }
void killed_0(Communicator& comm) { kill_one(comm, 0); }
// Until somebody else ends it.
void endless(Communicator& comm) { kill_one(comm, -1); }

// Rank 1 stops in its third step, until somebody lets it run on.
void stopped(Communicator& comm) {
  for (int step = 0;; ++step) {
    if (step == 3 && comm.rank() == 1) std::raise(SIGSTOP);
    std::vector<float> data(100000, 1.F);
    comm.allreduce(std::span(data), ReduceOp::kSum,
                   {.label = "step", .timeout = std::chrono::seconds(1)});
  }
}

void leaves_early(Communicator& comm) {
  std::vector<float> data(1000, 1.F);
  comm.allreduce(std::span(data), ReduceOp::kSum);
  if (comm.rank() == 1) return;
  comm.allreduce(std::span(data), ReduceOp::kSum);
}

void mismatch(Communicator& comm) {
  std::vector<float> data(comm.rank() == 1 ? 101 : 100);
  comm.allreduce(std::span(data), ReduceOp::kSum);
  comm.barrier();
  comm.barrier();
}

void throws(Communicator& comm) {
  if (comm.rank() == 1) {
    comm.abort("the loss is NaN");
    throw UsageError("the loss is NaN");
  }
  comm.barrier();
}

using Scenario = void (*)(Communicator&);

Scenario find_scenario(const std::string& name) {
  const std::map<std::string, Scenario> scenarios{
      {"absent", bits},  // but for rank 1
      {"bits", bits},         {"killed", killed},
      {"killed_0", killed_0}, {"leaves_early", leaves_early},
      {"endless", endless},   {"link", link},
      {"mismatch", mismatch}, {"stopped", stopped},
      {"throws", throws}};
  if (const auto found = scenarios.find(name); found != scenarios.end()) return found->second;
  std::string known;
  for (const auto& scenario : scenarios) known += " " + scenario.first;
  throw UsageError("there is no scenario '" + name + "'; choose one of" + known);
}

int play(const std::string& name) {
  const Scenario scenario = find_scenario(name);
  if (name == "absent" && std::string(std::getenv("RANK")) == "1") {
    sigset_t end;
    sigemptyset(&end);
    sigaddset(&end, SIGTERM);
    sigprocmask(SIG_BLOCK, &end, nullptr);
    int got = 0;
    return sigwait(&end, &got);
  }
  // The launcher ends the others when one fails; here they must end by themselves.
  std::signal(SIGTERM, SIG_IGN);
  Communicator comm = init();
  scenario(comm);
  return 0;
}

}  // namespace
}  // namespace paceline

int main(int argc, char** argv) {
  try {
    return paceline::play(argc > 1 ? argv[1] : "bits");
  } catch (const std::exception& error) {
    paceline::say_when("failed");
    std::printf("caught: %s\n", error.what());
    return 3;
  }
}
