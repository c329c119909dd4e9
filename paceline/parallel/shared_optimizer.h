// SPDX-License-Identifier: Apache-2.0
#pragma once
/// @file
/// Trains one model on all ranks of a host with one copy of its parameters and of the optimizer's
/// state: SharedSGD and SharedAdam.

#include <array>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "paceline/comm/communicator.h"
#include "paceline/parallel/gradient_bytes.h"
#include "paceline/parallel/module_holder.h"

namespace torch::nn {
class Module;
}
namespace torch::serialize {
class InputArchive;
class OutputArchive;
}  // namespace torch::serialize

namespace paceline {

class UpdateRule;
class SharedTraining;

/// Parameters with rates of their own, by the names that the module gives them.
struct ParameterGroup {
  std::vector<std::string> parameters;
  std::optional<double> lr = {};            ///< none: that of the options
  std::optional<double> weight_decay = {};  ///< none: that of the options
};

/// What both optimizers have. The same on every rank, but for `timeout`.
struct SharedOptions {
  std::vector<ParameterGroup> groups = {};  ///< 1, 2, ...; group 0 is all other parameters
  bool broadcast_buffers = true;  ///< rank 0's buffers go to all in each step in training mode
  /// How long a collective of the optimizer may stand still before it fails; each rank's own.
  std::chrono::milliseconds timeout = kDefaultTimeout;
};

/// As torch::optim::SGDOptions.
struct SharedSgdOptions {
  double lr = 1e-3;
  double momentum = 0;
  double dampening = 0;
  double weight_decay = 0;
  bool nesterov = false;
  SharedOptions shared = {};
};

/// As torch::optim::AdamOptions, without amsgrad.
struct SharedAdamOptions {
  double lr = 1e-3;
  std::array<double, 2> betas = {0.9, 0.999};
  double eps = 1e-8;
  double weight_decay = 0;
  bool decoupled_weight_decay = false;  ///< AdamW
  SharedOptions shared = {};
};

/// What SharedSGD and SharedAdam have in common. It takes the place of DistributedDataParallel and
/// an optimizer together: use the module itself, and let no such wrapper near it.
///
///   paceline::SharedSGD optimizer(net, comm, {.lr = 0.1, .momentum = 0.9});
///   optimizer.zero_grad();
///   loss(net->forward(x)).backward();
///   optimizer.step();
///
/// Construction compares the ranks' models and options, moves the parameters into memory that all
/// ranks share, with rank 0's values, and copies rank 0's buffers to all. step() averages the
/// gradients; each rank gets its share of the mean, updates its share of the parameters by its
/// share of the state, and returns when all have. `.grad` stays what this rank's backward left.
///
/// Order     Construction and all members that do not say otherwise are collective.
/// Numerics  The mean is that of DistributedDataParallel with default buckets, bit for bit: its
///           layout is followed, also when it changes after the first step, for one backward per
///           step (for N < 3 no bit depends on the layout). The parameters are one memory, so every
///           rank has the same bits.
/// Cost      Over all ranks one copy of the parameters and one of the state, and per rank two
///           shards of N·256 KiB, at most 1 MiB, for means in passing (with one rank of 1 MiB, for
///           what a rule works out). Per step each rank reads N·M/N bytes of gradients and updates
///           M/N: no gradient is copied but those below 64 KiB and those that are strided or share
///           memory, and with one rank only the latter two. Gradients are born in shared memory on
///           the thread that constructs and steps; of several shared optimizers on one thread only
///           those of the one that stepped last, the others' are copied.
/// Errors    UsageError  at construction, the same on every rank: ranks that share no memory
///                       (their link is tcp, or memory for threads); models or options that differ;
///                       rates or options out of range; groups that name what is no parameter, or
///                       one twice; parameters that share memory or were made in inference mode;
///                       inference mode; what DistributedDataParallel refuses.
///                       In step(), if all ranks alike have edited parameters, or changed the
///                       module's, and in all collective members, if all are in inference mode; if
///                       not all have or are, or not all have changed rates, CommError kMismatch,
///                       which names both sides.
///           CommError   a rank failed, by lack of memory too, or a parameter has no gradient
///                       (kAborted, names it on every rank), or a rank's gradients were in use by
///                       another call of its own, and it got UsageError (kRefused). Parameters and
///                       state are then unspecified, on all ranks.
/// Threads   One caller at a time. In step(), save(), load() and write_once() nobody may use the
///           parameters on any thread. `comm` must outlive this object and stay where it is. The
///           parameters stay in the shared memory afterwards.
class SharedOptimizer {
 public:
  SharedOptimizer(const SharedOptimizer&) = delete;
  SharedOptimizer& operator=(const SharedOptimizer&) = delete;

  /// Averages the gradients and makes one step of the optimizer.
  ///
  /// A graph that has saved parameters before cannot be run backward afterwards: autograd says so.
  /// Edits of parameters are noticed by their version counters, and by a few bytes of each, since
  /// LibTorch's optimizers go around the counters. One through `.data()` or pointers that leaves
  /// these bytes is not noticed.
  void step();

  /// Drops all gradients of this rank. Not collective.
  void zero_grad();

