// SPDX-License-Identifier: Apache-2.0
#include "paceline/parallel/reducer.h"

#include <algorithm>
#include <exception>
#include <numeric>
#include <span>
#include <utility>

#include "paceline/base/error.h"
#include "paceline/parallel/grad_hook.h"
#include "paceline/parallel/module_tensors.h"

namespace paceline {
namespace {

std::string names_text(const std::vector<std::string>& names) {
  std::string text;
  for (const auto& name : names) text += (text.empty() ? "" : ", ") + name;
  return text;
}

}  // namespace

std::shared_ptr<Reducer> Reducer::make(std::string name,
                                       std::vector<NamedTensor> parameters,
                                       Communicator& comm,
                                       const ReducerOptions& options) {
  auto reducer = std::make_shared<Reducer>(std::move(name), std::move(parameters), comm, options);
  reducer->attach();
  return reducer;
}

Reducer::Reducer(std::string name,
                 std::vector<NamedTensor> parameters,
                 Communicator& comm,
                 const ReducerOptions& options)
    : name_(std::move(name)),
      comm_(comm),
      engine_(comm.share_engine()),
      caps_(options.caps),
      timeout_(options.timeout),
      driver_(
          options.driver.value_or(engine_->shares_memory() ? Driver::kByHooks : Driver::kByThread)),
      alone_(comm.world_size() == 1),
      parameters_(std::move(parameters)),
      entries_(parameters_.size()) {
  for (const NamedTensor& parameter : parameters_) {
    const at::Tensor& tensor = parameter.tensor;
    shapes_.push_back({dtype_of(tensor.scalar_type()).value(), tensor.nbytes()});
  }
  const bool by_default = options.gradients == Gradients::kAuto && engine_->shares_memory();
  if (!alone_ && (by_default || options.gradients == Gradients::kArena)) {
    arena_ = std::make_unique<GradientArena>(engine_, parameters_);
  }
  std::vector<std::size_t> order(parameters_.size());
  std::iota(order.rbegin(), order.rend(), std::size_t{0});
  lay_out(assign_buckets(shapes_, order, caps_));
}

Reducer::~Reducer() {
  const bool in_flight = std::any_of(buckets_.begin(), buckets_.end(),
                                     [](const Bucket& bucket) { return bucket.started(); });
  const bool half_done = arrived_ > 0 || backwards_done_ > 0;
  if (!in_flight && !half_done) return;
  if (arena_) arena_->close();
  try {
    engine_->abandon("DistributedDataParallel was destroyed in the middle of a step");
  } catch (const std::exception&) {  // a lack of memory: the peers then have their timeout
  }
}

void Reducer::attach() {
  for (std::size_t i = 0; i < entries_.size(); ++i) {
    entries_[i].hook = on_gradient_ready(parameters_[i].tensor,
                                         [weak = weak_from_this(), i](const at::Tensor& passing) {
                                           if (const auto self = weak.lock())
                                             self->on_gradient(i, passing);
                                         });
  }
}

std::string Reducer::label_of(std::size_t bucket) const {
  return name_ + " bucket " + std::to_string(bucket);
}

void Reducer::lay_out(const BucketLayout& layout) {
  std::vector<Bucket> buckets;
  buckets.reserve(layout.size());
  for (const auto& members : layout) {
    buckets.emplace_back(label_of(buckets.size()), shapes_[members.front()].dtype, members,
                         parameters_, *engine_, arena_.get());
  }
  for (std::size_t b = 0; b < layout.size(); ++b) {
    for (std::size_t slot = 0; slot < layout[b].size(); ++slot) {
      Entry& entry = entries_[layout[b][slot]];
      entry.bucket = b;
      entry.slot = slot;
      if (alone_ || buckets_.empty() || !buckets[b].has_home(slot)) continue;
      // Only a gradient that we put into a bucket of the old layout moves.
      at::Tensor& gradient = parameters_[layout[b][slot]].tensor.mutable_grad();
      if (gradient.defined()) buckets[b].take(slot, gradient);
    }
  }
  buckets_ = std::move(buckets);
  layout_ = layout;
  most_buckets_ = std::max(most_buckets_, layout_.size());
  reset_step();
}

void Reducer::watch(const at::Tensor& output) {
  if (!output.defined() || !output.requires_grad() || output.is_leaf()) return;
  output.register_hook([weak = weak_from_this()](const at::Tensor&) {
    if (const auto self = weak.lock()) self->enter_backward(true);
  });
}

void Reducer::expect_backwards(int count) {
  if (count < 1) {
    throw UsageError("expect_backwards: " + std::to_string(count) + " is not at least 1");
  }
  if (backwards_done_ > 0 || arrived_ > 0) {
    throw UsageError("expect_backwards: a step of " + std::to_string(expected_backwards_) +
                     " backward calls is under way, " + std::to_string(backwards_done_) +
                     " of them are done");
  }
  expected_backwards_ = count;
}

void Reducer::require_settled() {
  if (current_backward() != -1) return;  // a forward inside of backward: checkpointing
  running_.clear();
  stop_serving();
  if (arrived_ == 0) return;
  if (alone_) return reset_step();
  guarded(
      [&] { fail("the last backward ended by an exception, before its gradients were averaged"); });
}

// A backward whose begin no output has told us may be within another one.
void Reducer::enter_backward(bool outermost) {
  const int backward = current_backward();
  if (std::find(running_.begin(), running_.end(), backward) != running_.end()) return;
  if (running_.empty() && arrived_ == 0) phases_.begin(Phase::kBackward);
  if (running_.empty()) from_outside_ = outermost;
  running_.push_back(backward);
  if (arena_) arena_->serve_here();
  when_backward_ends([weak = weak_from_this(), backward] {
    if (const auto self = weak.lock()) self->leave_backward(backward);
  });
}

void Reducer::leave_backward(int backward) {
  std::erase(running_, backward);
  if (running_.empty()) stop_serving();
  if (arrived_ == 0) return;  // autograd::grad, or nothing of ours
  // A backward within another one ends the step only if nothing is left that could come.
  const bool complete = running_.empty() && arrived_ == entries_.size();
  if (inside_backward_function() && !complete) return;
  guarded([&] { end_backward(); });
}

void Reducer::on_gradient(std::size_t index, const at::Tensor& passing) {
  guarded([&] {
    enter_backward(false);
    Entry& entry = entries_[index];
    if (std::exchange(entry.last_backward, backward_) != backward_) ++arrived_;
    entry.has_gradient = true;
    if (backwards_done_ + 1 < expected_backwards_) return;
    note_arrival(index);
    if (may_leave_now()) make_ready(index, passing);
    if (driver_ == Driver::kByHooks && next_start_ > 0) engine_->advance();
  });
}

// The one place that decides whether a gradient leaves while backward runs.
// By hooks, what comes in a backward within another one waits for the end: of a parameter that
// several checkpointed parts use, another gradient may follow.
bool Reducer::may_leave_now() const {
  if (driver_ == Driver::kByThread) return true;
  return from_outside_ && running_.front() == current_backward();
}

void Reducer::note_arrival(std::size_t index) {
  if (!std::exchange(entries_[index].arrived, true) && !rebuilt_) arrival_.push_back(index);
}

void Reducer::make_ready(std::size_t index, const at::Tensor& passing) {
  Entry& entry = entries_[index];
  if (buckets_[entry.bucket].started()) {
    fail("parameter " + parameters_[index].name +
         " received a second gradient in one backward, after the first had left; used by several "
         "checkpointed parts, it is not supported");
  }
  put_into_bucket(index, passing);
  if (std::exchange(entry.ready, true)) return;
  --missing_in_[entry.bucket];
  start_complete_buckets();
}

void Reducer::require_usable(std::size_t index) {
  const NamedTensor& parameter = parameters_[index];
  if (!parameter.tensor.grad().defined()) {
    fail("the gradient of " + parameter.name + " was removed during backward");
  }
  if (const std::string fault = fault_of_gradient(parameter); !fault.empty()) fail(fault);
}

void Reducer::put_into_bucket(std::size_t index, const at::Tensor& passing) {
  require_usable(index);
  if (alone_) return count(index, CopyReason::kNone);
  const Entry& entry = entries_[index];
  at::Tensor& gradient = parameters_[index].tensor.mutable_grad();
  count(index, buckets_[entry.bucket].take(entry.slot, gradient, passing));
}

void Reducer::start_complete_buckets() {
  while (next_start_ < buckets_.size() && missing_in_[next_start_] == 0) {
    Bucket& bucket = buckets_[next_start_++];
    const bool by_thread = driver_ == Driver::kByThread && !ending_;
    if (!alone_)
      bucket.start(*engine_, timeout_, by_thread ? Progress::kThread : Progress::kCaller);
    ++statistics_.buckets_started;
    if (!ending_) ++statistics_.buckets_started_in_backward;
    statistics_.formula_bytes_sent +=
        comm_.formula_bytes_moved(Collective::kAllReduce, bucket.dtype(), bucket.count());
  }
}

void Reducer::end_backward() {
  phases_.end(Phase::kBackward);
  ++backward_;
  arrived_ = 0;
  running_.clear();
  if (++backwards_done_ < expected_backwards_) return;
  ending_ = true;
  phases_.begin(Phase::kWait);
  require_all_gradients();
  for (std::size_t i = 0; i < entries_.size(); ++i) note_arrival(i);  // of earlier backwards
  for (const auto& members : layout_) {
    for (const std::size_t index : members) {
      if (!entries_[index].ready) make_ready(index, {});
    }
  }
  finish_step();
}

void Reducer::require_all_gradients() {
  std::vector<std::string> missing;
  for (std::size_t i = 0; i < entries_.size(); ++i) {
    if (!entries_[i].has_gradient) missing.push_back(parameters_[i].name);
  }
  if (missing.empty()) return;
  fail("backward ended without a gradient for " + names_text(missing) +
       "; every parameter that requires grad must take part in each step");
}

void Reducer::finish_step() {
  for (auto& bucket : buckets_) bucket.wait();
  phases_.end(Phase::kWait);
  ++statistics_.steps;
  stats_.last_step = std::exchange(step_bytes_, {});
  const std::vector<std::int64_t> arrival(arrival_.begin(), arrival_.end());
  reset_step();
  if (!std::exchange(rebuilt_, true)) rebuild(arrival);
}

void Reducer::rebuild(std::vector<std::int64_t> order) {
  comm_.broadcast(std::span(order), 0, {.label = name_ + " layout", .timeout = timeout_});
  const std::vector<std::size_t> agreed(order.begin(), order.end());
  const BucketLayout layout = assign_buckets(shapes_, agreed, caps_);
  if (layout != layout_) lay_out(layout);
}

void Reducer::reset_step() {
  for (auto& entry : entries_) entry.has_gradient = entry.arrived = entry.ready = false;
  missing_in_.clear();
  for (const auto& members : layout_) missing_in_.push_back(members.size());
  next_start_ = 0;
  arrival_.clear();
  ++backward_;
  arrived_ = 0;
  backwards_done_ = 0;
  expected_backwards_ = 1;
  ending_ = false;
  step_bytes_ = {};
  running_.clear();
  stop_serving();
}

void Reducer::stop_serving() noexcept {
  if (arena_) arena_->leave_here();
}

void Reducer::give_up() noexcept {
  if (arena_) arena_->close();  // before a bucket lets go of its memory
  for (auto& bucket : buckets_) {
    try {
      if (bucket.started()) bucket.wait();
    } catch (const std::exception&) {  // the first cause is on its way already
    }
  }
  reset_step();
}

void Reducer::fail(const std::string& what) {
  const std::string text = "rank " + std::to_string(comm_.rank()) + ": " + what;
  comm_.abort(text);
  throw CommError(CommErrc::kAborted, comm_.rank(), -1, text);
}

template <typename F>
void Reducer::guarded(F&& step) {
  try {
    step();
  } catch (const CommError&) {
    give_up();
    throw;
  } catch (const std::exception& error) {
    comm_.abort("rank " + std::to_string(comm_.rank()) + ": " + error.what());
    give_up();
    throw;
  }
}

}  // namespace paceline
