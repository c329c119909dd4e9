// SPDX-License-Identifier: Apache-2.0
// What both ledgers cost a training step: the CNN of examples/03 on two ranks that are threads of
// this process, with one thread of LibTorch each.
#include <torch/torch.h>

#include "bench/side_by_side.h"
#include "net.h"
#include "paceline/comm/init.h"
#include "paceline/parallel/distributed_data_parallel.h"

namespace paceline::bench {
namespace {

constexpr int kRounds = 101;
constexpr int kBatch = 32;  // of each rank

void train(Communicator& comm) {
  example::Net net;
  DistributedDataParallel ddp(net, comm);
  ::torch::optim::SGD optimizer(ddp.parameters(), 0.01);
  const auto images = ::torch::rand({kBatch, 1, 28, 28});
  const auto labels = ::torch::randint(10, {kBatch});
  const auto step = [&] {
    optimizer.zero_grad();
    ::torch::nn::functional::cross_entropy(ddp(images), labels).backward();
    optimizer.step();
  };
  const auto start = [&] {
    comm.start_ledger();
    ddp.start_ledger();
  };
  const auto take = [&] {
    (void)comm.take_ledger();
    (void)ddp.take_ledger();
  };
  off_and_on(comm, "step of the CNN, batch 2 x " + std::to_string(kBatch),
             {.run = step, .start = start, .take = take, .runs = 1}, kRounds);
}

}  // namespace
}  // namespace paceline::bench

int main() {
  ::at::set_num_threads(1);
  paceline::spawn_ranks(2, paceline::bench::train);
}
