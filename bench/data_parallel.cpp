// SPDX-License-Identifier: Apache-2.0
// DataParallel on 2 CPU devices of one thread each, beside what this machine gives to one thread
// and to two: the same net trained by one thread, and by two processes of one thread at the same
// time, which share nothing. All take turns, so that all meet the same weather.
//
//   data_parallel [rounds] [batch]
//   data_parallel alone <batch> <steps>   what the two processes run: prints the end of each step
#include <algorithm>
#include <array>
#include <chrono>
#include <cstdint>
#include <cstdio>
#include <exception>
#include <functional>
#include <map>
#include <sstream>
#include <stdexcept>
#include <string>
#include <vector>

#include <torch/torch.h>

#include "examples/03_ddp_fashion_mnist/net.h"
#include "paceline/net/child.h"
#include "paceline/net/host.h"
#include "paceline/net/stream.h"
#include "paceline/parallel/data_parallel.h"

namespace paceline {
namespace {

using Time = std::chrono::steady_clock;
using Seconds = std::chrono::duration<double>;

constexpr int kWarmUp = 3;
constexpr int kSteps = 10;  // in each round

struct Batch {
  explicit Batch(std::int64_t size)
      : images(torch::randn({size, 1, 28, 28})), classes(torch::arange(size).remainder(10)) {}
  torch::Tensor images, classes;
};

torch::Tensor loss_of(const torch::Tensor& scores, const torch::Tensor& classes) {
  return torch::nn::functional::cross_entropy(scores, classes);
}

double median(std::vector<double> values) {
  std::sort(values.begin(), values.end());
  const std::size_t middle = values.size() / 2;
  return values.size() % 2 == 1 ? values[middle] : (values[middle - 1] + values[middle]) / 2;
}

/// One way to train, and how long its steps took.
class Way {
 public:
  Way(const std::vector<torch::Tensor>& parameters, std::function<torch::Tensor()> forward)
      : optimizer_(parameters, 0.01), forward_(std::move(forward)) {}

  void step() {
    const auto begin = Time::now();
    optimizer_.zero_grad();
    forward_().backward();
    optimizer_.step();
    seconds_.push_back(Seconds(Time::now() - begin).count());
  }
  void forget() { seconds_.clear(); }
  [[nodiscard]] const std::vector<double>& seconds() const { return seconds_; }

 private:
  torch::optim::SGD optimizer_;
  std::function<torch::Tensor()> forward_;
  std::vector<double> seconds_;
};

/// The program of the two processes.
int train_alone(std::int64_t batch_size, int steps) {
  const Batch batch(batch_size);
  example::Net net;
  Way way(net->parameters(), [&] { return loss_of(net(batch.images), batch.classes); });
  for (int step = 0; step < steps; ++step) {
    way.step();
    std::printf("%lld\n", static_cast<long long>(Time::now().time_since_epoch().count()));
  }
  return 0;
}

std::vector<Time::time_point> ends_of_steps(net::Child& child) {
  const auto status = child.wait(Deadline::after(std::chrono::minutes(10)));
  if (!status || !status->ok()) throw std::runtime_error("a training process failed");
  std::array<std::byte, 65536> bytes{};  // as much as a pipe holds
  const auto read = net::try_read(child.standard_output(), bytes);
  std::istringstream text(std::string(reinterpret_cast<const char*>(bytes.data()), read.bytes));
  std::vector<Time::time_point> ends;
  for (long long count = 0; text >> count;) ends.emplace_back(Time::duration(count));
  return ends;
}

/// Samples per second of two processes together, while both train.
double rate_of_two_processes(const std::string& program, std::int64_t batch_size) {
  std::vector<net::Child> children;
  for (int i = 0; i < 2; ++i) {
    children.push_back(net::spawn(program,
                                  {"alone", std::to_string(batch_size), std::to_string(2 * kSteps)},
                                  net::environment_variables()));
  }
  std::vector<std::vector<Time::time_point>> ends;
  for (auto& child : children) ends.push_back(ends_of_steps(child));
  const auto from = std::max(ends[0][kWarmUp], ends[1][kWarmUp]);
  const auto to = std::min(ends[0].back(), ends[1].back());
  double rate = 0;
  for (auto& mine : ends) {
    std::erase_if(mine, [&](const auto& end) { return end < from || end > to; });
    if (mine.size() < kSteps / 2) throw std::runtime_error("the processes did not run together");
    std::vector<double> seconds;
    for (std::size_t i = 1; i < mine.size(); ++i) {
      seconds.push_back(Seconds(mine[i] - mine[i - 1]).count());
    }
    rate += static_cast<double>(batch_size) / median(seconds);
  }
  return rate;
}

/// How much of the shorter one of the two devices' phases the other's ran along with, on average.
double overlap_of(const Ledger& ledger, Phase what) {
  std::map<int, std::vector<PhaseRecord>> by_device;
  for (const auto& phase : ledger.phases) {
    if (phase.what == what) by_device[phase.device].push_back(phase);
  }
  double sum = 0;
  for (std::size_t step = 0; step < by_device[0].size(); ++step) {
    const PhaseRecord &a = by_device[0][step], &b = by_device[1].at(step);
    const Seconds both = std::min(a.end, b.end) - std::max(a.begin, b.begin);
    sum += std::max(0.0, both / std::min<Seconds>(a.end - a.begin, b.end - b.begin));
  }
  return sum / static_cast<double>(by_device[0].size());
}

struct Bench {
  explicit Bench(std::int64_t batch_size) : batch(batch_size) {
    for (Way* way : {&one, &two, &in_replicas}) {
      for (int i = 0; i < kWarmUp; ++i) way->step();
      way->forget();
    }
  }

