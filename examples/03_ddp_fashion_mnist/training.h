// SPDX-License-Identifier: Apache-2.0
#pragma once
/// @file
/// Training and evaluation on all ranks. This header shows no LibTorch.

#include <paceline/paceline.h>

#include <filesystem>

#include "fashion_mnist.h"
#include "options.h"
#include "progress.h"
#include "report.h"

namespace example {

/// Trains, tests, and on rank 0 writes the parameters to `save_to`, unless that is empty.
///
/// Order   Collective.
/// Errors  CommError; std::runtime_error if the loss is no longer finite, on every rank.
[[nodiscard]] Result train_and_test(const Options& options,
                                    const FashionMnist& data,
                                    paceline::Communicator& comm,
                                    Progress& progress,
                                    const std::filesystem::path& save_to);

}  // namespace example
