// SPDX-License-Identifier: Apache-2.0
#pragma once
/// @file
/// Trains one model on all ranks: same start, averaged gradients, same parameters.

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <type_traits>
#include <utility>
#include <vector>

#include <ATen/core/Tensor.h>

#include "paceline/base/ledger.h"
#include "paceline/base/types.h"
#include "paceline/comm/communicator.h"
#include "paceline/parallel/gradient_bytes.h"
#include "paceline/parallel/module_holder.h"
#include "paceline/parallel/tensor_tree.h"

namespace torch::nn {
class Module;
}

namespace paceline {

/// Where gradients lie when they leave. Bits do not depend on it.
enum class Gradients : std::uint8_t {
  kAuto,       ///< kArena if the ranks share memory, else kBucketView
  kArena,      ///< where backward made them, in memory that the links reach, if that can be
  kBucketView  ///< in memory of the bucket, of which `.grad` becomes a view
};

/// The same on every rank, but for `timeout` and `gradients`.
struct DdpOptions {
  std::size_t bucket_cap_bytes = std::size_t{25} << 20;  ///< a bucket is closed once it holds this
  std::size_t first_bucket_cap_bytes = std::size_t{1} << 20;  ///< the first one leaves early
  bool broadcast_buffers = true;  ///< rank 0's buffers go to all before each training forward
  /// How long a collective of the wrapper may stand still before it fails; each rank's own.
  std::chrono::milliseconds timeout = kDefaultTimeout;
  Gradients gradients = Gradients::kAuto;  ///< each rank's own
};

/// Gradients that travel together. Buckets leave in this order.
struct BucketInfo {
  std::string label;  ///< as in Communicator::traffic()
  Dtype dtype = Dtype::kF32;
  std::uint64_t count = 0;              ///< elements
  std::vector<std::string> parameters;  ///< in the order in which they lie in memory
  Algorithm algorithm = Algorithm::kRing;
  std::uint64_t formula_bytes_sent = 0;  ///< by this rank in one step, in closed form
};

/// What has happened since construction, on this rank.
struct DdpStatistics {
  std::uint64_t steps = 0;
  std::uint64_t buckets_started = 0;
  std::uint64_t buckets_started_in_backward = 0;  ///< before backward had ended: overlap
  std::uint64_t gradients_copied = 0;             ///< into bucket memory
  std::uint64_t gradients_in_place = 0;           ///< lay in bucket memory already
  /// Payload of buckets, counted at the links; over shared memory, read from and written to the
  /// other ranks' memory.
  std::uint64_t bytes_sent = 0;
  std::uint64_t formula_bytes_sent = 0;  ///< the same in closed form, as buckets were laid out
};

/// Why gradients were copied: how many, since construction.
struct GradientCopies {
  std::uint64_t bucket_view = 0;  ///< there is no arena
  std::uint64_t small = 0;        ///< below 64 KiB: cheaper to copy than to handle
  std::uint64_t strides = 0;      ///< their elements are not in their parameter's order
  std::uint64_t aliased = 0;      ///< somebody else holds their memory, or a graph holds them
  std::uint64_t outside = 0;      ///< not made in the arena: by another allocator, or by the user
  std::uint64_t exhausted = 0;    ///< there was no memory for a block
};

/// The memory that gradients are born in; all 0 where there is no arena.
struct ArenaStats {
  std::uint64_t blocks = 0;  ///< made so far; used again and again, and never given up
  std::uint64_t bytes = 0;   ///< of these
  std::uint64_t blocks_in_use = 0;
  std::uint64_t refused = 0;  ///< requests for a block that there was no memory for
};

/// Where this rank's gradients lay.
struct GradientStats {
  std::uint64_t steps = 0;  ///< whole ones
  GradientBytes total;      ///< since construction
  GradientBytes last_step;
  GradientCopies copies;
  ArenaStats arena;
};

class Reducer;
class ModuleState;

/// All of DistributedDataParallel that does not depend on the module's type.
class DdpBase {
 public:
  /// The module's parameters, each once even if several submodules share it.
  [[nodiscard]] std::vector<at::Tensor> parameters() const;

  /// Makes one step of the next `count` backward calls: gradients add up, buckets leave during the
  /// last, and missing gradients are judged after it. Later steps consist of one backward again.
  ///
  /// Errors  UsageError if count < 1, or in the middle of such a step.
  void expect_backwards(int count);

  /// The buckets as they are laid out now: rebuilt once, at the end of the first step.
  [[nodiscard]] std::vector<BucketInfo> buckets() const;

  [[nodiscard]] DdpStatistics statistics() const;

  /// Whether gradients left without a copy, and if not, why. Each rank's own: ranks may differ.
  ///
  /// Cost  A look at counters; nothing is sent.
  [[nodiscard]] GradientStats stats() const;

