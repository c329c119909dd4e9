// SPDX-License-Identifier: Apache-2.0
// What a LibTorch program does to train on many ranks. The loop is that of one rank; only the
// communicator, the wrapped model and the sampler are new.
#include "training.h"

#include <paceline/parallel/distributed_data_parallel.h>
#include <paceline/parallel/distributed_sampler.h>
#include <torch/torch.h>

#include <algorithm>
#include <array>
#include <chrono>
#include <cmath>
#include <stdexcept>
#include <string>

#include "images.h"
#include "net.h"

namespace example {
namespace {

using paceline::Communicator;
using SteadyClock = std::chrono::steady_clock;

/// Images that a rank tests at once, whatever the batch size of training.
constexpr std::size_t kTestBatch = 256;

/// Collects losses and tells `progress` of them.
class Record {
 public:
  Record(Communicator& comm, Progress& progress, const Course& course)
      : comm_(comm), progress_(progress), steps_(course.steps) {
    progress_.begin(course);
  }

  /// Averages the loss over all ranks' images. Collective.
  void add_step(const torch::Tensor& loss, std::int64_t images) {
    const auto weight = static_cast<double>(images);
    std::array<double, 2> sums{loss.item<double>() * weight, weight};
    comm_.allreduce<double>(sums, paceline::ReduceOp::kSum, {.label = "loss"});
    result_.losses.push_back(sums[0] / sums[1]);
    result_.samples += static_cast<std::uint64_t>(sums[1]);
    const std::chrono::duration<double> elapsed = SteadyClock::now() - start_;
    result_.seconds = elapsed.count();
    if (!std::isfinite(result_.losses.back())) {
      throw std::runtime_error("the loss of step " + std::to_string(steps_done()) + " is " +
                               std::to_string(result_.losses.back()) + ": try a smaller --lr");
    }
    progress_.step({.steps = steps_done(),
                    .loss = result_.losses.back(),
                    .samples = result_.samples,
                    .elapsed = elapsed});
  }

  [[nodiscard]] bool full() const { return steps_done() == steps_; }
  [[nodiscard]] const Result& result() const { return result_; }

 private:
  [[nodiscard]] std::int64_t steps_done() const {
    return static_cast<std::int64_t>(result_.losses.size());
  }

  Communicator& comm_;
  Progress& progress_;
  const std::int64_t steps_;
  Result result_;
  const SteadyClock::time_point start_ = SteadyClock::now();
};

std::int64_t batches_of(std::size_t images, std::size_t batch) {
  return static_cast<std::int64_t>((images + batch - 1) / batch);
}

/// Each rank has the same number of images, so all make the same number of steps.
Course make_course(const Options& options, std::size_t images, std::size_t batch) {
  const std::int64_t steps_per_epoch = batches_of(images, batch);
  const std::int64_t all = options.epochs * steps_per_epoch;
  const std::int64_t steps = std::min(all, options.max_steps.value_or(all));
  return {.epochs = (steps + steps_per_epoch - 1) / steps_per_epoch,
          .steps_per_epoch = steps_per_epoch,
          .steps = steps};
}

/// Each rank tests its share of the images; the sampler neither repeats nor leaves out any.
void test(Net& net,
          const LabelledImages& images,
          Communicator& comm,
          Progress& progress,
          Result& result) {
  const torch::NoGradGuard no_grad;
  net->eval();
  const paceline::DistributedSampler sampler(images.count(), comm.rank(), comm.world_size(),
                                             {.shuffle = false, .uneven = true});
  auto loader = torch::data::make_data_loader(Images(images), sampler, kTestBatch);
  const SteadyClock::time_point start = SteadyClock::now();
  progress.begin_test(
      {.images = images.count(), .batches = batches_of(sampler.size(), kTestBatch)});
  std::int64_t batches = 0;
  std::array<std::int64_t, 2> counts{};
  for (auto& batch : *loader) {
    const torch::Tensor answers = net->forward(batch.data).argmax(1);
    counts[0] += answers.eq(batch.target).sum().item<std::int64_t>();
    counts[1] += batch.target.size(0);
    progress.test(++batches, SteadyClock::now() - start);
  }
  comm.allreduce<std::int64_t>(counts, paceline::ReduceOp::kSum, {.label = "accuracy"});
  if (counts[1] != static_cast<std::int64_t>(images.count())) {
    throw std::logic_error("a test image was left out or tested twice");
  }
  result.tested = images.count();
  result.test_accuracy = static_cast<double>(counts[0]) / static_cast<double>(counts[1]);
}

}  // namespace

Result train_and_test(const Options& options,
                      const FashionMnist& data,
                      Communicator& comm,
                      Progress& progress,
                      const std::filesystem::path& save_to) {
  torch::manual_seed(options.seed);
  Net net;
  paceline::DistributedDataParallel ddp(net, comm);
  torch::optim::SGD optimizer(ddp.parameters(),
                              torch::optim::SGDOptions(options.lr).momentum(options.momentum));
  paceline::DistributedSampler sampler(data.train.count(), comm.rank(), comm.world_size(),
                                       {.shuffle = options.shuffle, .seed = options.seed});
  const std::size_t batch_size = images_per_rank(options, comm.world_size());
  auto loader = torch::data::make_data_loader(Images(data.train), sampler, batch_size);

  Record record(comm, progress, make_course(options, sampler.size(), batch_size));
  for (std::int64_t epoch = 0; !record.full(); ++epoch) {
    sampler.set_epoch(epoch);  // reaches the loader's copy too
    for (auto& batch : *loader) {
      optimizer.zero_grad();
      auto loss = torch::nn::functional::cross_entropy(ddp(batch.data), batch.target);
      loss.backward();  // buckets of gradients travel while this runs
      optimizer.step();
      record.add_step(loss, batch.target.size(0));
      if (record.full()) break;
    }
  }

  Result result = record.result();
  test(net, data.test, comm, progress, result);
  if (!save_to.empty()) save_net(net, save_to.string());
  RankFigures mine{.parameter_hash = parameter_hash(net),
                   .bytes_sent = ddp.statistics().bytes_sent,
                   .bytes_formula = ddp.statistics().formula_bytes_sent};
  count_other_bytes(comm, mine);
  result.ranks = gather(comm, mine);
  return result;
}

}  // namespace example