  /// Scales the mean that the next step() uses so that its norm, over all elements, is at most
  /// `max_norm`; `.grad` stays. Call it after the last backward of a step, once.
  ///
  /// Numerics  Squares are summed in F64, by shards and then over ranks: the same bits on every
  ///           rank. The mean is multiplied by min(1, max_norm / (norm + 1e-6)), rounded to its
  ///           type; a norm that is no number makes all of it NaN, as in LibTorch.
  /// Cost      Keeps this rank's share of the mean, M/N bytes, until step().
  /// Errors    UsageError if max_norm is not positive, or, on all ranks, if they differ in it; what
  ///           step() throws; and from step() if a `.grad` has changed since.
  /// @return   The norm before scaling.
  double clip_grad_norm(double max_norm);

  /// Runs `edit` on rank 0 alone, which may change parameters and buffers, by torch::load too,
  /// while the others wait, up to their timeout; afterwards all ranks have them, along with what
  /// was edited in the shared memory before. What `edit` throws leaves here on rank 0; the others
  /// then get UsageError.
  ///
  /// Errors  UsageError if a parameter has another type or shape afterwards: it has its old values.
  void write_once(const std::function<void()>& edit);

  /// Writes the whole state to each rank's archive: "<name of a state>.<name of a parameter>" in
  /// the parameter's shape, and the number of steps and rates. Parameters are the module's own.
  ///
  /// Cost  Each rank holds the whole state for as long as its archive does.
  void save(::torch::serialize::OutputArchive& archive) const;
  /// Reads what save() wrote, in a world of any size.
  ///
  /// Errors  UsageError, the same on all ranks, if the archive of one does not fit or holds what
  ///         cannot be, or the ranks' archives differ in steps or rates; nothing has changed then.
  void load(::torch::serialize::InputArchive& archive);

  // Rates may be changed between steps, on all ranks alike: the next step() compares them. These
  // are not collective. Errors: UsageError if there is no such group, or the rate is below 0 or
  // not finite.
  [[nodiscard]] double lr(std::size_t group = 0) const;
  [[nodiscard]] double weight_decay(std::size_t group = 0) const;
  void set_lr(double lr);  ///< of all groups
  void set_lr(std::size_t group, double lr);
  void set_weight_decay(std::size_t group, double weight_decay);
  [[nodiscard]] std::size_t group_count() const;

  /// Steps made, those of a loaded state included. Not collective.
  [[nodiscard]] std::int64_t steps() const;
  /// Of this rank's gradients in the last step, or since then clip_grad_norm(). In place are those
  /// that lay where the other ranks could read them. Not collective.
  [[nodiscard]] GradientBytes gradient_bytes() const;
  /// Bytes of optimizer state on this rank. Not collective.
  [[nodiscard]] std::size_t state_bytes() const;

 protected:
  SharedOptimizer(std::string title,
                  std::shared_ptr<::torch::nn::Module> module,
                  Communicator& comm,
                  const SharedOptions& options,
                  double lr,
                  double weight_decay,
                  std::unique_ptr<UpdateRule> rule);
  ~SharedOptimizer();

 private:
  std::unique_ptr<SharedTraining> training_;
};

/// torch::optim::SGD on shared parameters.
///
/// Numerics  DistributedDataParallel and torch::optim::SGD give the same bits in F32 and F64, from
///           the same start on the same CPU capability, but for those of a NaN: the same kernels of
///           ATen run in the same order, or, where a step is p - lr·mean and no more, one of ours
///           that averages and updates in one pass and rounds as ATen's was seen to. Of 16-bit
///           floats ATen rounds a tensor's ends otherwise than its middle, and shares have other
///           ends: with neither momentum nor decay a step from the same start differs by at most
///           2u (|p'| + lr·|g|), u being the unit roundoff.
class SharedSGD final : public SharedOptimizer {
 public:
  SharedSGD(std::shared_ptr<::torch::nn::Module> module,
            Communicator& comm,
            const SharedSgdOptions& options = {});
  template <ModuleHolderOf Holder>
  SharedSGD(const Holder& holder, Communicator& comm, const SharedSgdOptions& options = {})
      : SharedSGD(std::shared_ptr<::torch::nn::Module>(module_of(holder)), comm, options) {}
};

/// torch::optim::Adam, or AdamW, on shared parameters, by LibTorch's fused kernel.
///
/// Numerics  One step from equal state and mean gradient g ends close to torch::optim::Adam's. With
///           u the unit roundoff, G = |g| + weight_decay·|p| if that is coupled (else |g|), and
///           m', v', p' the values after the step, the two differ at most by
///             m'  8u (|m| + G)                           each side rounds 4 times, lerp or not
///             v'  12u v' + (1 - beta2) 8u G²             5 roundings of positive terms a side
///             p'  s/d · 8u (|m| + G) + s|m'|/d · (20u + dv / 2v') + 4u |p|
///           with d = sqrt(v' / (1 - beta2^t)) + eps, s = lr / (1 - beta1^t), dv the bound of v' (and
///           dv / 2v' = 0 where v' is 0): m' enters once, v' by its root, root and quotients round up
///           to 10 times a side, and p is rounded once or, decoupled, twice. Terms in u² are covered
///           by a factor of 1.01.
class SharedAdam final : public SharedOptimizer {
 public:
  SharedAdam(std::shared_ptr<::torch::nn::Module> module,
             Communicator& comm,
             const SharedAdamOptions& options = {});
  template <ModuleHolderOf Holder>
  SharedAdam(const Holder& holder, Communicator& comm, const SharedAdamOptions& options = {})
      : SharedAdam(std::shared_ptr<::torch::nn::Module>(module_of(holder)), comm, options) {}
};

}  // namespace paceline
