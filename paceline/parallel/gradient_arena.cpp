// SPDX-License-Identifier: Apache-2.0
#include "paceline/parallel/gradient_arena.h"

#include <mutex>
#include <new>
#include <utility>
#include <vector>

#include <ATen/core/grad_mode.h>
#include <ATen/ops/empty.h>
#include <c10/core/CPUAllocator.h>

#include "paceline/base/error.h"

namespace paceline {
namespace {

struct KeptRegion {
  std::shared_ptr<std::byte> data;
};
void drop_region(void* kept) { delete static_cast<KeptRegion*>(kept); }

c10::DeleterFnPtr deleter_before = nullptr;  // written once, before anything can be freed by it

void free_by_address(void* data) {
  if (!BlockHeap::give_back(data) && deleter_before != nullptr) deleter_before(data);
}

c10::DataPtr data_of(std::byte* block) {
  return {block, block, &free_by_address, at::Device(at::kCPU)};
}

std::vector<std::size_t> block_sizes(std::span<const NamedTensor> parameters) {
  std::vector<std::size_t> sizes;
  for (const NamedTensor& parameter : parameters) {
    if (parameter.tensor.nbytes() < GradientArena::kSmallestBytes) continue;
    sizes.push_back(parameter.tensor.nbytes());
  }
  return sizes;
}

}  // namespace

// set_ and not as_strided: optimizers call detach_() on gradients, which autograd refuses for what
// it knows to be a view.
at::Tensor tensor_over(const c10::Storage& storage, std::int64_t offset, const at::Tensor& like) {
  const at::NoGradGuard no_grad;
  at::Tensor tensor = at::empty({0}, like.options().requires_grad(false));
  if (like.is_non_overlapping_and_dense()) {
    return tensor.set_(storage, offset, like.sizes(), like.strides());
  }
  return tensor.set_(storage, offset, like.sizes());
}

Region reachable_if_possible(Engine& engine, std::size_t bytes) {
  try {
    return engine.allocate(bytes);
  } catch (const UsageError&) {
    constexpr std::align_val_t kLine{64};
    auto* const data = static_cast<std::byte*>(::operator new(bytes, kLine));
    return {{data, [](std::byte* p) { ::operator delete(p, kLine); }}, bytes};
  }
}

c10::Storage storage_over(const Region& region, std::size_t offset, std::size_t bytes) {
  auto keep = std::make_unique<KeptRegion>(KeptRegion{region.data});
  return {c10::Storage::use_byte_size_t(), bytes,
          c10::DataPtr(region.data.get() + offset, keep.release(), &drop_region, at::kCPU)};
}

bool lies_in_region(const at::Tensor& tensor) {
  return tensor.has_storage() && tensor.storage().data_ptr().get_deleter() == &drop_region;
}

c10::DataPtr ArenaAllocator::allocate(std::size_t bytes) {
  if (bytes >= GradientArena::kSmallestBytes) {
    if (std::byte* const block = BlockHeap::take_here(bytes)) return data_of(block);
  }
  return before_.allocate(bytes);
}

c10::DeleterFnPtr ArenaAllocator::raw_deleter() const {
  return before_.raw_deleter() == nullptr ? nullptr : &free_by_address;
}

void ArenaAllocator::copy_data(void* to, const void* from, std::size_t bytes) const {
  before_.copy_data(to, from, bytes);
}

bool ArenaAllocator::is_simple_data_ptr(const c10::DataPtr& data) const {
  return data.get_deleter() == &free_by_address || before_.is_simple_data_ptr(data);
}

void ArenaAllocator::install() {
  static std::once_flag once;
  std::call_once(once, [] {
    c10::Allocator& before = *c10::GetCPUAllocator();
    deleter_before = before.raw_deleter();
    auto* const allocator = new ArenaAllocator(before);  // LibTorch has it from here on
    // The lowest priority that is enough: a user's later one is to win with as little.
    for (int priority = 0; c10::GetCPUAllocator() != allocator && priority < 256; ++priority) {
      c10::SetCPUAllocator(allocator, static_cast<std::uint8_t>(priority));
    }
  });
}

GradientArena::GradientArena(std::shared_ptr<Engine> engine,
                             std::span<const NamedTensor> parameters)
    : heap_(std::move(engine), block_sizes(parameters)) {
  ArenaAllocator::install();
}

bool GradientArena::holds(const at::Tensor& tensor) const noexcept {
  if (!tensor.has_storage()) return false;
  const c10::DataPtr& data = tensor.storage().data_ptr();
  return data.get_deleter() == &free_by_address && heap_.reaches(data.get());
}

at::Tensor GradientArena::make_like(const at::Tensor& parameter) {
  std::byte* const block = heap_.take(parameter.nbytes());
  if (block == nullptr) return {};
  const c10::Storage storage(c10::Storage::use_byte_size_t(), parameter.nbytes(), data_of(block),
                             c10::GetCPUAllocator(), /*resizable=*/true);
  return tensor_over(storage, 0, parameter);
}

}  // namespace paceline
