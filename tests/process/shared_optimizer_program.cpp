// SPDX-License-Identifier: Apache-2.0
// One rank of shared_optimizer_test.cpp, with LibTorch.
#include <malloc.h>
#include <unistd.h>

#include <array>
#include <atomic>
#include <csignal>
#include <cstdint>
#include <cstdio>
#include <exception>
#include <fstream>
#include <numeric>
#include <span>
#include <sstream>
#include <string>
#include <thread>
#include <vector>

#include <torch/torch.h>

#include "paceline/paceline.h"
#include "paceline/parallel/shared_optimizer.h"

namespace paceline {
namespace {

using ::torch::Tensor;

struct MlpImpl : ::torch::nn::Module {
  explicit MlpImpl(std::int64_t width) {
    for (int i = 0; i < 3; ++i) layers->push_back(::torch::nn::Linear(width, width));
    layers->push_back(::torch::nn::Linear(width, 10));
    register_module("layers", layers);
  }
  Tensor forward(const Tensor& x) { return layers->forward(x); }
  ::torch::nn::Sequential layers;
};
TORCH_MODULE(Mlp);

// This process' share of what is in memory, in bytes. Without what comes from files: programs that
// start and end meanwhile share the library's code with us, and change our share of that.
std::int64_t memory_share() {
  ::malloc_trim(0);
  std::ifstream file("/proc/self/smaps_rollup");
  std::int64_t all = 0, from_files = 0;
  for (std::string line; std::getline(file, line);) {
    std::istringstream words(line);
    std::string key;
    std::int64_t kib = 0;
    words >> key >> kib;
    if (key == "Pss:" || key == "SwapPss:") all += kib * 1024;
    if (key == "Pss_File:") from_files = kib * 1024;
  }
  return all - from_files;
}

std::int64_t over_all_ranks(std::int64_t mine, Communicator& comm) {
  std::vector<std::int64_t> all(static_cast<std::size_t>(comm.world_size()));
  comm.allgather(std::span<const std::int64_t>(&mine, 1), std::span(all));
  return std::accumulate(all.begin(), all.end(), std::int64_t{0});
}

// Nobody ends or goes on before all have looked.
std::int64_t memory_of_all(Communicator& comm) {
  comm.barrier();
  return over_all_ranks(memory_share(), comm);
}

// A state without zeros for every parameter, in an archive that takes next to no memory.
void load_full_state(const Mlp& net, SharedOptimizer& optimizer) {
  ::torch::serialize::OutputArchive out;
  out.write("optimizer", c10::IValue("SharedAdam"));
  out.write("steps", c10::IValue(std::int64_t{1}));
  out.write("groups", c10::IValue(std::int64_t{1}));
  out.write("lr/0", c10::IValue(1e-3));
  out.write("weight_decay/0", c10::IValue(0.0));
  for (const auto& item : net->named_parameters()) {
    const Tensor values = ::torch::full({1}, 0.5).expand(item.value().sizes());
    out.write("exp_avg." + item.key(), values, /*is_buffer=*/true);
    out.write("exp_avg_sq." + item.key(), values, /*is_buffer=*/true);
  }
  std::stringstream stream;
  out.save_to(stream);
  ::torch::serialize::InputArchive in;
  in.load_from(stream);
  optimizer.load(in);
}

void train(Mlp& net, SharedOptimizer& optimizer, std::int64_t width) {
  optimizer.zero_grad();
  net->forward(::torch::ones({2, width})).square().mean().backward();
  optimizer.step();
}

// What the parameters and the state take over all ranks, beside what they take on one.
void memory(Communicator& comm) {
  {
    Mlp small(16);  // LibTorch has made what it makes once
    SharedAdam optimizer(small, comm);
    train(small, optimizer, 16);
    load_full_state(small, optimizer);
  }
  const std::int64_t before = memory_of_all(comm);
  Mlp net(2048);
  SharedAdam optimizer(net, comm);
  load_full_state(net, optimizer);
  std::int64_t parameter_bytes = 0;
  for (const auto& parameter : net->parameters()) {
    parameter_bytes += static_cast<std::int64_t>(parameter.nbytes());
    if (!parameter.sum().isfinite().item<bool>()) std::printf("no number\n");  // all is read
  }
  const std::int64_t grown = memory_of_all(comm) - before;
  const std::int64_t state_bytes =
      over_all_ranks(static_cast<std::int64_t>(optimizer.state_bytes()), comm);
  if (comm.rank() != 0) return;
  std::printf("parameters %lld state %lld grown %lld\n", static_cast<long long>(parameter_bytes),
              static_cast<long long>(state_bytes), static_cast<long long>(grown));
}

// Rank 1 dies by SIGKILL during its third step.
void killed(Communicator& comm) {
  Mlp net(256);
  SharedAdam optimizer(net, comm);
  std::atomic<bool> now{false};
  const std::jthread killer([&](const std::stop_token& stop) {
    while (!now.load() && !stop.stop_requested()) std::this_thread::yield();
    if (now.load()) ::kill(::getpid(), SIGKILL);
  });
  for (int step = 0;; ++step) {
    if (step == 2 && comm.rank() == 1) now.store(true);
    train(net, optimizer, 256);
  }
}

int play(const std::string& name) {
  // The launcher ends the others when one fails; here they must end by themselves.
  std::signal(SIGTERM, SIG_IGN);
  ::torch::set_num_threads(1);
  Communicator comm = init();
  name == "memory" ? memory(comm) : killed(comm);
  return 0;
}

}  // namespace
}  // namespace paceline

int main(int argc, char** argv) {
  try {
    return paceline::play(argc > 1 ? argv[1] : "");
  } catch (const std::exception& error) {
    std::printf("caught: %s\n", error.what());
    return 3;
  }
}
