// SPDX-License-Identifier: Apache-2.0
#pragma once
/// @file
/// What a shared optimizer does, whatever its arithmetic.

#include <exception>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include <ATen/core/Tensor.h>

#include "paceline/comm/communicator.h"
#include "paceline/comm/home_process.h"
#include "paceline/parallel/module_state.h"
#include "paceline/parallel/shard_reducer.h"
#include "paceline/parallel/sharded_state.h"
#include "paceline/parallel/shared_groups.h"
#include "paceline/parallel/shared_parameters.h"
#include "paceline/parallel/update_rule.h"

namespace paceline {

/// What it says, without the backtrace that LibTorch's errors have.
[[nodiscard]] std::string first_line(const std::exception& error);

/// A rank writes to its shares only, and to an element only from a mean: that holds a gradient of
/// every rank, so every rank has come to this step and is done with the parameters; after
/// clipping, which has the means early, a barrier says so. A barrier ends the step: nobody reads
/// before all have written.
///
/// Threads  One caller at a time.
class SharedTraining {
 public:
  SharedTraining(std::string title,
                 std::shared_ptr<::torch::nn::Module> module,
                 Communicator& comm,
                 const SharedOptions& options,
                 GroupRates rates,
                 std::unique_ptr<UpdateRule> rule);
  ~SharedTraining();
  SharedTraining(const SharedTraining&) = delete;
  SharedTraining& operator=(const SharedTraining&) = delete;

  void write_once(const std::function<void()>& edit);
  // shared_step.cpp
  void step();
  void zero_grad();
  double clip_grad_norm(double max_norm);
  // shared_checkpoint.cpp
  void save(::torch::serialize::OutputArchive& archive) const;
  void load(::torch::serialize::InputArchive& archive);

  [[nodiscard]] const SharedGroups& rates() const noexcept { return groups_; }
  void set_rates(std::size_t group, GroupRates rates);
  [[nodiscard]] std::int64_t steps() const noexcept { return steps_; }
  [[nodiscard]] GradientBytes gradient_bytes() const noexcept { return reducer_->bytes(); }
  [[nodiscard]] std::size_t state_bytes() const;

 private:
  // Order in which the gradients came; a hook may outlive us.
  using Arrival = std::vector<std::size_t>;
  struct Loaded {
    std::int64_t steps = 0;
    std::vector<GroupRates> rates;
    std::vector<std::vector<at::Tensor>> states;  // by state, then parameter
  };

  void agree();
  void furnish();
  void abort_for(const std::exception& error) const;
  void require_shared_memory() const;
  void watch_arrival();
  void lay_out(const BucketLayout& layout);
  void make_cells();
  [[nodiscard]] std::vector<Cell> cells_of(std::size_t round) const;
  [[nodiscard]] std::vector<Piece> parameter_pieces_of(std::size_t round) const;
  [[nodiscard]] Cell cell_of(std::size_t round, const Stretch& stretch, Range part) const;
  void follow_arrival();
  void require_untouched() const;
  void prepare_step();
  void require_gradients();
  // Where a mean goes: to its shard, or right to the parameters where the rule allows it.
  enum class Means : bool { kToShards, kToParameters };
  void average(Means means, const std::function<void(std::size_t round)>& use);
  [[nodiscard]] std::optional<ShardReducer::Addition> plain_update(std::size_t round) const;
  void update_alone();
  void update_round(std::size_t round);
  void finish_step();
  [[nodiscard]] double norm_of_means(double max_norm);
  void write(::torch::serialize::OutputArchive& archive) const;
  [[nodiscard]] Loaded read(::torch::serialize::InputArchive& archive) const;
  void adopt(const Loaded& loaded);
  [[nodiscard]] CallOptions calls(const std::string& what) const;
  void guarded(const std::function<void()>& action) const;
  void close() const;

  const std::string title_;
  const HomeProcess home_;
  Communicator& comm_;
  const std::chrono::milliseconds timeout_;
  ModuleState module_;
  const std::vector<NamedTensor> trainable_;
  const std::unique_ptr<UpdateRule> rule_;
  SharedGroups groups_;
  bool rates_agreed_ = true;
  std::unique_ptr<SharedParameters> shared_;  // once the ranks have agreed
  std::vector<std::size_t> place_;            // of each trainable parameter among all
  std::unique_ptr<ShardReducer> reducer_;
  std::vector<GradientShape> shapes_;
  BucketLayout layout_;
  std::vector<Round> rounds_;
  std::vector<ShardedState> states_;
  std::vector<std::vector<Cell>> cells_;              // per round
  std::vector<at::Tensor> shards_;                    // per round, where its mean arrives
  std::vector<std::vector<Piece>> parameter_pieces_;  // per round, of this rank's share
  std::vector<at::Tensor> kept_means_;                // per round, from clip_grad_norm() to step()
  double scale_ = 1;
  std::int64_t steps_ = 0;
  std::shared_ptr<Arrival> arrival_;  // null once the layout is final
  std::vector<std::shared_ptr<void>> hooks_;
};

}  // namespace paceline
