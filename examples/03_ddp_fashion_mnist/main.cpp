// SPDX-License-Identifier: Apache-2.0
// Trains a CNN on Fashion-MNIST on all ranks. The training itself is in training.cpp.
#include <fmt/format.h>
#include <paceline/paceline.h>

#include <cstdio>
#include <exception>
#include <iostream>
#include <optional>
#include <string>
#include <utility>

#include "fashion_mnist.h"
#include "options.h"
#include "output_file.h"
#include "progress.h"
#include "report.h"
#include "training.h"

namespace {

using namespace example;
using paceline::Communicator;

/// The files that rank 0 writes at the end, made at the start.
struct Outputs {
  std::optional<OutputFile> save;
  std::optional<OutputFile> json;

  Outputs(const Options& options, int rank) {
    if (rank != 0) return;
    if (!options.save.empty()) save.emplace("--save", options.save);
    if (!options.json.empty()) json.emplace("--json", options.json);
  }
};

void require_enough(const LabelledImages& images, const Options& options) {
  if (std::cmp_greater(options.batch_size, images.labels.size()))
    throw paceline::UsageError("--batch-size is " + std::to_string(options.batch_size) +
                               ": there are only " + std::to_string(images.labels.size()) +
                               " training images");
}

void run(const Options& options, Communicator& comm) {
  const bool speaks = comm.rank() == 0;
  Outputs outputs(options, comm.rank());
  const FashionMnist data = read_fashion_mnist(find_fashion_mnist(options.data));
  require_enough(data.train, options);
  if (speaks) std::cout << introduction(options, data, comm.world_size()) << std::flush;

  const ProgressStyle style = is_watched() ? ProgressStyle::kLive : ProgressStyle::kPlain;
  Progress progress(speaks ? style : ProgressStyle::kNone, std::cout);
  const Result result =
      train_and_test(options, data, comm, progress, outputs.save ? outputs.save->partial() : "");
  if (outputs.save) outputs.save->commit();
  if (outputs.json) {
    outputs.json->write(json(result));
    outputs.json->commit();
  }
  if (speaks) std::cout << summary(result) << std::flush;
  comm.barrier();  // if rank 0 could not write its files, the others fail with it
  require_consistent(result);
}

void join_and_run(const Options& options) {
  Communicator comm = paceline::init();
  try {
    run(options, comm);
  } catch (const paceline::CommError&) {
    throw;  // the others know
  } catch (const std::exception& error) {
    comm.abort(error.what());  // the others end with this cause instead of waiting for us
    throw;
  }
}

}  // namespace

int main(int argc, char** argv) {
  try {
    const std::optional<Options> options = parse_options(argc, argv);
    if (options) join_and_run(*options);
    return 0;
  } catch (const std::exception& error) {
    fmt::print(stderr, "error: {}\n", error.what());
    return 1;
  }
}