  /// Writes down the phases of this rank's steps from now on; anew, from nothing, if the ledger is
  /// on already. Each rank's own. What its calls move is in the communicator's ledger, under the
  /// buckets' labels; this does not start that one.
  ///
  /// Errors  UsageError if `capacity`, the records that are kept, is 0.
  void start_ledger(std::size_t capacity = kLedgerCapacity);

  /// The phases that have begun and ended since start_ledger(), in the order of their ends;
  /// switches the ledger off.
  ///
  ///   kForward   a forward with gradients on, in the module alone: the wrapper's checks and the
  ///              broadcast of buffers lie before it.
  ///   kBackward  from the start of the outermost backward() to the end of its computing. One that
  ///              brings the wrapper's parameters no gradient, such as autograd::grad, is no phase.
  ///   kWait      from there until the last bucket has come and `.grad` holds the mean; after the
  ///              last backward of a step only. What the first step agrees on lies after it.
  ///
  /// `device` is 0; `calls` and `copies` are empty.
  ///
  /// Errors  UsageError if the ledger is off.
  [[nodiscard]] Ledger take_ledger();

 protected:
  DdpBase(std::shared_ptr<::torch::nn::Module> module,
          Communicator& comm,
          const DdpOptions& options);
  DdpBase(DdpBase&&) noexcept;
  DdpBase& operator=(DdpBase&&) noexcept;
  ~DdpBase();

  void before_forward();
  void after_forward();
  void watch(const at::Tensor& output);

 private:
  std::unique_ptr<ModuleState> state_;
  std::shared_ptr<Reducer> reducer_;
};

/// Wraps a module so that backward() leaves the mean of all ranks' gradients in `.grad`.
///
/// Construction compares the models of all ranks (names, shapes, strides, types, requires_grad of
/// parameters and buffers), then copies rank 0's values to all. Each forward in training mode with
/// gradients on first copies rank 0's buffers to all. The module itself is not changed or renamed:
/// save it as before.
///
/// Order     Construction, training forwards and backwards are collective: every rank does the
///           same, in the same order.
/// Numerics  Mean over ranks (not over samples), divided once after the sum. The same bits on all
///           ranks, if their parameters had them; bits depend on world size and bucket layout. One
///           rank gives the bits of plain training.
/// Cost      Where ranks share memory (`gradients`): no copy of a gradient of 64 KiB or more that
///           backward made and nobody else holds. For that the module's gradients come from an
///           arena while backward() runs on the calling thread: an allocator of LibTorch's that is
///           put before the one that is there, once, and passes all else on to it. Elsewhere
///           `.grad` is a view of bucket memory: one copy of each gradient per step, none if
///           zero_grad keeps it; a kept reference to such a `.grad` changes in the next step. One
///           rank leaves `.grad` where it is.
/// Errors    UsageError  at construction, the same on every rank: models or options that differ, an
///                       empty module or one without trainable parameters, a bucket size or timeout
///                       of 0, types or devices that cannot be reduced. In forward, if all ranks
///                       alike have parameters added, removed or changed, or buffers that cannot be
///                       sent; if not all have, CommError kMismatch on every rank.
///           CommError   out of backward(): a rank failed, or a parameter got no gradient
///                       (kAborted, names it on every rank). Gradients are then unspecified.
/// Threads   One caller at a time. `comm` must outlive this object and stay where it is. Destroyed
///           in the middle of a step, it poisons `comm`, and neither waits nor sends.
template <typename Impl>
class DistributedDataParallel : public DdpBase {
 public:
  DistributedDataParallel(std::shared_ptr<Impl> module, Communicator& comm, DdpOptions options = {})
      : DdpBase(module, comm, options), module_(std::move(module)) {}

  /// From a module holder, such as TORCH_MODULE makes.
  template <ModuleHolderOf<Impl> Holder>
  DistributedDataParallel(const Holder& holder, Communicator& comm, DdpOptions options = {})
      : DistributedDataParallel(module_of(holder), comm, options) {}

  /// The module's forward, with whatever arguments and result it has.
  template <typename... Args>
  decltype(auto) operator()(Args&&... args) {
    before_forward();
    if constexpr (std::is_void_v<decltype(module_->forward(std::forward<Args>(args)...))>) {
      module_->forward(std::forward<Args>(args)...);
      after_forward();
    } else {
      decltype(auto) output = module_->forward(std::forward<Args>(args)...);
      after_forward();
      for_each_tensor(output, [this](const at::Tensor& tensor) { watch(tensor); });
      return output;
    }
  }

  [[nodiscard]] const std::shared_ptr<Impl>& module() const noexcept { return module_; }
  Impl* operator->() noexcept { return module_.get(); }

 private:
  std::shared_ptr<Impl> module_;
};

template <typename Impl>
DistributedDataParallel(std::shared_ptr<Impl>, Communicator&, DdpOptions = {})
    -> DistributedDataParallel<Impl>;
template <ModuleHolderOf Holder>
DistributedDataParallel(const Holder&, Communicator&, DdpOptions = {})
    -> DistributedDataParallel<typename Holder::ContainedType>;

}  // namespace paceline