  void round(const std::string& program) {
    for (int i = 0; i < kSteps; ++i) {
      one.step();
      in_replicas.step();
      compare_ledger(i % 2 == 0);
    }
    processes.push_back(rate_of_two_processes(program, batch.images.size(0)));
  }

  /// Two steps, one of them with the ledger on.
  void compare_ledger(bool on_first) {
    std::array<double, 2> seconds{};
    for (const bool on : {on_first, !on_first}) {
      if (on) dp.start_ledger();
      two.step();
      if (on) ledgers.push_back(dp.take_ledger());
      seconds[on ? 1 : 0] = two.seconds().back();
    }
    cost_of_ledger.push_back(seconds[1] / seconds[0] - 1);
  }

  void report() const {
    const auto rate = [&](const Way& way) {
      return static_cast<double>(batch.images.size(0)) / median(way.seconds());
    };
    const double alone = rate(one), together = median(processes);
    const auto line = [&](const char* what, double samples_per_s) {
      std::printf("%-40s %8.1f samples/s %6.2f x one %6.2f x two processes\n", what, samples_per_s,
                  samples_per_s / alone, samples_per_s / together);
    };
    line("one thread", alone);
    line("two processes of one thread", together);
    line("DataParallel, 2 devices", rate(two));
    line("DataParallel, 2 devices, forward_loss", rate(in_replicas));
    std::vector<double> forwards, backwards;
    for (const auto& ledger : ledgers) {
      forwards.push_back(overlap_of(ledger, Phase::kForward));
      backwards.push_back(overlap_of(ledger, Phase::kBackward));
    }
    std::printf("overlap of the devices: forwards %.1f %%, backwards %.1f %% of the shorter one\n",
                100 * median(forwards), 100 * median(backwards));
    std::printf("a step with the ledger on against one beside it, off: %+.2f %%, %zu records\n",
                100 * median(cost_of_ledger),
                ledgers.back().copies.size() + ledgers.back().phases.size());
  }

  const Batch batch;
  example::Net plain, net;
  DataParallel<example::NetImpl> dp{net, cpu_devices(2), [] { return example::Net(); }};
  Way one{plain->parameters(), [&] { return loss_of(plain(batch.images), batch.classes); }};
  Way two{dp.parameters(), [&] { return loss_of(dp(batch.images), batch.classes); }};
  Way in_replicas{dp.parameters(),
                  [&] { return dp.forward_loss(batch.images, batch.classes, loss_of); }};
  std::vector<double> processes, cost_of_ledger;
  std::vector<Ledger> ledgers;
};

int run(const std::vector<std::string>& arguments) {
  at::set_num_threads(1);
  const auto number = [&](std::size_t place, int otherwise) {
    return arguments.size() > place ? std::stoi(arguments[place]) : otherwise;
  };
  if (arguments.size() > 1 && arguments[1] == "alone")
    return train_alone(number(2, 256), number(3, 1));
  Bench bench(number(2, 256));
  for (int i = 0; i < number(1, 3); ++i) bench.round(arguments[0]);
  bench.report();
  return 0;
}

}  // namespace
}  // namespace paceline

int main(int argc, char** argv) {
  try {
    return paceline::run({argv, argv + argc});
  } catch (const std::exception& error) {
    std::fprintf(stderr, "data_parallel: %s\n", error.what());
    return 1;
  }
}
